// DeviceOps of GPUs, implemented by kernels of the test. In a build without CUDA these are the DeviceOps of
// the host; they are never called, because there is no GPU.
#pragma once

#include "tests/conformance/device_suite.h"

namespace mx::conformance {

DeviceOps& cuda_ops();

}  // namespace mx::conformance
