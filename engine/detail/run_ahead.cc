// Bounded run-ahead: how long a pusher waits when it is far ahead of the operations that have ended.
//
// The limits of EngineOptions, see throttle(). If more is in flight than they allow and something can end, a
// pusher waits until half of that is left. If it waited only for the next operation to end, it would wake for
// every operation, on a processor that the workers need.
//
// An asynchronous operation that has begun can end, but perhaps only the waiting pusher would use its token.
// So if nothing else can end and nothing has ended for a while, as many operations again as the limit are
// admitted, and twice as many each time that this repeats. A program that keeps using its tokens stays
// bounded, and a program that uses none before it has pushed everything is only delayed.
//
// The soft limit, see ease(). A queued operation occupies about a kilobyte of the caches with its record, its
// closure and handles of arrays, and so evicts data that operations compute on. A backlog of one millisecond
// of work per thread is as much as a pusher needs (training a small network on two processors: 450,000
// samples/s with 65,536 operations in flight, 490,000 with 1,024, at half the memory). So a pusher that is
// further ahead waits, but only while operations end.
#include "engine/detail/run_ahead.h"

#include <algorithm>

#include "engine/base/clock.h"
#include "engine/detail/engine_inl.h"

namespace mx::detail {

namespace {

constexpr int64_t kGraceNs = 100'000'000;
constexpr int kMostDoublings = 20;
// The soft limit per thread: the backlog in microseconds of work, and the least number of operations.
constexpr double kGoodRunAheadUs = 1000;
constexpr int64_t kLeastRunAhead = 256;

}  // namespace

RunAhead::RunAhead(const EngineOptions& options, int threads)
    : most_ops_(options.max_ops_in_flight),
      most_bytes_(options.max_bytes_in_flight),
      threads_(std::max(2, threads)),  // one that pushes and one that runs
      limits_bytes_(options.max_bytes_in_flight != UINT64_MAX) {}

// Returns true if more than `limit` operations are in flight and the ticket, that of the pusher's last
// operation, has not been admitted by admit_more().
bool RunAhead::many(uint64_t ticket, int64_t limit) const {
  const auto in_flight = static_cast<int64_t>(ticket - ended_ops());
  return in_flight > limit && ticket >= admitted_ops_.load(std::memory_order_relaxed);
}

bool RunAhead::large(uint64_t limit) const {
  const uint64_t bytes = pushed_bytes_.load(std::memory_order_relaxed);
  return bytes - ended_bytes_.load(std::memory_order_relaxed) > limit &&
         bytes > admitted_bytes_.load(std::memory_order_relaxed);
}

int64_t RunAhead::good(int64_t body_ticks) const {
  return std::clamp(threads_ * static_cast<int64_t>(kGoodRunAheadUs * ticks_per_us()) / (body_ticks + 1),
                    std::min(threads_ * kLeastRunAhead, most_ops_), most_ops_);
}

void RunAhead::wake() {
  wake_at_.store(UINT64_MAX, std::memory_order_relaxed);  // a pusher that sleeps again sets it again
  word_.fetch_add(1, std::memory_order_seq_cst);
  futex_wake(word_);
}

void RunAhead::admit_more(uint64_t ended, uint64_t tail) {
  doublings_ = ended == admitted_at_ ? std::min(doublings_ + 1, kMostDoublings) : 0;
  admitted_at_ = ended;
  const auto times = uint64_t{1} << doublings_;
  const auto plus = [&](uint64_t base, uint64_t limit) {
    return limit < (UINT64_MAX - base) / times ? base + limit * times : UINT64_MAX;
  };
  admitted_ops_.store(plus(tail, static_cast<uint64_t>(most_ops_)), std::memory_order_relaxed);
  admitted_bytes_.store(plus(pushed_bytes_.load(std::memory_order_relaxed), most_bytes_),
                        std::memory_order_relaxed);
}

// Blocks a pusher while too much is in flight. A push from inside an operation never blocks, because the
// operations that it would wait for may wait for that operation.
void EngineImpl::throttle(uint64_t ticket) {
  if (!run_ahead_.over_limits(ticket)) [[likely]] {
    if (run_ahead_.many(ticket, good_run_ahead())) ease(ticket);
    return;
  }
  if (inside_operation() || inline_mode_) return;
  run_ahead_.held();
  wake_after_submit();
  const auto over = [&] { return run_ahead_.over_half(ticket); };
  uint64_t seen_ended = 0;
  int64_t stuck_since = 0;
  while (over()) {
    lock_.lock();
    if (ring_.maybe_nonempty()) drain(kDrainLimit);
    const bool can_end = running_ > 0 || (!ready_.empty() && paused_ == 0) || !comm_.empty() ||
                         lanes_.ready() > 0 || streams_busy_ || ring_.maybe_nonempty();
    const bool tokens = run_ahead_.tokens();
    if (can_end || !tokens) {
      stuck_since = 0;
    } else if (stuck_since == 0 || ended_count_ != seen_ended) {
      stuck_since = now_ns();
      seen_ended = ended_count_;
    } else if (now_ns() - stuck_since > kGraceNs && over()) {
      run_ahead_.admit_more(ended_count_, ring_.tail());
      stuck_since = 0;
    }
    unlock();
    if (!can_end && !tokens) return;
    wake_after_submit();
    run_ahead_.sleep(ticket, run_ahead_.half(), over);
  }
}

int64_t EngineImpl::good_run_ahead() const { return run_ahead_.good(policy_.body_ticks()); }

// Applies the soft limit: waits until half of that is in flight, or until operations stop ending.
void EngineImpl::ease(uint64_t ticket) {
  if (single_ || inline_mode_ || inside_operation()) return;
  if (run_ahead_.stands()) return;
  const int64_t enough = good_run_ahead() / 2;
  run_ahead_.held();
  wake_after_submit();
  const auto over = [&] { return run_ahead_.many(ticket, enough); };
  while (over()) {
    const uint64_t before = run_ahead_.ended_ops();
    run_ahead_.sleep(ticket, enough, over);
    if (run_ahead_.ended_ops() != before) continue;
    run_ahead_.stood_at(before);  // pushers do not wait here again until an operation ends
    return;
  }
}

}  // namespace mx::detail
