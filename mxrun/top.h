// `mxrun top [JOB]`: a table of the processes of a running job, again and again until it ends.
//
// Thread-safety: one thread at a time.
#pragma once

namespace mx::launch {

/// The command line begins with "top". Returns the exit code: 0, or 2 for wrong options and for a job that
/// does not run.
int run_top(int argc, const char* const* argv);

}  // namespace mx::launch
