// FirstCause: finds which of several failing processes failed first.
//
// When a rank dies, the ranks that communicate with it fail within a millisecond, and the order in which
// their exits are seen says little. The rendezvous sees more: the connection of a dead process breaks before
// others can react, and a process without heartbeats does not exit at all. So the verdict waits a moment, and
// then names the process that the rendezvous lost first; without such an entry, the first exit.
//
// A process that notices by itself that another one failed tells the rendezvous so before its program learns
// of the error. So from the process that was found in this way, the verdict goes on to the one because of
// which it failed, and from there to the next. If that one has not ended, the verdict waits for its end. If
// it does not end, although others waited for it until their time limit, it is stuck, and the verdict names
// it.
//
// A state machine: events and times in, a verdict out. Thread-safety: one thread at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "comm/deadline.h"
#include "mxrun/job_rendezvous.h"
#include "mxrun/report.h"

namespace mx::launch {

class FirstCause {
 public:
  /// After the first failing exit, for the entries and exits that belong to it.
  static constexpr int64_t kExitMs = 100;
  /// After an entry of the rendezvous, for the exit that explains it.
  static constexpr int64_t kLostMs = 500;
  /// For the end of a process because of which others have failed. On a busy machine a process takes seconds
  /// to end. Normally this time is not used up, because the verdict follows the end of the process.
  static constexpr int64_t kCauseMs = 10000;
  /// For the end of a process that was late, because it may itself have waited for another one until a time
  /// limit that is a moment later.
  static constexpr int64_t kLateMs = 2000;
  /// If a process fails so long after it has said that another one was late, it fails for another reason.
  static constexpr int64_t kLateLinkMs = 10000;

  void exited(Failure failure);
  /// A process that the rendezvous has lost; in the order of its entries.
  void lost(const LostRank& lost);
  /// What a process says about its failure, present or to come. Ignored if it leads in a circle with what
  /// others have said before: then they failed first.
  void because(const FailsBecause& link,
               comm::Deadline::Clock::time_point now = comm::Deadline::Clock::now());
  /// A process has ended without failure. If the verdict waits for it, it waits no longer.
  void ended_well(Role role, int rank);
  /// When to call decide(); nothing if no failure is known.
  std::optional<comm::Deadline> decide_at() const { return decide_at_; }

  struct Verdict {
    Failure failure;
    bool runs = false;  ///< the process is lost or stuck, but has not ended
    bool late = false;  ///< it is stuck
    std::vector<Failure> also;
    /// The process because of which `failure` came, if it has ended without failure itself.
    std::optional<std::pair<Role, int>> ended_well;
  };
  /// Returns the first failure and forgets all. `process` looks up what is known of a process, null if
  /// nothing. Returns nothing if the lost processes have ended without failure, or to wait for the end of
  /// one; then decide_at() has a time again.
  std::optional<Verdict> decide(const std::function<const ProcessRecord*(Role, int)>& process);
  void clear();

 private:
  using Name = std::pair<Role, int>;
  using Lookup = std::function<const ProcessRecord*(Role, int)>;
  struct Cause {
    Name name;
    bool late = false;
    comm::Deadline::Clock::time_point said_at;
  };

  void decide_within(int64_t ms);
  bool concerns_wait(const Name& name) const;
  const Failure* exit_of(const Name& name) const;
  const LostRank* running_loss(const Name& name, const Lookup& process) const;
  std::optional<Name> first(const Lookup& process) const;
  void forget_old_link(const Name& name);
  Verdict running(const ProcessRecord& process, std::string reason) const;

  std::vector<Failure> exits_;
  std::vector<LostRank> lost_;
  std::map<Name, Cause> causes_;  // of processes that fail because of others
  std::optional<Name> awaited_;   // the process for whose end the verdict waits or has waited
  std::optional<comm::Deadline> decide_at_;
};

}  // namespace mx::launch
