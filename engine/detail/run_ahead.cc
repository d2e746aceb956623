// Bounded run-ahead: how a pusher is held back.
//
// A pusher waits while more than the limits is in flight and something can end. An asynchronous operation
// that has begun can end, but maybe only by the very thread that would wait here: so where nothing else can
// end and nothing has for a while, some more operations are admitted, and each further such while admits
// twice as many. A program whose completions flow stays bounded, and one that completes nothing before it
// has pushed everything is only delayed.
#include <sched.h>

#include <algorithm>

#include "engine/base/clock.h"
#include "engine/detail/engine_inl.h"

namespace mx::detail {

namespace {

constexpr int64_t kGraceNs = 100'000'000;
constexpr int kMostDoublings = 20;

}  // namespace

// A push from inside an operation never blocks: what it waits for may wait for that operation.
void EngineImpl::throttle(uint64_t ticket) {
  const auto over = [&] {
    const int64_t in_flight = static_cast<int64_t>(ticket - ended_.load(std::memory_order_relaxed)) +
                              collected_.load(std::memory_order_relaxed);
    const bool many = in_flight > options_.max_ops_in_flight;
    if (many && ticket >= admitted_ops_.load(std::memory_order_relaxed)) return true;
    const uint64_t bytes = bytes_pushed_.load(std::memory_order_relaxed);
    return bytes - bytes_ended_.load(std::memory_order_relaxed) > options_.max_bytes_in_flight &&
           bytes > admitted_bytes_.load(std::memory_order_relaxed);
  };
  if (!over() || inside_operation() || inline_mode_) [[likely]]
    return;
  throttle_count_.fetch_add(1, std::memory_order_relaxed);
  wake_after_submit();
  uint64_t seen_ended = 0;
  int64_t stuck_since = 0;
  while (over()) {
    lock_.lock();
    if (ring_.maybe_nonempty()) drain(kDrainLimit);
    const bool can_end = running_ > 0 || (!ready_.empty() && paused_ == 0) || !comm_.empty() ||
                         device_ready_ > 0 || (streams_in_use_ && streams_->outstanding()) ||
                         ring_.maybe_nonempty();
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
    const uint32_t word = throttle_word_.load(std::memory_order_seq_cst);
    throttled_.fetch_add(1, std::memory_order_seq_cst);
    if (over()) futex_wait(throttle_word_, word, 2'000'000);
    throttled_.fetch_sub(1, std::memory_order_relaxed);
  }
}

// On the only processor a pusher that fills the ring leaves it to a worker (submit_slowly). Operations that
// were collected take up memory, not the ring: as many as fill the ring are as far as is good for the caches.
void EngineImpl::throttle_bulk() {
  throttle(ring_.head());
  const auto over = [&] {
    return collected_.load(std::memory_order_relaxed) > static_cast<int64_t>(ring_.capacity());
  };
  if (!single_ || inline_mode_ || inside_operation()) return;
  for (int turn = 0; turn < 32 && over() && !paused_hint_.load(std::memory_order_relaxed); ++turn) {
    if (active_.load(std::memory_order_relaxed) == 0) start_worker();
    sched_yield();
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
