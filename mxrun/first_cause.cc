#include "mxrun/first_cause.h"

#include <signal.h>

#include <optional>
#include <string>
#include <utility>

namespace mx::launch {

void FirstCause::decide_within(int64_t ms) {
  const comm::Deadline at = comm::Deadline::after_ms(ms);
  decide_at_ = decide_at_.has_value() ? earlier(*decide_at_, at) : at;
}

void FirstCause::exited(Failure failure) {
  exits_.push_back(std::move(failure));
  decide_within(kExitMs);
}

void FirstCause::lost(const LostRank& lost) {
  lost_.push_back(lost);
  decide_within(kLostMs);
}

std::optional<FirstCause::Verdict> FirstCause::decide(
    const std::function<const ProcessRecord*(Role, int)>& process) {
  std::optional<Verdict> verdict;
  size_t chosen = exits_.size();
  for (const LostRank& lost : lost_) {
    for (size_t i = 0; i < exits_.size() && chosen == exits_.size(); ++i) {
      if (exits_[i].role == lost.role && exits_[i].rank == lost.rank) chosen = i;
    }
    if (chosen < exits_.size()) break;
    const ProcessRecord* const record = process(lost.role, lost.rank);
    if (record == nullptr || !record->running) continue;
    verdict.emplace();
    verdict->runs = true;
    verdict->failure.role = lost.role;
    verdict->failure.rank = lost.rank;
    verdict->failure.node = record->node;
    verdict->failure.pid = record->pid;
    verdict->failure.code = 128 + SIGKILL;
    verdict->failure.reason = lost.reason;
    if (lost.step >= 0) verdict->failure.reason += " (at step " + std::to_string(lost.step) + ")";
    break;
  }
  if (!verdict.has_value() && !exits_.empty()) {
    if (chosen == exits_.size()) chosen = 0;
    verdict.emplace();
    verdict->failure = exits_[chosen];
  }
  if (verdict.has_value()) {
    for (size_t i = 0; i < exits_.size(); ++i) {
      if (verdict->runs || i != chosen) verdict->also.push_back(exits_[i]);
    }
  }
  clear();
  return verdict;
}

void FirstCause::clear() {
  exits_.clear();
  lost_.clear();
  decide_at_.reset();
}

}  // namespace mx::launch
