// A virtual device that has no more memory to give.
#pragma once

#include <cstddef>

#include "engine/device/registry.h"
#include "engine/device/virtual/virtual_device.h"

namespace mx::test {

/// While it lives, virt(id) has `spare_bytes` beyond what is in use. Nothing of the device's is to be pending
/// when it begins (wait_all()).
class Shortage {
 public:
  explicit Shortage(size_t spare_bytes = 0, int id = 0)
      : device_(static_cast<VirtualDevice&>(get_device(virt(id)))) {
    device_.trim_memory();
    device_.set_capacity(device_.memory_stats().reserved_bytes + spare_bytes);
  }
  ~Shortage() { end(); }
  Shortage(const Shortage&) = delete;
  Shortage& operator=(const Shortage&) = delete;

  void end() { device_.set_capacity(virtual_options().capacity_bytes); }
  VirtualDevice& device() const { return device_; }

 private:
  VirtualDevice& device_;
};

}  // namespace mx::test
