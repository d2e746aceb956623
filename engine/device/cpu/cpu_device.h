// The cpu backend: one device, the host itself. Memory is host memory, aligned to 64 bytes and cached by a
// pool; streams are HostStreams.
#pragma once

#include <memory>

#include "engine/device/device.h"

namespace mx {

/// 1: all processors of the process are one device, cpu(0).
int cpu_device_count();

std::unique_ptr<Device> open_cpu_device(int id);

}  // namespace mx
