// The functions of the CUDA backend that the registry calls. If there was no CUDA toolkit at build time,
// a stub defines them, so no other code depends on whether CUDA was found.
#pragma once

#include <memory>

#include "engine/device/device.h"
#include "engine/device/registry.h"

namespace mx {

/// Returns the number of usable GPUs; 0 without hardware, driver or CUDA support. Never throws, never prints.
int cuda_device_count();

/// Finds what cuda_support() returns. Never throws.
CudaSupport find_cuda_support();

/// Starts GPU `id`. Throws DeviceError.
std::unique_ptr<Device> open_cuda_device(int id);

}  // namespace mx
