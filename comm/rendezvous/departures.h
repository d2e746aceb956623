// Departures: finds workers that ended as they should before they joined a group. Without it, the other ranks
// would wait for them until the time limit. Internal.
//
// Two entries of the rendezvous serve this. "<epoch>/ended/worker<rank>" says that a worker has ended: the
// rendezvous writes it when a worker says farewell, and mxrun when a process has exited with status 0.
// "<epoch>/joins/<group>/<rank>" says whether a worker joined a group: the worker itself writes "yes" before
// it connects; a rank that knows that the worker has ended writes "no". A key is written once, so the first
// one decides, and all ranks come to the same result.
//
// Thread-safety: any thread may call look().
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "comm/rendezvous.h"

namespace mx::comm {

/// "<epoch>/ended/<role><rank>": the key of the entry of a process that ended as it should. Its value is the
/// name of the host.
std::string ended_key(int64_t epoch, const std::string& role, int rank);

struct EndedWorker {
  int rank = 0;
  std::string host;
};

class Departures {
 public:
  /// Writes that worker `rank` joins the group, and begins to watch the ends of the others.
  Departures(std::shared_ptr<Rendezvous> rendezvous, int64_t epoch, const std::string& group, int rank);
  ~Departures();
  Departures(const Departures&) = delete;
  Departures& operator=(const Departures&) = delete;

  /// Returns a worker that has ended without having joined the group, or nothing. Asks the rendezvous only if
  /// a worker has ended since the last call.
  std::optional<EndedWorker> look();

 private:
  std::string joins_key(int rank) const;

  const std::shared_ptr<Rendezvous> rendezvous_;
  const std::string joins_;
  uint64_t watch_ = 0;
  std::mutex mutex_;
  std::vector<EndedWorker> ended_;       ///< not looked at yet; guarded by mutex_
  std::optional<EndedWorker> departed_;  ///< the result of look(), once there is one; guarded by mutex_
};

}  // namespace mx::comm
