// RunAhead: how far pushers are ahead of what has ended, and their sleep when that is too far. Internal.
//
// It counts and tells; EngineImpl::throttle() and ease() decide, since they look at the engine's queues
// (run_ahead.cc tells the policy).
//
// Locks: what workers publish is written under the engine's lock and read by anybody; what pushers write
// needs no lock; the last group is under the engine's lock. No member takes a lock. A pusher that is about to
// sleep says so (sleepers_) and then looks once more, and who ends operations publishes and then looks for
// sleepers: in the worst case, as the latter pays for no fence, a pusher sleeps its two milliseconds.
#pragma once

#include <atomic>
#include <cstdint>

#include "engine/base/futex.h"
#include "engine/options.h"

namespace mx::detail {

class RunAhead {
 public:
  RunAhead(const EngineOptions& options, int threads);

  // ---- under the engine's lock ----
  void bytes_ended(uint64_t bytes) { ended_bytes_locked_ += bytes; }
  uint64_t bytes_in_flight() const { return pushed_bytes_.load() - ended_bytes_locked_; }
  void publish_ended(uint64_t ops) { ended_ops_.store(ops, std::memory_order_relaxed); }
  void publish_bytes() { ended_bytes_.store(ended_bytes_locked_, std::memory_order_relaxed); }
  /// Nothing can end, and `ended` operations have: as many again as the limits say may be pushed, behind the
  /// ticket `tail`; twice as many each time that this repeats while none ends.
  void admit_more(uint64_t ended, uint64_t tail);

  // ---- any thread, no lock ----
  uint64_t ended_ops() const { return ended_ops_.load(std::memory_order_relaxed); }
  bool limits_bytes() const { return limits_bytes_; }
  void bytes_pushed(uint64_t bytes) { pushed_bytes_.fetch_add(bytes, std::memory_order_relaxed); }
  void bytes_withdrawn(uint64_t bytes) { pushed_bytes_.fetch_sub(bytes, std::memory_order_relaxed); }
  void token_begins() { tokens_.fetch_add(1, std::memory_order_relaxed); }
  void token_ends() { tokens_.fetch_sub(1, std::memory_order_relaxed); }
  bool tokens() const { return tokens_.load(std::memory_order_relaxed) > 0; }
  uint64_t times_held() const { return times_held_.load(); }

  // ---- a pusher whose last operation has this ticket; no lock ----
  /// Is more in flight than the limits allow, or than half of them?
  bool over_limits(uint64_t ticket) const { return many(ticket, most_ops_) || large(most_bytes_); }
  bool over_half(uint64_t ticket) const { return many(ticket, most_ops_ / 2) || large(most_bytes_ / 2); }
  int64_t half() const { return most_ops_ / 2; }
  bool many(uint64_t ticket, int64_t limit) const;
  /// So many operations of this length are a good stretch of work.
  int64_t good(int64_t body_ticks) const;
  void held() { times_held_.fetch_add(1, std::memory_order_relaxed); }
  /// Sleeps as long as over() is true, until about `enough` are left or for two milliseconds.
  template <class Over>
  void sleep(uint64_t ticket, int64_t enough, const Over& over);
  /// Has nothing ended since a pusher waited in vain?
  bool stands() const { return ended_ops() == stood_at_.load(std::memory_order_relaxed); }
  void stood_at(uint64_t ended) { stood_at_.store(ended, std::memory_order_relaxed); }

  // ---- called without the engine's lock ----
  bool sleepers() const { return sleepers_.load(std::memory_order_relaxed) > 0; }
  /// Is it time to wake them?
  bool to_wake() const { return sleepers() && ended_ops() >= wake_at_.load(std::memory_order_relaxed); }
  void wake();

 private:
  bool large(uint64_t limit) const;

  const int64_t most_ops_;
  const uint64_t most_bytes_;
  const int threads_;
  const bool limits_bytes_;

  // Published at every unlock (the bytes: where some have ended); read by pushers now and then.
  alignas(64) std::atomic<uint64_t> ended_ops_{0};
  std::atomic<uint64_t> ended_bytes_{0};  // <= pushed_bytes_

  // Written by pushers.
  alignas(64) std::atomic<uint64_t> pushed_bytes_{0};
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<uint32_t> word_{0};               // they sleep on it; it changes at every wake()
  std::atomic<uint64_t> stood_at_{UINT64_MAX};  // ended_ops_ when a pusher had waited and none had ended
  std::atomic<uint64_t> wake_at_{UINT64_MAX};   // the least of what the sleepers wait for: as many have ended
  std::atomic<uint64_t> times_held_{0};
  std::atomic<int64_t> tokens_{0};           // asynchronous operations that have begun and not ended
  std::atomic<uint64_t> admitted_ops_{0};    // pushes up to this ticket, and
  std::atomic<uint64_t> admitted_bytes_{0};  // this many bytes, do not wait: see admit_more()

  // Under the engine's lock.
  alignas(64) uint64_t ended_bytes_locked_ = 0;  // what ended_bytes_ publishes
  uint64_t admitted_at_ = UINT64_MAX;            // operations that had ended at the last admit_more()
  int doublings_ = 0;                            // how often it has been repeated since one ended
};

template <class Over>
void RunAhead::sleep(uint64_t ticket, int64_t enough, const Over& over) {
  const uint32_t word = word_.load(std::memory_order_seq_cst);
  if (!many(ticket, enough)) {
    wake_at_.store(0, std::memory_order_relaxed);  // at any end: it may be that of large ones
  } else {
    const uint64_t at = ticket - static_cast<uint64_t>(enough);
    uint64_t before = wake_at_.load(std::memory_order_relaxed);
    while (at < before && !wake_at_.compare_exchange_weak(before, at, std::memory_order_relaxed)) {
    }
  }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  if (over()) futex_wait(word_, word, 2'000'000);
  sleepers_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace mx::detail
