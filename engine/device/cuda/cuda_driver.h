// Functions of the CUDA driver, found through the runtime so that nothing links to libcuda. For this folder
// and for code of kernels.
//
// Thread-safety: safe from any thread.
#pragma once

#include <cuda.h>

namespace mx {

/// A member is null if the driver does not have the function.
struct CudaDriver {
  CUresult (*device_get)(CUdevice* device, int ordinal) = nullptr;
  CUresult (*retain_primary)(CUcontext* context, CUdevice device) = nullptr;
  CUresult (*push_current)(CUcontext context) = nullptr;
  CUresult (*pop_current)(CUcontext* context) = nullptr;
  CUresult (*wait_value)(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) = nullptr;
  decltype(&cuLibraryLoadData) library_load = nullptr;
  decltype(&cuLibraryGetKernel) library_kernel = nullptr;
  decltype(&cuLaunchKernel) launch_kernel = nullptr;
};

/// Looks the functions up at the first call, which creates no context and leaves no last error.
const CudaDriver& cuda_driver() noexcept;

/// The primary context of a device. The first call creates it if nothing else has; it is never given back.
/// Null if the driver has no such function, or refuses.
CUcontext primary_context(int device) noexcept;

}  // namespace mx
