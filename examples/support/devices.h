// Devices on a command line: "cpu", "virt:0", "gpu:1", or several with commas.
#pragma once

#include <string>
#include <vector>

#include "engine/device/context.h"

namespace mx::examples {

/// Throws InvalidArgument for what it cannot read, and for devices that are not there.
std::vector<Context> parse_devices(const std::string& text);

}  // namespace mx::examples
