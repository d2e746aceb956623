// ThreadTransport: messages between ranks that are threads of one process.
//
// A message is copied once, from the buffer of the sender into that of the receiver, by whichever of them
// comes second. Messages of up to kEagerBytes do not wait for the receiver: the channel keeps a copy, in
// memory that it uses again.
//
// A rank that waits polls for a few microseconds, and then sleeps on a futex.
//
// Thread-safety: as Transport. Transports of different ranks are used by different threads.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "comm/transport.h"

namespace mx::comm {

struct ThreadTransportOptions {
  /// The name of each rank's host; empty: that of this machine. Tests of several hosts set it.
  std::vector<std::string> hosts;
  /// If not 0, ranks pause for random times of up to 200 microseconds before they post a message.
  uint64_t delay_seed = 0;
};

/// Longest message that is copied at once.
inline constexpr size_t kEagerBytes = 8192;

/// Connects `ranks` transports with each other; element r is rank r. If one is destroyed, the others get
/// PeerLost as soon as they wait for it.
std::vector<std::unique_ptr<Transport>> make_thread_transports(int ranks,
                                                               const ThreadTransportOptions& options = {});

}  // namespace mx::comm
