#include "comm/shm/peers.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "engine/base/check.h"
#include "engine/base/cpus.h"

namespace mx::comm::shm {
namespace {

using Clock = Deadline::Clock;
constexpr auto kPollTime = std::chrono::microseconds(30);
constexpr auto kYieldTime = std::chrono::microseconds(100);
constexpr int64_t kNapMs = 50;
// In place of a lost rank: the group of this rank was aborted, perhaps because its job knows of a loss.
constexpr int32_t kAborted = -2;

#ifndef SYS_pidfd_open
#  define SYS_pidfd_open 434
#endif

// Unlike the futexes of engine/base/futex.h, these are shared by processes.
void shared_futex_wait(std::atomic<uint32_t>& word, uint32_t expected, int64_t timeout_ms) {
  const timespec limit{timeout_ms / 1000, timeout_ms % 1000 * 1'000'000};
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAIT, expected, &limit, nullptr, 0);
}

void shared_futex_wake(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, reinterpret_cast<uint32_t*>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

struct ProcessStatus {
  bool known = false;   // the other members are right
  char state = 0;       // 0: there is no such process
  int64_t started = 0;  // ticks since the start of the host; 0: unknown
};

// Only these errors say that a process does not exist. Others, such as a lack of descriptors, say nothing.
bool means_gone(int error) { return error == ENOENT || error == ESRCH; }

// Reads fields 3 and 22 of /proc/<process>/stat. The second field is a name in parentheses, which may itself
// contain any character.
ProcessStatus process_status(int64_t process) {
  char path[40];
  std::snprintf(path, sizeof path, "/proc/%lld/stat", static_cast<long long>(process));
  ProcessStatus status;
  const Fd file(open(path, O_RDONLY | O_CLOEXEC));
  char text[1024];
  const ssize_t length = file ? read(file.get(), text, sizeof(text) - 1) : -1;
  if (length < 0) {
    status.known = means_gone(errno);
    return status;
  }
  text[length] = 0;
  const char* at = std::strrchr(text, ')');
  if (at == nullptr || at[1] != ' ') return status;
  at += 2;
  status.state = *at;
  for (int field = 3; field < 22 && at != nullptr; ++field) {
    at = std::strchr(at, ' ');
    if (at != nullptr) ++at;
  }
  status.known = at != nullptr;
  if (at != nullptr) status.started = std::strtoll(at, nullptr, 10);
  return status;
}

// The inode identifies the namespace in which the process ids of this process are valid; 0: unknown.
uint64_t own_pid_namespace() {
  struct stat about {};
  return stat("/proc/self/ns/pid", &about) == 0 ? static_cast<uint64_t>(about.st_ino) : 0;
}

void copy_text(char* to, size_t room, const std::string& from) {
  const size_t length = std::min(room - 1, from.size());
  std::memcpy(to, from.data(), length);
  to[length] = 0;
}

// Texts in the region come from another process, so they may lack the final 0.
std::string text_of(const char* from, size_t room) { return {from, strnlen(from, room)}; }

}  // namespace

Peers::Peers(Region& region, int rank, Notices notices, LongWait long_wait)
    : region_(region),
      rank_(rank),
      notices_(std::move(notices)),
      long_wait_(std::move(long_wait)),
      processes_(static_cast<size_t>(region.size())) {}

Peers::~Peers() { leave_by_itself(); }

void Peers::leave_by_itself() noexcept {
  if (!interrupted()) {
    leave("", -1);
    return;
  }
  try {
    check_interrupt();
  } catch (...) {
    leave(current_exception_text(), kAborted);
  }
}

void Peers::join(const std::string& host, Deadline deadline) {
  Control& own = region_.control(rank_);
  MX_CHECK(own.joined.load() == 0, ProtocolError, "[shm] expected one process as rank ", rank_,
           ", got a second one");
  own.process = getpid();
  own.started = process_status(own.process).started;
  own.pid_namespace = own_pid_namespace();
  copy_text(own.host, sizeof(own.host), host);
  sched_getaffinity(0, sizeof(own.cpus), &own.cpus);
  own.state.store(State::present);
  publish(own.joined, 1);
  wait_all(Counter::joined, 1, {"shm", nullptr, deadline, 0});

  cpu_set_t cpus;
  CPU_ZERO(&cpus);
  for (int peer = 0; peer < region_.size(); ++peer) {
    const Control& other = region_.control(peer);
    CPU_OR(&cpus, &cpus, &other.cpus);
    if (other.process == own.process || !shares_process_ids(peer)) continue;
    Fd process(static_cast<int>(syscall(SYS_pidfd_open, static_cast<pid_t>(other.process), 0)));
    // The number could already belong to another process, which is then younger.
    const ProcessStatus status = process_status(other.process);
    if (!status.known || other.started == 0 || status.started == other.started)
      processes_[static_cast<size_t>(peer)] = std::move(process);
  }
  crowded_ = region_.size() > CPU_COUNT(&cpus);
}

std::atomic<uint64_t>& Peers::value(int peer, Counter counter, uint64_t target) const {
  Control& control = region_.control(peer);
  switch (counter) {
    case Counter::joined:
      return control.joined;
    case Counter::entry:
      return control.entries[target & 1].number;
    case Counter::phase:
      return control.phase;
    case Counter::allocation:
      return control.allocations[target & 1].number;
    case Counter::sending:
      return region_.channel(peer, rank_).sending.number;
    case Counter::receiving:
      return region_.channel(rank_, peer).receiving.number;
    case Counter::sent:
      return region_.channel(peer, rank_).sent;
    case Counter::taken:
      break;
  }
  return region_.channel(rank_, peer).taken;
}

void Peers::wait_long(int peer, Counter counter, uint64_t target, const Context& context) {
  const std::atomic<uint64_t>& word = value(peer, counter, target);
  const auto reached = [&] { return word.load(std::memory_order_acquire) >= target; };
  const Clock::time_point start = Clock::now();
  if (!crowded_) {
    do {
      for (int i = 0; i < 32; ++i) {
        if (reached()) return;
        cpu_relax();
      }
      check_interrupt();
    } while (Clock::now() - start < kPollTime);
  }
  do {
    sched_yield();
    if (reached()) return;
    check_interrupt();
  } while (Clock::now() - start < kYieldTime);
  for (;;) {
    if (notices_.pause) notices_.pause();
    if (long_wait_) long_wait_(peer, counter, context);
    check_lost(peer, counter, target, context);
    if (reached()) return;
    check_interrupt();
    if (counter == Counter::joined && notices_.check) notices_.check();
    if (context.deadline.passed()) throw_timeout(peer, counter, target, context);
    sleep(peer, counter, target, context);
    if (reached()) return;
  }
}

void Peers::sleep(int peer, Counter counter, uint64_t target, const Context& context) {
  Bed& bed = region_.control(rank_).beds[context.bed];
  const uint32_t bell = bed.bell.load(std::memory_order_seq_cst);
  bed.waits_for.store(peer, std::memory_order_seq_cst);
  region_.sleepers().fetch_add(1, std::memory_order_seq_cst);
  if (value(peer, counter, target).load(std::memory_order_seq_cst) < target &&
      !interrupted_.load(std::memory_order_seq_cst) &&
      region_.control(peer).state.load(std::memory_order_seq_cst) <= State::present)
    shared_futex_wait(bed.bell, bell, std::clamp<int64_t>(context.deadline.left_ms(), 1, kNapMs));
  region_.sleepers().fetch_sub(1, std::memory_order_seq_cst);
  bed.waits_for.store(-1, std::memory_order_relaxed);
}

void Peers::wake() {
  for (int peer = 0; peer < region_.size(); ++peer) {
    for (Bed& bed : region_.control(peer).beds) {
      if (bed.waits_for.load(std::memory_order_seq_cst) != rank_) continue;
      bed.bell.fetch_add(1, std::memory_order_seq_cst);
      shared_futex_wake(bed.bell);
    }
  }
}

void Peers::check_interrupt() {
  if (!interrupted_.load(std::memory_order_acquire)) return;
  std::lock_guard lock(mutex_);
  std::rethrow_exception(reason_);
}

void Peers::interrupt(std::exception_ptr reason) {
  {
    std::lock_guard lock(mutex_);
    if (reason_) return;
    reason_ = std::move(reason);
  }
  interrupted_.store(true, std::memory_order_seq_cst);
  for (Bed& bed : region_.control(rank_).beds) {
    bed.bell.fetch_add(1, std::memory_order_seq_cst);
    shared_futex_wake(bed.bell);
  }
}

void Peers::leave(const std::string& reason, int lost) noexcept {
  if (!process_.is_here() || left_.exchange(true)) return;
  Control& own = region_.control(rank_);
  if (own.state.load() != State::present) return;  // it never joined
  own.lost_rank = lost;
  copy_text(own.reason, sizeof(own.reason), reason);
  const bool by_itself = reason.empty() || lost == kAborted;
  own.state.store(by_itself ? State::left : State::failed, std::memory_order_seq_cst);
  if (region_.sleepers().load(std::memory_order_seq_cst) != 0) wake();
}

bool Peers::shares_process_ids(int peer) const {
  return region_.control(peer).pid_namespace == region_.control(rank_).pid_namespace;
}

bool Peers::ended(int peer) const {
  const Control& control = region_.control(peer);
  if (control.process == 0 || control.process == getpid() || !shares_process_ids(peer)) return false;
  if (const Fd& process = processes_[static_cast<size_t>(peer)]) {
    pollfd readable{process.get(), POLLIN, 0};
    return poll(&readable, 1, 0) == 1;
  }
  // Without its own start time, this process cannot read /proc, so a missing file means nothing.
  if (control.started == 0 || region_.control(rank_).started == 0) return false;
  const ProcessStatus status = process_status(control.process);
  if (!status.known) return false;
  return status.state == 0 || status.state == 'Z' || status.state == 'X' || status.started != control.started;
}

void Peers::check_lost(int peer, Counter counter, uint64_t target, const Context& context) {
  const bool pair = counter >= Counter::sending;
  // Only for messages: this function is called again and again in a long wait, which allocates nothing.
  const auto during = [&] {
    return " during " + (context.request != nullptr ? describe(*context.request) : std::string(context.op));
  };
  const auto lost = [&](int rank, const std::string& how) {
    lost_rank_.store(rank);
    if (notices_.loss) notices_.loss(rank);
    throw PeerLost(mx::detail::concat("[", context.op, "] ", name(rank), " ", how, during()));
  };
  const auto left = [&](int rank, const std::string& how) {
    // A rank that has left by itself, too early, needs no explanation.
    const Control& control = region_.control(rank);
    const bool aborted = control.lost_rank == kAborted;
    const std::string cause = aborted && notices_.explain ? notices_.explain(rank) : std::string();
    check_interrupt();  // while the cause was looked for, somebody may have found it
    if (!cause.empty()) throw PeerLost(mx::detail::concat("[", context.op, "] ", cause, during()));
    if (!aborted) lost(rank, how);
    lost(rank,
         mx::detail::concat(how, " because of: ", text_of(control.reason, sizeof(control.reason)), ","));
  };
  // A rank may have reached the target before it ended, so the counter is read after the state.
  const auto missing = [&](int rank) {
    return value(rank, counter, target).load(std::memory_order_acquire) < target;
  };
  // First the processes that have ended, because they are the cause if others have failed. A process that
  // reported a failure before it ended is not: the report says more.
  for (int i = 0; i < region_.size(); ++i) {
    if (i == rank_ || (pair && i != peer) || !missing(i)) continue;
    // A rank that is about to join has not yet written all that ended() reads.
    if (counter == Counter::joined || !ended(i) || !missing(i)) continue;
    const State state = region_.control(i).state.load(std::memory_order_acquire);
    if (state == State::left) left(i, "left the group and ended");
    if (state != State::failed) lost(i, "ended");
  }
  for (int i = 0; i < region_.size(); ++i) {
    if (i == rank_ || (pair && i != peer) || !missing(i)) continue;
    const Control& control = region_.control(i);
    const State state = control.state.load(std::memory_order_acquire);
    if (state < State::left || !missing(i)) continue;
    if (state == State::left) left(i, "left the group");
    const std::string reason = text_of(control.reason, sizeof(control.reason));
    const int cause = control.lost_rank;
    if (cause >= 0 && cause < region_.size() && cause != rank_)
      lost(cause, mx::detail::concat("is lost, as ", name(i), " reported: ", reason, ","));
    lost(i, mx::detail::concat("failed: ", reason, ","));
  }
}

void Peers::throw_timeout(int peer, Counter counter, uint64_t target, const Context& context) const {
  std::string missing;
  // The rank that has begun the fewest calls; other ranks that are missing may themselves wait for it.
  int behind = -1;
  uint64_t fewest = 0;
  const bool pair = counter >= Counter::sending;
  for (int i = 0; i < region_.size(); ++i) {
    if (i == rank_ || (pair && i != peer)) continue;
    if (value(i, counter, target).load(std::memory_order_acquire) >= target) continue;
    missing += (missing.empty() ? "" : ", ") + name(i);
    const Control& control = region_.control(i);
    const uint64_t calls = std::max(control.entries[0].number.load(), control.entries[1].number.load());
    if (behind >= 0 && calls >= fewest) continue;
    behind = i;
    fewest = calls;
  }
  if (notices_.timeout && behind >= 0) notices_.timeout(behind);
  if (missing.empty()) missing = name(peer) + ", which came too late";
  throw Timeout(mx::detail::concat(
      "[", context.op, "] expected all ranks within the time limit, still waiting for ", missing,
      context.request != nullptr ? " in " + describe(*context.request) : std::string(" to join")));
}

std::string Peers::name(int peer) const {
  const Control& control = region_.control(peer);
  if (control.joined.load(std::memory_order_acquire) == 0) return "rank " + std::to_string(peer);
  return mx::detail::concat("rank ", peer, " on host ", text_of(control.host, sizeof(control.host)),
                            " (process ", control.process, ")");
}

}  // namespace mx::comm::shm
