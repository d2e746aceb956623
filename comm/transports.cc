#include "comm/transports.h"

#include "engine/base/check.h"

namespace mx::comm {

namespace {

struct NamedTransport {
  const char* name;
  GroupMaker make;
};

constexpr NamedTransport kTransports[] = {
    {"tcp", make_tcp_group},
};

}  // namespace

GroupMaker find_transport(const std::string& name) {
  std::string known = "auto";
  for (const NamedTransport& transport : kTransports) {
    if (name == transport.name) return transport.make;
    known += std::string(", ") + transport.name;
  }
  throw InvalidArgument(mx::detail::concat("[world] expected a transport among ", known, ", got '", name,
                                           "' (from MX_TRANSPORT or new_group())"));
}

bool has_transport(const std::string& name) {
  for (const NamedTransport& transport : kTransports)
    if (name == transport.name) return true;
  return false;
}

std::vector<std::string> transport_names() {
  std::vector<std::string> names;
  for (const NamedTransport& transport : kTransports) names.emplace_back(transport.name);
  return names;
}

}  // namespace mx::comm
