// Addresses of host names, by the resolver of the system.
//
// Thread-safety: any thread.
#pragma once

#include <netdb.h>

#include <memory>

#include "comm/net/interface.h"

namespace mx::comm {

using AddressList = std::unique_ptr<addrinfo, void (*)(addrinfo*)>;

/// Looks up one time the addresses of an endpoint for sockets of `socket_type` (SOCK_STREAM, SOCK_DGRAM);
/// `flags` as for getaddrinfo(). Returns null and sets `error`, which gai_strerror() describes, if the lookup
/// fails. "localhost" is always 127.0.0.1 (RFC 6761, section 6.3), because minimal containers have no
/// /etc/hosts, and a query for the name would go to a name server.
AddressList look_up(const Endpoint& endpoint, int socket_type, int flags, int& error);

}  // namespace mx::comm
