#include "comm/net/interface.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "comm/net/bytes.h"
#include "engine/base/check.h"
#include "engine/base/error.h"

namespace mx::comm {
namespace {

/// A numeric address as its 4 or 16 bytes.
std::optional<std::vector<uint8_t>> address_bytes(const std::string& text) {
  std::vector<uint8_t> bytes(16);
  if (inet_pton(AF_INET6, text.c_str(), bytes.data()) == 1) {
    // An IPv4 address in IPv6 form counts as IPv4, so that ::ffff:0.0.0.0 is no way around the checks.
    static constexpr uint8_t kMapped[12] = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
    if (std::memcmp(bytes.data(), kMapped, sizeof kMapped) == 0)
      bytes.erase(bytes.begin(), bytes.begin() + 12);
    return bytes;
  }
  bytes.resize(4);
  if (inet_pton(AF_INET, text.c_str(), bytes.data()) == 1) return bytes;
  return std::nullopt;
}

struct InterfaceAddress {
  std::string name, address;
  bool ipv6 = false;
};

std::vector<InterfaceAddress> interface_addresses() {
  ifaddrs* list = nullptr;
  MX_CHECK(getifaddrs(&list) == 0, CommunicationError, "[interface] expected the list of interfaces, got ",
           std::strerror(errno));
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  std::vector<InterfaceAddress> out;
  for (const ifaddrs* entry = list; entry; entry = entry->ifa_next) {
    if (!entry->ifa_addr || !(entry->ifa_flags & IFF_UP)) continue;
    char text[INET6_ADDRSTRLEN] = {};
    if (entry->ifa_addr->sa_family == AF_INET) {
      const auto* in = reinterpret_cast<const sockaddr_in*>(entry->ifa_addr);
      if (inet_ntop(AF_INET, &in->sin_addr, text, sizeof text)) out.push_back({entry->ifa_name, text, false});
    } else if (entry->ifa_addr->sa_family == AF_INET6) {
      const auto* in = reinterpret_cast<const sockaddr_in6*>(entry->ifa_addr);
      // A link-local address is only valid together with an interface, which "host:port" does not carry.
      if (IN6_IS_ADDR_LINKLOCAL(&in->sin6_addr)) continue;
      if (inet_ntop(AF_INET6, &in->sin6_addr, text, sizeof text))
        out.push_back({entry->ifa_name, text, true});
    }
  }
  return out;
}

}  // namespace

bool is_loopback(const std::string& address) {
  const auto bytes = address_bytes(address);
  if (!bytes) return false;
  if (bytes->size() == 4) return (*bytes)[0] == 127;
  std::vector<uint8_t> one(16);
  one[15] = 1;
  return *bytes == one;
}

bool is_wildcard(const std::string& address) {
  const auto bytes = address_bytes(address);
  return bytes && *bytes == std::vector<uint8_t>(bytes->size());
}

std::string address_of_interface(const std::string& name) {
  if (name.empty()) return "127.0.0.1";
  MX_CHECK(!is_wildcard(name) && name != "*", InvalidArgument,
           "[interface] expected one network interface, got the wildcard address ", in_quotes(name),
           ", which would admit every network");
  if (const auto wanted = address_bytes(name)) {
    if (is_loopback(name)) return name;
    for (const InterfaceAddress& a : interface_addresses())
      if (address_bytes(a.address) == wanted) return name;
    throw InvalidArgument(
        mx::detail::concat("[interface] expected an address of this host, got ", in_quotes(name)));
  }
  std::optional<std::string> ipv6;
  std::set<std::string> names;
  for (const InterfaceAddress& a : interface_addresses()) {
    names.insert(a.name);
    if (a.name != name) continue;
    if (!a.ipv6) return a.address;
    if (!ipv6) ipv6 = a.address;
  }
  if (ipv6) return *ipv6;
  std::string there;
  for (const std::string& n : names) there += (there.empty() ? "" : ", ") + n;
  throw InvalidArgument(mx::detail::concat("[interface] expected the name of an interface with an address (",
                                           there, "), got ", in_quotes(name)));
}

Endpoint parse_endpoint(const std::string& text, bool any_port) {
  const auto require = [&](bool good, const char* what) {
    MX_CHECK(good, InvalidArgument, "[address] expected host:port or [IPv6]:port, got ", in_quotes(text),
             ": ", what);
  };
  Endpoint endpoint;
  size_t colon;
  if (!text.empty() && text[0] == '[') {
    const size_t close = text.find(']');
    require(close != std::string::npos, "a bracket is missing");
    endpoint.host = text.substr(1, close - 1);
    const auto bytes = address_bytes(endpoint.host);
    require(bytes && endpoint.host.find(':') != std::string::npos, "no IPv6 address within the brackets");
    colon = close + 1;
    require(colon < text.size() && text[colon] == ':', "no port behind the brackets");
  } else {
    colon = text.rfind(':');
    require(colon != std::string::npos, "the port is missing");
    endpoint.host = text.substr(0, colon);
    require(!endpoint.host.empty(), "the host is missing");
    require(endpoint.host.find(':') == std::string::npos, "an IPv6 address needs brackets");
    for (const char c : endpoint.host)
      require(static_cast<unsigned char>(c) > 0x20 && c != 0x7f && c != '/',
              "the host has a wrong character");
  }
  const char* begin = text.data() + colon + 1;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(begin, end, endpoint.port);
  require(begin != end && error == std::errc() && stop == end, "the port is not a number of 0 to 65535");
  require(any_port || endpoint.port != 0, "the port is 0");
  return endpoint;
}

std::string to_string(const Endpoint& endpoint) {
  const bool ipv6 = endpoint.host.find(':') != std::string::npos;
  return (ipv6 ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

}  // namespace mx::comm
