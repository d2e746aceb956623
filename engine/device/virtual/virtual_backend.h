// The virtual backend as the registry sees it; virtual_device.h has its options and its controls.
#pragma once

#include <memory>

#include "engine/device/device.h"

namespace mx {

/// Returns VirtualOptions::devices.
int virtual_device_count();

/// Starts virtual device `id`. Throws DeviceError if its address space cannot be reserved.
std::unique_ptr<Device> open_virtual_device(int id);

}  // namespace mx
