#include "comm/start.h"

#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/types.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "comm/net/resolve.h"
#include "comm/net/secret.h"
#include "comm/net/socket.h"
#include "engine/base/check.h"

namespace mx::comm {

namespace {

/// Tries until the deadline; returns null after it.
AddressList look_up_until(const Endpoint& endpoint, Deadline deadline, std::string& problem) {
  for (;;) {
    int error = 0;
    if (AddressList found = look_up(endpoint, SOCK_DGRAM, 0, error)) return found;
    problem = ::gai_strerror(error);
    if (deadline.passed()) return {nullptr, nullptr};
    ::poll(nullptr, 0, 100);
  }
}

std::string numeric(const sockaddr* address, socklen_t size) {
  char text[NI_MAXHOST] = {};
  const int error = ::getnameinfo(address, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
  MX_CHECK(error == 0, CommunicationError, "[place] expected an address, got ", ::gai_strerror(error));
  return text;
}

AddressList must_look_up(const Endpoint& endpoint, Deadline deadline) {
  std::string problem;
  AddressList found = look_up_until(endpoint, deadline, problem);
  MX_CHECK(found, InvalidArgument, "[place] expected the address of host '", endpoint.host, "', got ",
           problem, "; MX_RDZV=host:port names another one");
  return found;
}

}  // namespace

std::string secret_of_job() {
  const std::string& handed = job_secret();
  if (!handed.empty()) return handed;
  const char* const path = std::getenv("MX_SECRET_FILE");
  if (path == nullptr || *path == '\0') return "";
  return read_secret_file(path);
}

std::string resolve(const std::string& host, Deadline deadline) {
  const AddressList found = must_look_up({host, 1}, deadline);
  return numeric(found->ai_addr, found->ai_addrlen);
}

std::string address_towards(const Endpoint& remote, Deadline deadline) {
  const AddressList found = must_look_up(remote, deadline);
  const Fd socket(::socket(found->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage own{};
  socklen_t size = sizeof own;
  // connect() of a datagram socket only chooses the route.
  MX_CHECK(socket && ::connect(socket.get(), found->ai_addr, found->ai_addrlen) == 0 &&
               ::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&own), &size) == 0,
           CommunicationError, "[place] expected a route to ", to_string(remote), ", got ",
           std::strerror(errno));
  return numeric(reinterpret_cast<const sockaddr*>(&own), size);
}

}  // namespace mx::comm
