// A virtual device that has run out of memory.
#pragma once

#include <cstddef>

#include "engine/device/registry.h"
#include "engine/device/virtual/virtual_device.h"

namespace mx::test {

/// During its lifetime, virt(id) has only `spare_bytes` beyond the memory in use. Precondition: no work of
/// the device is pending at construction (call wait_all() first).
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
