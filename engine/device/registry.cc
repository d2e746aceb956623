#include "engine/device/registry.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <ostream>

#include "engine/base/check.h"
#include "engine/device/cpu/cpu_device.h"
#include "engine/device/cuda/cuda_backend.h"
#include "engine/device/virtual/virtual_backend.h"

namespace mx {

namespace {

constexpr int kMaxKinds = 48;
constexpr int kMaxDevices = 64;

struct Entry {
  Backend backend;
  std::mutex open_mutex;  // held while a device of the kind starts, which may take seconds
};

struct Registry {
  // The hot path reads this table only. Devices are never destroyed.
  std::atomic<Device*> devices[kMaxKinds][kMaxDevices] = {};

  std::mutex mutex;
  Entry* entries[kMaxKinds] = {};
  int next_external = static_cast<int>(DeviceKind::first_external);

  Registry() {
    add(DeviceKind::cpu, {"cpu", cpu_device_count, open_cpu_device});
    add(DeviceKind::gpu, {"gpu", cuda_device_count, open_cuda_device});
    add(DeviceKind::virt, {"virt", virtual_device_count, open_virtual_device});
  }

  void add(DeviceKind kind, Backend backend) {
    auto* entry = new Entry;
    entry->backend = std::move(backend);
    entries[static_cast<int>(kind)] = entry;
  }

  Entry* find(DeviceKind kind) {
    const int index = static_cast<int>(kind);
    if (index >= kMaxKinds) return nullptr;
    std::lock_guard lock(mutex);
    return entries[index];
  }
};

Registry& registry() {
  static Registry* instance = new Registry;
  return *instance;
}

/// Returns the devices that can be opened, by kind: "cpu(0), virt(0) to virt(3)".
std::string present_devices() {
  std::string text;
  for (int kind = 0; kind < kMaxKinds; ++kind) {
    const int count = num_devices(static_cast<DeviceKind>(kind));
    if (count == 0) continue;
    const auto name = [kind](int id) {
      return to_string(Context{static_cast<DeviceKind>(kind), static_cast<uint16_t>(id)});
    };
    text += (text.empty() ? "" : ", ") + name(0);
    if (count > 1) text += " to " + name(count - 1);
  }
  return text;
}

Device& open(Context context) {
  Entry* entry = registry().find(context.kind);
  MX_CHECK(entry != nullptr, InvalidArgument, "[get_device] expected a registered kind of device, got kind ",
           static_cast<int>(context.kind));
  const int count = std::min(entry->backend.count(), kMaxDevices);
  MX_CHECK(count > 0, InvalidArgument, "[get_device] expected a device that is present, got ",
           to_string(context), ": this build or this machine has no device of kind ", entry->backend.name,
           "; present: ", present_devices());
  MX_CHECK(context.id < count, InvalidArgument, "[get_device] expected one of the ", count,
           " devices of kind ", entry->backend.name, ", got ", to_string(context));
  std::atomic<Device*>& slot = registry().devices[static_cast<int>(context.kind)][context.id];
  std::lock_guard lock(entry->open_mutex);
  if (Device* device = slot.load(std::memory_order_acquire)) return *device;
  Device* device = entry->backend.open(context.id).release();
  MX_CHECK(device != nullptr, DeviceError, "[get_device] expected a device, got null from the backend of ",
           to_string(context));
  slot.store(device, std::memory_order_release);
  return *device;
}

// "cpu", "virt", or what an external kind has registered with.
std::string name_of(DeviceKind kind) {
  const Entry* entry = registry().find(kind);
  return entry != nullptr ? entry->backend.name : "kind" + std::to_string(static_cast<int>(kind));
}

}  // namespace

DeviceKind register_backend(Backend backend) {
  MX_CHECK(!backend.name.empty() && backend.count && backend.open, InvalidArgument,
           "[register_backend] expected a name and two functions, got '", backend.name, "' with ",
           backend.count ? "count" : "no count", " and ", backend.open ? "open" : "no open");
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  for (const Entry* entry : r.entries) {
    MX_CHECK(entry == nullptr || entry->backend.name != backend.name, InvalidArgument,
             "[register_backend] expected a new name, got '", backend.name, "', which is taken");
  }
  MX_CHECK(r.next_external < kMaxKinds, InvalidArgument, "[register_backend] expected at most ",
           kMaxKinds - static_cast<int>(DeviceKind::first_external), " outside backends, got one more: '",
           backend.name, "'");
  const auto kind = static_cast<DeviceKind>(r.next_external++);
  r.add(kind, std::move(backend));
  return kind;
}

Device& get_device(Context context) {
  const auto kind = static_cast<unsigned>(context.kind);
  if (kind < kMaxKinds && context.id < kMaxDevices) [[likely]] {
    if (Device* device = registry().devices[kind][context.id].load(std::memory_order_acquire)) return *device;
  }
  return open(context);
}

int num_devices(DeviceKind kind) {
  Entry* entry = registry().find(kind);
  return entry != nullptr ? std::min(entry->backend.count(), kMaxDevices) : 0;
}

int num_gpus() { return num_devices(DeviceKind::gpu); }

CudaSupport cuda_support() { return find_cuda_support(); }

Context make_context(DeviceKind kind, int id) {
  MX_CHECK(id >= 0 && id <= UINT16_MAX, InvalidArgument, "[", name_of(kind),
           "] expected the number of a device, from 0 to ", UINT16_MAX, ", got ", id);
  return {kind, static_cast<uint16_t>(id)};
}

std::string to_string(Context context) {
  return name_of(context.kind) + "(" + std::to_string(context.id) + ")";
}

std::ostream& operator<<(std::ostream& out, Context context) { return out << to_string(context); }

}  // namespace mx
