#include "comm/net/resolve.h"

#include <sys/socket.h>

#include <string>

namespace mx::comm {

AddressList look_up(const Endpoint& endpoint, int socket_type, int flags, int& error) {
  if (endpoint.host == "*") {  // the system would take it for the loopback address
    error = EAI_NONAME;
    return {nullptr, nullptr};
  }
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = socket_type;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(endpoint.port);
  const char* const host = endpoint.host == "localhost" ? "127.0.0.1" : endpoint.host.c_str();
  error = getaddrinfo(host, port.c_str(), &hints, &found);
  if (error != 0) found = nullptr;
  return {found, [](addrinfo* list) {
            if (list != nullptr) freeaddrinfo(list);
          }};
}

}  // namespace mx::comm
