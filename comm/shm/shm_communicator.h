// The communicator of ranks on one host that share memory: type "shm".
//
//   auto group = make_shm_communicator(rank, size, rendezvous, epoch_key(0, "world"), {.timeout_ms = 60000});
//
// Rank 0 makes two anonymous files (memfd) and passes their descriptors to the others over an AF_UNIX socket
// without a name in the file system, whose address and a secret word it publishes in the rendezvous. So
// nothing remains when the processes end, even if they are killed. Both sides of a connection must run as the
// same user, and the other rank must know the secret word.
//
// Buffers from allocate() are combined straight out of the memory of the other ranks. Others are copied
// through buffers of the cache's size. If the kernel refuses memory, allocate() returns plain memory on all
// ranks and logs a warning once.
//
// Failures. A process that ends is noticed within 0.1 s by the ranks that wait for it: PeerLost names its
// rank, host and process. A rank that destroys its communicator, or whose call failed, is reported in the
// same way. So is one whose allocate() failed, except for lack of memory. Processes in different PID
// namespaces cannot watch each other: they learn of an end through the rendezvous, or at the time limit.
// After abort(), the others learn of it when the communicator is destroyed. A process that is stopped shows
// as Timeout. After a call has failed, the contents of its buffers in the arena are undefined, because a slow
// rank may still be working on them.
//
// Thread-safety: as of Communicator.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "comm/communicator.h"
#include "comm/rendezvous.h"

namespace mx::comm {

struct ShmOptions {
  int64_t timeout_ms = 60000;       ///< default time limit of calls
  int64_t join_timeout_ms = 60000;  ///< how long the ranks wait for each other at the start
  std::string host = {};            ///< name of this host for errors; empty: that of this machine
  size_t arena_window_bytes =
      0;  ///< what each rank can allocate; 0: its share of the host's memory. Rank 0 decides
  /// Called with the rank that is lost before a call throws PeerLost, on the thread of the call. May be
  /// empty.
  std::function<void(int rank)> noticed_loss = {};
  /// The same before a call throws Timeout, with a rank that it waited for.
  std::function<void(int rank)> noticed_timeout = {};
  /// Called instead of noticed_loss if the rank has left the group without an error, perhaps because another
  /// one is lost. Returns the text that explains it, or an empty one. May be empty.
  std::function<std::string(int rank)> explain_loss = {};
  /// Called now and then while the ranks wait for each other at the start. What it throws ends the wait. May
  /// be empty.
  std::function<void()> check = {};
  uint64_t delay_seed = 0;  ///< for tests: with another number, pauses come before the steps of calls
};

/// Makes the communicator of one rank. Collective: returns when all ranks have come. `key` is a prefix of
/// rendezvous entries that no other group uses. Throws Timeout naming the ranks that did not come,
/// AuthenticationError, and CommunicationError if the ranks do not share memory or the kernel refuses it.
std::shared_ptr<Communicator> make_shm_communicator(int rank, int size, Rendezvous& rendezvous,
                                                    const std::string& key, const ShmOptions& options = {});

/// The memory of a group that is made before its ranks: for ranks that are threads of this process, or
/// children that it forks. Each rank calls join() once.
class ShmGroup {
 public:
  explicit ShmGroup(int size, const ShmOptions& options = {});
  ~ShmGroup();
  ShmGroup(const ShmGroup&) = delete;
  ShmGroup& operator=(const ShmGroup&) = delete;

  /// Makes the communicator of a rank. Collective, so call it from as many threads or processes as there are
  /// ranks.
  std::shared_ptr<Communicator> join(int rank) const;

 private:
  struct Memory;
  const std::unique_ptr<Memory> memory_;
};

}  // namespace mx::comm
