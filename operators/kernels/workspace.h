// Scratch memory of a kernel that runs on the calling thread.
#pragma once

#include <cstddef>

namespace mx::kernels {

/// At least `bytes` bytes, aligned to 64, of this thread; valid until the thread's next call. Kept for the
/// next one, so that a steady state allocates nothing. The contents are undefined. A caller must not run
/// other kernels while it uses the memory: no parallel_for in between. May be called by destructors that run
/// at the thread's end, and after them. Throws OutOfMemory.
void* thread_workspace(size_t bytes);

}  // namespace mx::kernels
