// Context: which device an operation runs on or an allocation lives on.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>

namespace mx {

/// A kind of device. The three of this library have fixed numbers; a backend from outside the tree gets one
/// when it registers (see registry.h).
enum class DeviceKind : uint16_t { cpu = 0, gpu = 1, virt = 2, first_external = 16 };

/// The name of a device: its kind and its number within the kind. Making a Context neither checks that the
/// device exists nor starts it; get_device() does both.
struct Context {
  DeviceKind kind = DeviceKind::cpu;
  uint16_t id = 0;

  friend bool operator==(const Context&, const Context&) = default;
  bool is_cpu() const { return kind == DeviceKind::cpu; }
};

/// Throws InvalidArgument for a number that no device has: below 0 or above 65535.
Context make_context(DeviceKind kind, int id);

inline Context cpu() { return {DeviceKind::cpu, 0}; }
inline Context cpu(int id) { return make_context(DeviceKind::cpu, id); }
inline Context gpu(int id = 0) { return make_context(DeviceKind::gpu, id); }
inline Context virt(int id = 0) { return make_context(DeviceKind::virt, id); }

/// "cpu(0)", "gpu(1)", "virt(2)"; an external kind prints the name it registered with.
std::string to_string(Context context);
std::ostream& operator<<(std::ostream& out, Context context);

}  // namespace mx
