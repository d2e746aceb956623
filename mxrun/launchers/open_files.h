// The limit of open files (ulimit -n).
//
// The launcher needs descriptors for each process of the job, and an agent for each rank, so they take as
// many as the hard limit allows. Programs get the limit that the user has set.
//
// Thread-safety: call raise_open_files() before there are other threads; the others are thread-safe.
#pragma once

#include <cstddef>

namespace mx::launch {

/// Raises the soft limit to the hard one and remembers the soft limit.
void raise_open_files();

/// Restores the soft limit of before raise_open_files(). Safe between fork() and exec().
void restore_open_files();

/// Throws InvalidArgument if this process cannot open `needed` files more. The message names the limit, and
/// `who` needs the files: "mxrun", "the agent of this node".
void check_open_files(size_t needed, const char* who);

}  // namespace mx::launch
