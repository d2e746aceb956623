// Connects the ranks of a group: through shared memory within a machine, over TCP between machines.
//
// All pairs of ranks are connected over TCP first (comm/tcp/connect.h); each rank learns the machines of all
// others on the way. Then the ranks of each machine share memory (comm/shm/rings.h), and their connections
// only tell when one of them ends. If the memory cannot be shared, all ranks of that machine go on over TCP
// with each other, and the first of them logs a warning.
//
// Thread-safety: any thread.
#pragma once

#include <memory>

#include "comm/deadline.h"
#include "comm/rendezvous.h"
#include "comm/tcp/connect.h"
#include "comm/tcp/tcp_transport.h"

namespace mx::comm {

/// Connects the group. A collective call. Throws as connect_tcp(), and Timeout, which names the ranks of this
/// machine that did not come for its memory.
std::unique_ptr<TcpTransport> connect_hosts(const TcpGroup& group, Rendezvous& rendezvous, Deadline deadline,
                                            TcpOptions options = {});

}  // namespace mx::comm
