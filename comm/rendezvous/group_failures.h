// GroupFailures: tells the other ranks that this one cannot join a group, because it has no descriptor or no
// secret, for example. Without it, they would wait for it until the time limit. Internal.
//
// The rank writes the entry "<epoch>/failed/<group>/<rank>" of the rendezvous, and the others watch these.
//
// It also compares the transports, because ranks with different ones would wait for each other, or take each
// other's connections for their own: rank 0 writes its own to "<epoch>/transport/<group>", and the others
// connect only after they have seen it.
//
// Thread-safety: any thread may call any function.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "comm/rendezvous.h"

namespace mx::comm {

class GroupFailures {
 public:
  /// Begins to watch the other ranks of the group.
  GroupFailures(std::shared_ptr<Rendezvous> rendezvous, int64_t epoch, const std::string& group, int rank);
  ~GroupFailures();
  GroupFailures(const GroupFailures&) = delete;
  GroupFailures& operator=(const GroupFailures&) = delete;

  /// Tells the others that this rank does not join, and why. Does nothing if the rendezvous is lost.
  void tell(const std::string& host, const std::string& reason) noexcept;
  /// Says which transport this rank uses for the group, and in what it was named: "MX_TRANSPORT". Once,
  /// before it connects.
  void compare(const std::string& host, const std::string& transport, const std::string& named_in);
  /// Waits until check() compares this rank with rank 0, but not longer than this. Returns whether it does.
  bool wait_for_first(int64_t timeout_ms);
  /// Throws PeerLost, which names the rank, its host and its reason, if another rank has told that it does
  /// not join. Throws InvalidArgument if rank 0 uses another transport.
  void check();
  /// Returns the rank that check() names in a PeerLost.
  std::optional<int> failed_rank();

 private:
  const std::shared_ptr<Rendezvous> rendezvous_;
  const std::string group_, prefix_, transport_key_;
  const int rank_;
  uint64_t watch_ = 0, transport_watch_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool compared_ = false;                  ///< with rank 0; guarded by mutex_
  int failed_rank_ = -1;                   ///< guarded by mutex_
  std::optional<std::string> failure_;     ///< of another rank; guarded by mutex_
  std::optional<std::string> difference_;  ///< from the transport of rank 0; guarded by mutex_
};

}  // namespace mx::comm
