#include "tests/device/cuda_ops.h"

namespace mx::conformance {

DeviceOps& cuda_ops() { return host_ops(); }

}  // namespace mx::conformance
