// The CUDA backend as the registry sees it. With no CUDA toolkit at build time a stub defines the same two
// functions, so that nothing else in the library asks whether CUDA is there.
#pragma once

#include <memory>

#include "engine/device/device.h"

namespace mx {

/// Usable GPUs; 0 without hardware, driver or CUDA support. Never throws and never prints.
int cuda_device_count();

/// Starts GPU `id`. Throws DeviceError.
std::unique_ptr<Device> open_cuda_device(int id);

}  // namespace mx
