#include "examples/support/devices.h"

#include <algorithm>
#include <charconv>

#include "engine/base/check.h"
#include "engine/device/registry.h"

namespace mx::examples {
namespace {

Context parse_device(const std::string& text) {
  const size_t colon = text.find(':');
  const std::string kind = text.substr(0, colon);
  int number = 0;
  bool good = kind == "cpu" || kind == "virt" || kind == "gpu";
  if (colon != std::string::npos) {
    const char *first = text.data() + colon + 1, *last = text.data() + text.size();
    const auto [end, error] = std::from_chars(first, last, number);
    good = good && error == std::errc() && end == last && number >= 0;
  }
  MX_CHECK(good, InvalidArgument, "[--device] expected cpu, virt:N or gpu:N, got \"", text, '"');
  const Context context = kind == "cpu" ? cpu(number) : kind == "virt" ? virt(number) : gpu(number);
  get_device(context);
  return context;
}

}  // namespace

std::vector<Context> parse_devices(const std::string& text) {
  std::vector<Context> devices;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    devices.push_back(parse_device(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return devices;
}

}  // namespace mx::examples
