#include <cstdlib>
#include <mutex>

#include "engine/base/check.h"
#include "engine/base/log.h"
#include "engine/device/virtual/virtual_backend.h"
#include "engine/device/virtual/virtual_device.h"

namespace mx {

namespace {

struct Options {
  std::mutex mutex;
  VirtualOptions value;

  Options() {
    const char* text = std::getenv("MX_VIRTUAL_DEVICES");
    if (text == nullptr || *text == '\0') return;
    char* end = nullptr;
    const long devices = std::strtol(text, &end, 10);
    if (*end == '\0' && devices >= 0 && devices <= 64) {
      value.devices = static_cast<int>(devices);
    } else {
      log(LogLevel::warning, "[MX_VIRTUAL_DEVICES] expected a number from 0 to 64, got '", text, "'; using ",
          value.devices);
    }
  }
};

Options& options() {
  static Options* instance = new Options;
  return *instance;
}

}  // namespace

VirtualOptions virtual_options() {
  std::lock_guard lock(options().mutex);
  return options().value;
}

void set_virtual_options(const VirtualOptions& value) {
  MX_CHECK(value.devices >= 0 && value.devices <= 64, InvalidArgument,
           "[virtual_options] expected 0 to 64 devices, got ", value.devices);
  MX_CHECK(value.min_delay_us <= value.max_delay_us, InvalidArgument,
           "[virtual_options] expected min_delay_us <= max_delay_us, got ", value.min_delay_us, " and ",
           value.max_delay_us);
  MX_CHECK(value.copy_bytes_per_second > 0, InvalidArgument,
           "[virtual_options] expected a positive copy speed, got ", value.copy_bytes_per_second);
  std::lock_guard lock(options().mutex);
  options().value = value;
}

int virtual_device_count() { return virtual_options().devices; }

std::unique_ptr<Device> open_virtual_device(int id) {
  return std::make_unique<VirtualDevice>(id, virtual_options());
}

}  // namespace mx
