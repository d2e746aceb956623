// DeviceOps of GPUs: kernels of the test's own. Without CUDA at build time, those of the host, which are then
// never called because there is no GPU to call them on.
#pragma once

#include "tests/conformance/device_suite.h"

namespace mx::conformance {

DeviceOps& cuda_ops();

}  // namespace mx::conformance
