// The two functions of the CUDA backend that the registry calls. If there is no CUDA toolkit at build time, a
// stub defines them, so the rest of the library is the same with and without CUDA.
#pragma once

#include <memory>

#include "engine/device/device.h"

namespace mx {

/// Usable GPUs; 0 without hardware, driver or CUDA support. Never throws and never prints.
int cuda_device_count();

/// Starts GPU `id`. Throws DeviceError.
std::unique_ptr<Device> open_cuda_device(int id);

}  // namespace mx
