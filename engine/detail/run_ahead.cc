// Bounded run-ahead: how a pusher is held back.
//
// A pusher waits when more than the limits is in flight and something can end, until half of that is left:
// one that went on with the first place that comes free would wake for every operation, on a processor that
// the workers need. An asynchronous operation that has begun can end, but maybe only by the very thread that
// would wait here: so where nothing else can end and nothing has for a while, some more operations are
// admitted, and each further such while admits twice as many. A program whose completions flow stays bounded,
// and one that completes nothing before it has pushed everything is only delayed.
//
// Below the limits a pusher is held back where it does good: what is queued has its operations, closures and
// arrays' handles in the caches, about a kilobyte each, and takes them from what the operations compute on. A
// millisecond of work per thread is as far ahead as any pusher needs to be (training a small network on two
// processors: 450,000 samples/s with 65,536 operations, 490,000 with 1,024, at half the memory). No pusher is
// held where operations do not end.
#include <algorithm>

#include "engine/base/clock.h"
#include "engine/detail/engine_inl.h"

namespace mx::detail {

namespace {

constexpr int64_t kGraceNs = 100'000'000;
constexpr int kMostDoublings = 20;
// How much work per thread a pusher may be ahead without waiting, in microseconds and in operations.
constexpr double kGoodRunAheadUs = 1000;
constexpr int64_t kLeastRunAhead = 256;

}  // namespace

// More operations than `limit` that count against a pusher whose last one has this ticket?
bool EngineImpl::many_in_flight(uint64_t ticket, int64_t limit) const {
  const auto in_flight = static_cast<int64_t>(ticket - ended_.load(std::memory_order_relaxed));
  return in_flight > limit && ticket >= admitted_ops_.load(std::memory_order_relaxed);
}

bool EngineImpl::large_in_flight(uint64_t limit) const {
  const uint64_t bytes = bytes_pushed_.load(std::memory_order_relaxed);
  return bytes - bytes_ended_.load(std::memory_order_relaxed) > limit &&
         bytes > admitted_bytes_.load(std::memory_order_relaxed);
}

// So many operations, as long as they take now, are a good stretch of work.
int64_t EngineImpl::good_run_ahead() const {
  const int64_t most = options_.max_ops_in_flight;
  const int64_t threads = std::max(2, threads_);  // (one that pushes and one that runs)
  const int64_t ticks_each = body_ticks_.load(std::memory_order_relaxed) + 1;
  return std::clamp(threads * static_cast<int64_t>(kGoodRunAheadUs * ticks_per_us()) / ticks_each,
                    std::min(threads * kLeastRunAhead, most), most);
}

// Sleeps as long as over() is true, until about `enough` are left or for two milliseconds.
template <class Over>
void EngineImpl::sleep_throttled(uint64_t ticket, int64_t enough, const Over& over) {
  const uint32_t word = throttle_word_.load(std::memory_order_seq_cst);
  if (!many_in_flight(ticket, enough)) {
    wake_at_.store(0, std::memory_order_relaxed);  // at any end: it may be that of large ones
  } else {
    const uint64_t at = ticket - static_cast<uint64_t>(enough);
    uint64_t before = wake_at_.load(std::memory_order_relaxed);
    while (at < before && !wake_at_.compare_exchange_weak(before, at, std::memory_order_relaxed)) {
    }
  }
  throttled_.fetch_add(1, std::memory_order_seq_cst);
  if (over()) futex_wait(throttle_word_, word, 2'000'000);
  throttled_.fetch_sub(1, std::memory_order_relaxed);
}

// A push from inside an operation never blocks: what it waits for may wait for that operation.
void EngineImpl::throttle(uint64_t ticket) {
  const int64_t most = options_.max_ops_in_flight;
  const uint64_t most_bytes = options_.max_bytes_in_flight;
  if (!many_in_flight(ticket, most) && !large_in_flight(most_bytes)) [[likely]] {
    if (many_in_flight(ticket, good_run_ahead())) ease(ticket);
    return;
  }
  if (inside_operation() || inline_mode_) return;
  throttle_count_.fetch_add(1, std::memory_order_relaxed);
  wake_after_submit();
  const auto over = [&] { return many_in_flight(ticket, most / 2) || large_in_flight(most_bytes / 2); };
  uint64_t seen_ended = 0;
  int64_t stuck_since = 0;
  while (over()) {
    lock_.lock();
    if (ring_.maybe_nonempty()) drain(kDrainLimit);
    const bool can_end = running_ > 0 || (!ready_.empty() && paused_ == 0) || !comm_.empty() ||
                         lanes_.ready() > 0 || streams_busy_ || ring_.maybe_nonempty();
    const bool tokens = tokens_.load(std::memory_order_relaxed) > 0;
    if (can_end || !tokens) {
      stuck_since = 0;
    } else if (stuck_since == 0 || ended_count_ != seen_ended) {
      stuck_since = now_ns();
      seen_ended = ended_count_;
    } else if (now_ns() - stuck_since > kGraceNs && over()) {
      admit_more();
      stuck_since = 0;
    }
    unlock();
    if (!can_end && !tokens) return;
    wake_after_submit();
    sleep_throttled(ticket, most / 2, over);
  }
}

// Further ahead than is good, but not too far: waits as long as operations end.
void EngineImpl::ease(uint64_t ticket) {
  if (single_ || inline_mode_ || inside_operation()) return;
  if (ended_.load(std::memory_order_relaxed) == stood_at_.load(std::memory_order_relaxed)) return;
  const int64_t enough = good_run_ahead() / 2;
  throttle_count_.fetch_add(1, std::memory_order_relaxed);
  wake_after_submit();
  const auto over = [&] { return many_in_flight(ticket, enough); };
  while (over()) {
    const uint64_t before = ended_.load(std::memory_order_relaxed);
    sleep_throttled(ticket, enough, over);
    if (ended_.load(std::memory_order_relaxed) != before) continue;
    stood_at_.store(before, std::memory_order_relaxed);  // until one ends, pushers are not asked again
    return;
  }
}

// Under the lock.
void EngineImpl::admit_more() {
  admit_doublings_ = ended_count_ == admitted_at_ ? std::min(admit_doublings_ + 1, kMostDoublings) : 0;
  admitted_at_ = ended_count_;
  const auto times = uint64_t{1} << admit_doublings_;
  const auto plus = [&](uint64_t base, uint64_t limit) {
    return limit < (UINT64_MAX - base) / times ? base + limit * times : UINT64_MAX;
  };
  admitted_ops_.store(plus(ring_.tail(), static_cast<uint64_t>(options_.max_ops_in_flight)),
                      std::memory_order_relaxed);
  admitted_bytes_.store(plus(bytes_pushed_.load(std::memory_order_relaxed), options_.max_bytes_in_flight),
                        std::memory_order_relaxed);
}

}  // namespace mx::detail
