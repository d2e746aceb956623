#include "tests/fuzz/text_entries.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "engine/base/error.h"
#include "mxrun/hosts/hosts.h"
#include "mxrun/hosts/node_list.h"

namespace mx::fuzz {
namespace {

void require_of_text(bool condition, const char* what) {
  if (condition) return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

/// Calls `parse` with a copy of exactly the text's size, so that AddressSanitizer detects a read past it.
template <class F>
bool accepted_text(std::span<const std::byte> bytes, F&& parse) {
  const std::vector<char> copy(reinterpret_cast<const char*>(bytes.data()),
                               reinterpret_cast<const char*>(bytes.data()) + bytes.size());
  try {
    parse(std::string_view(copy.data(), copy.size()));
    return true;
  } catch (const Error& e) {
    const std::string_view message = e.what();
    require_of_text(message.starts_with("[mxrun] "), "a message begins with the program's name");
    for (char c : message) require_of_text(c >= 0x20 && c < 0x7f, "a message is one printable line");
    require_of_text(message.size() < 1000, "a message is short");
    return false;
  }
}

void require_good_hosts(const std::vector<launch::Host>& hosts) {
  require_of_text(!hosts.empty() && hosts.size() <= launch::kMostHosts, "1 to kMostHosts hosts");
  for (const launch::Host& host : hosts) {
    require_of_text(host.slots >= 1 && host.slots <= launch::kMostSlots, "1 to kMostSlots slots");
    launch::check_host_name(host.name, "[mxrun] ");
  }
  require_of_text(launch::parse_host_list(launch::to_string(hosts)) == hosts, "a list reads what it prints");
}

}  // namespace

bool hostfile(std::span<const std::byte> text) {
  return accepted_text(
      text, [](std::string_view content) { require_good_hosts(launch::parse_hostfile(content, "fuzz")); });
}

bool host_list(std::span<const std::byte> text) {
  return accepted_text(
      text, [](std::string_view content) { require_good_hosts(launch::parse_host_list(content)); });
}

bool node_list(std::span<const std::byte> text) {
  return accepted_text(text, [](std::string_view content) {
    const std::vector<std::string> nodes = launch::parse_node_list(content);
    require_of_text(!nodes.empty() && nodes.size() <= launch::kMostHosts, "1 to kMostHosts nodes");
    std::string joined;
    for (const std::string& node : nodes) {
      launch::check_host_name(node, "[mxrun] ");
      joined += (joined.empty() ? "" : ",") + node;
    }
    require_of_text(launch::parse_node_list(joined) == nodes, "a list of names is read as it is");
  });
}

}  // namespace mx::fuzz
