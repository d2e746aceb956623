// What a process needs before it connects to others of its job: the secret, and addresses. Internal.
//
// Thread-safety: any thread.
#pragma once

#include <string>

#include "comm/deadline.h"
#include "comm/net/interface.h"

namespace mx::comm {

/// Returns the secret of the job: from MX_SECRET_FD, otherwise from the file MX_SECRET_FILE, otherwise "".
std::string secret_of_job();

/// Returns the first address of a host name, as a number. Tries again until the deadline: the name of a pod
/// appears a little after it. Throws InvalidArgument.
std::string resolve(const std::string& host, Deadline deadline);

/// Returns the address of this host from which it reaches a remote. No packet is sent.
std::string address_towards(const Endpoint& remote, Deadline deadline);

}  // namespace mx::comm
