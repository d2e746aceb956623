// The signals that end a process that writes: SIGPIPE, because nobody reads, and SIGXFSZ, because a file
// would grow beyond the limit of file sizes (ulimit -f). Neither must end mxrun, which gets an error from
// write() instead. Programs find both as they were when mxrun started.
//
// Thread-safety: call ignore_write_signals() before there are other threads; the others are thread-safe.
#pragma once

namespace mx::launch {

/// Returns whether this process ignores a signal, as under nohup. Such a signal stays ignored in the ranks.
/// It must not be blocked: the kernel keeps blocked signals even if they are ignored.
bool is_ignored(int signal_number);

/// Ignores both signals, and remembers which of them were ignored before.
void ignore_write_signals();

/// Undoes that in a child. Safe between fork() and exec().
void restore_write_signals();

}  // namespace mx::launch
