#include "mxrun/first_cause.h"

#include <signal.h>

#include <chrono>
#include <optional>
#include <string>
#include <utility>

namespace mx::launch {

void FirstCause::decide_within(int64_t ms) {
  const comm::Deadline at = comm::Deadline::after_ms(ms);
  decide_at_ = decide_at_.has_value() ? earlier(*decide_at_, at) : at;
}

// The ends of other survivors must not shorten the wait for the process because of which they fail.
bool FirstCause::concerns_wait(const Name& name) const { return !awaited_.has_value() || *awaited_ == name; }

void FirstCause::forget_old_link(const Name& name) {
  const auto link = causes_.find(name);
  if (link == causes_.end() || !link->second.late) return;
  if (comm::Deadline::Clock::now() - link->second.said_at > std::chrono::milliseconds(kLateLinkMs))
    causes_.erase(link);
}

void FirstCause::exited(Failure failure) {
  forget_old_link({failure.role, failure.rank});
  if (concerns_wait({failure.role, failure.rank})) decide_within(kExitMs);
  exits_.push_back(std::move(failure));
}

void FirstCause::lost(const LostRank& lost) {
  lost_.push_back(lost);
  if (concerns_wait({lost.role, lost.rank})) decide_within(kLostMs);
}

void FirstCause::because(const FailsBecause& link, comm::Deadline::Clock::time_point now) {
  const Name process{link.role, link.rank}, cause{link.cause_role, link.cause_rank};
  for (Name at = cause;;) {
    if (at == process) return;
    const auto next = causes_.find(at);
    if (next == causes_.end()) break;
    at = next->second.name;
  }
  causes_.emplace(process, Cause{cause, link.late, now});
}

void FirstCause::ended_well(Role role, int rank) {
  if (awaited_ == Name{role, rank}) decide_within(0);
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

/// The verdict on a process that has not ended.
FirstCause::Verdict FirstCause::running(const ProcessRecord& process, std::string reason) const {
  Verdict verdict;
  verdict.runs = true;
  verdict.failure.role = process.role;
  verdict.failure.rank = process.rank;
  verdict.failure.node = process.node;
  verdict.failure.pid = process.pid;
  verdict.failure.code = 128 + SIGKILL;
  verdict.failure.reason = std::move(reason);
  return verdict;
}

std::optional<FirstCause::Verdict> FirstCause::decide(const Lookup& process) {
  std::optional<Name> chosen = first(process);
  if (!chosen.has_value()) {
    clear();
    return std::nullopt;
  }
  Verdict verdict;
  // The last process of the chain, if it has not ended although others say that it failed.
  std::optional<Name> ends_soon;
  bool late = false;  // the process before it waited for it until a time limit
  // because() admits no circles, so this ends.
  for (auto link = causes_.find(*chosen); link != causes_.end(); link = causes_.find(link->second.name)) {
    const Name& cause = link->second.name;
    const ProcessRecord* const record = process(cause.first, cause.second);
    const bool failed = exit_of(cause) != nullptr || running_loss(cause, process) != nullptr;
    if (failed) chosen = cause;
    ends_soon.reset();
    late = link->second.late;
    verdict.ended_well.reset();
    if (failed || record == nullptr) continue;
    if (record->running)
      ends_soon = cause;
    else if (record->ended)
      verdict.ended_well = cause;
  }
  if (ends_soon.has_value() && ends_soon != awaited_) {
    awaited_ = ends_soon;
    decide_at_ = comm::Deadline::after_ms(late ? kLateMs : kCauseMs);
    return std::nullopt;
  }
  if (ends_soon.has_value() && late) {
    chosen = ends_soon;
    verdict = running(*process(chosen->first, chosen->second),
                      "does not go on: others waited for it until their time limit");
    verdict.late = true;
  } else if (const Failure* const failure = exit_of(*chosen)) {
    verdict.failure = *failure;
  } else {
    const LostRank& lost = *running_loss(*chosen, process);
    verdict = running(*process(lost.role, lost.rank), lost.reason);
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
  awaited_.reset();
  decide_at_.reset();
}

}  // namespace mx::launch
