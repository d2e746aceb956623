// Addresses: those of network interfaces, and the text form "host:port".
//
// The processes of a job listen at the address of one interface, by default loopback, and never at a wildcard
// address, which would admit every network of the machine.
//
// Thread-safety: any thread.
#pragma once

#include <cstdint>
#include <string>

namespace mx::comm {

struct Endpoint {
  std::string host;  ///< a name or an address; IPv6 without brackets
  uint16_t port = 0;
  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

/// Parses "host:port" or "[IPv6]:port". Throws InvalidArgument if it is malformed; port 0 only if `any_port`.
Endpoint parse_endpoint(const std::string& text, bool any_port = false);
/// "host:port", with brackets around an IPv6 address.
std::string to_string(const Endpoint& endpoint);

/// Returns the address to listen at: that of the interface with this name (IPv4 if it has one), of "" the
/// loopback address 127.0.0.1. A numeric address of one of this host's interfaces is returned unchanged.
/// Throws InvalidArgument for wildcard addresses and for names of no interface; the message lists those that
/// there are.
std::string address_of_interface(const std::string& name);

/// Returns whether a numeric address is that of the loopback interface.
bool is_loopback(const std::string& address);
/// Returns whether a numeric address stands for all interfaces.
bool is_wildcard(const std::string& address);

}  // namespace mx::comm
