// Copies of small results to host memory that is not page-locked. Private to engine/device/cuda/.
//
// CUDA would block the thread that asks for such a copy until the work before it has ended; that thread may
// have other work to issue. So the bytes go through page-locked memory, and a function that CUDA calls in
// the order of the stream takes them to their place.
//
// A copy in the other direction reads host memory that is not page-locked at once, on the calling thread. If
// a result on its way belongs into that memory, the copy has to wait for it: see await_small_results().
//
// Thread-safety: safe from any thread.
#pragma once

#include <cstddef>

#include "engine/device/cuda/cuda_device.h"

namespace mx {

inline constexpr size_t kSmallResultBytes = 64;  // the size of a flag's memory (CudaDevice::take_flag)

/// Appends the copy to the stream and returns true, unless the target is page-locked: then CUDA's own copy
/// does not block. Precondition: `bytes` <= kSmallResultBytes, and the device is current. Throws CudaError.
bool copy_small_result(CudaDevice& device, void* target, const void* source, size_t bytes,
                       cudaStream_t stream);

/// Blocks until no result is on its way into these bytes of host memory, or the device that computes it is
/// lost.
void await_small_results(const void* memory, size_t bytes) noexcept;

}  // namespace mx
