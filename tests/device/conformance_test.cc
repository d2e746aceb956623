// Runs the suite on the backends of the tree.
#include "engine/device/virtual/virtual_device.h"
#include "tests/conformance/device_suite.h"
#include "tests/device/cuda_ops.h"

namespace mx::conformance {

// Runs the same work with a different order of events each time, so that a test cannot pass by a lucky order.
class SlowVirtual final : public DeviceOps {
 public:
  void prepare(Device& device) override { static_cast<VirtualDevice&>(device).set_delay(11, 0, 60); }
};

static DeviceOps& slow_virtual() {
  static SlowVirtual ops;
  return ops;
}

MX_DEVICE_CONFORMANCE(cpu, mx::cpu(0), mx::cpu(0));
MX_DEVICE_CONFORMANCE(virt, mx::virt(0), mx::virt(1));
MX_DEVICE_CONFORMANCE(slow_virt, mx::virt(2), mx::virt(3), slow_virtual());
MX_DEVICE_CONFORMANCE(gpu, mx::gpu(0), mx::gpu(1), cuda_ops());

}  // namespace mx::conformance
