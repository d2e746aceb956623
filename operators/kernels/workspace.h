// Scratch memory of a kernel that runs on the calling thread.
#pragma once

#include <cstddef>

namespace mx::kernels {

/// Returns at least `bytes` bytes of the calling thread's memory, aligned to 64, with undefined contents. The
/// memory is valid until the thread's next call, which reuses it, so that a steady state allocates nothing.
/// Precondition: the caller runs no other kernels, and hence no parallel_for, while it uses the memory. May
/// be called by destructors that run at the thread's end, and after them. Throws OutOfMemory.
void* thread_workspace(size_t bytes);

}  // namespace mx::kernels
