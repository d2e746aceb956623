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

void FirstCause::because(const FailsBecause& link) {
  const Name process{link.role, link.rank}, cause{link.cause_role, link.cause_rank};
  for (Name at = cause;;) {
    if (at == process) return;
    const auto next = causes_.find(at);
    if (next == causes_.end()) break;
    at = next->second;
  }
  causes_.emplace(process, cause);
}

const Failure* FirstCause::exit_of(const Name& name) const {
  for (const Failure& failure : exits_)
    if (failure.role == name.first && failure.rank == name.second) return &failure;
  return nullptr;
}

/// Returns the entry of a process that is lost and has not ended, or null.
const LostRank* FirstCause::running_loss(const Name& name, const Lookup& process) const {
  const ProcessRecord* const record = process(name.first, name.second);
  if (record == nullptr || !record->running) return nullptr;
  for (const LostRank& lost : lost_)
    if (lost.role == name.first && lost.rank == name.second) return &lost;
  return nullptr;
}

/// The process that was lost first, otherwise the first that failed.
std::optional<FirstCause::Name> FirstCause::first(const Lookup& process) const {
  for (const LostRank& lost : lost_) {
    const Name name{lost.role, lost.rank};
    if (exit_of(name) != nullptr || running_loss(name, process) != nullptr) return name;
  }
  if (exits_.empty()) return std::nullopt;
  return Name{exits_[0].role, exits_[0].rank};
}

std::optional<FirstCause::Verdict> FirstCause::decide(const Lookup& process) {
  std::optional<Name> chosen = first(process);
  if (!chosen.has_value()) {
    clear();
    return std::nullopt;
  }
  // because() admits no circles, so this ends.
  bool ends_soon = false;  // the last process of the chain has not ended, but others say that it failed
  for (auto link = causes_.find(*chosen); link != causes_.end(); link = causes_.find(link->second)) {
    const Name& cause = link->second;
    const ProcessRecord* const record = process(cause.first, cause.second);
    const bool failed = exit_of(cause) != nullptr || running_loss(cause, process) != nullptr;
    if (failed) chosen = cause;
    ends_soon = !failed && record != nullptr && record->running;
  }
  if (ends_soon && !waited_) {
    waited_ = true;
    decide_at_ = comm::Deadline::after_ms(kCauseMs);
    return std::nullopt;
  }
  Verdict verdict;
  if (const Failure* const failure = exit_of(*chosen)) {
    verdict.failure = *failure;
  } else {
    const LostRank& lost = *running_loss(*chosen, process);
    const ProcessRecord& record = *process(lost.role, lost.rank);
    verdict.runs = true;
    verdict.failure.role = lost.role;
    verdict.failure.rank = lost.rank;
    verdict.failure.node = record.node;
    verdict.failure.pid = record.pid;
    verdict.failure.code = 128 + SIGKILL;
    verdict.failure.reason = lost.reason;
    if (lost.step >= 0) verdict.failure.reason += " (at step " + std::to_string(lost.step) + ")";
  }
  for (const Failure& failure : exits_)
    if (Name{failure.role, failure.rank} != *chosen) verdict.also.push_back(failure);
  clear();
  return verdict;
}

void FirstCause::clear() {
  exits_.clear();
  lost_.clear();
  causes_.clear();
  waited_ = false;
  decide_at_.reset();
}

}  // namespace mx::launch
