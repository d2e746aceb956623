// GroupFailures: tells the other ranks that this one cannot join a group, because it has no descriptor or no
// secret, for example. Without it, they would wait for it until the time limit. Internal.
//
// The rank writes the entry "<epoch>/failed/<group>/<rank>" of the rendezvous, and the others watch these.
//
// Thread-safety: any thread may call any function.
#pragma once

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
  /// Throws PeerLost, which names the rank, its host and its reason, if another rank has told that it does
  /// not join.
  void check();

 private:
  const std::shared_ptr<Rendezvous> rendezvous_;
  const std::string group_, prefix_;
  const int rank_;
  uint64_t watch_ = 0;
  std::mutex mutex_;
  std::optional<std::string> failure_;  ///< of another rank; guarded by mutex_
};

}  // namespace mx::comm
