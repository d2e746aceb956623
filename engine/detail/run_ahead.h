// RunAhead: how far pushers are ahead of the operations that have ended. A pusher that is too far ahead
// sleeps here. Internal.
//
// This class only counts and compares. EngineImpl::throttle() and ease() decide, because they need the
// engine's queues. run_ahead.cc describes the policy.
//
// Locks: workers write what they publish under the engine's lock, and any thread reads it. What pushers write
// needs no lock. The last group of members is under the engine's lock. No member takes a lock.
//
// A pusher that is about to sleep increments sleepers_ and then checks the limits once more. A thread that
// ends operations publishes that and then checks sleepers_, without a fence. So a wake-up can be missed; the
// pusher then sleeps for two milliseconds.
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
  /// Admits as many operations and bytes again as the limits allow, after the ticket `tail`. Called if
  /// nothing can end; `ended` operations have ended so far. If none has ended since the last call, admits
  /// twice as many as that call did.
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

  // ---- called by a pusher, with the ticket of its last operation; no lock ----
  /// Returns true if more is in flight than the limits allow (over_half(): than half of them).
  bool over_limits(uint64_t ticket) const { return many(ticket, most_ops_) || large(most_bytes_); }
  bool over_half(uint64_t ticket) const { return many(ticket, most_ops_ / 2) || large(most_bytes_ / 2); }
  int64_t half() const { return most_ops_ / 2; }
  /// Returns true if more than `limit` operations are in flight, and admit_more() has not admitted this one.
  bool many(uint64_t ticket, int64_t limit) const;
  /// Returns how many operations of this length a pusher may be ahead without waiting; see run_ahead.cc.
  int64_t good(int64_t body_ticks) const;
  /// Counts a push that had to wait.
  void held() { times_held_.fetch_add(1, std::memory_order_relaxed); }
  /// If over() is true, sleeps until about `enough` operations are in flight, or for two milliseconds.
  template <class Over>
  void sleep(uint64_t ticket, int64_t enough, const Over& over);
  /// Returns true if no operation has ended since a pusher slept in vain, which stood_at() records.
  bool stands() const { return ended_ops() == stood_at_.load(std::memory_order_relaxed); }
  void stood_at(uint64_t ended) { stood_at_.store(ended, std::memory_order_relaxed); }

  // ---- called without the engine's lock ----
  bool sleepers() const { return sleepers_.load(std::memory_order_relaxed) > 0; }
  /// Wakes the sleeping pushers if as many operations have ended as one of them waits for. Returns whether it
  /// did. The engine calls this at every unlock; to wake a pusher any earlier costs two context switches, and
  /// it sleeps again at once.
  bool wake_if_due() {
    if (!sleepers() || ended_ops() < wake_at_.load(std::memory_order_relaxed)) [[likely]]
      return false;
    wake();
    return true;
  }

 private:
  void wake();
  bool large(uint64_t limit) const;

  const int64_t most_ops_;
  const uint64_t most_bytes_;
  const int threads_;
  const bool limits_bytes_;

  // Published at every unlock (the bytes only if some have ended); read by pushers from time to time.
  alignas(64) std::atomic<uint64_t> ended_ops_{0};
  std::atomic<uint64_t> ended_bytes_{0};  // <= pushed_bytes_

  // Written by pushers.
  alignas(64) std::atomic<uint64_t> pushed_bytes_{0};
  std::atomic<uint32_t> sleepers_{0};
  std::atomic<uint32_t> word_{0};               // the futex of the sleepers; every wake() changes it
  std::atomic<uint64_t> stood_at_{UINT64_MAX};  // ended_ops_ when a pusher had slept and none had ended
  std::atomic<uint64_t> wake_at_{UINT64_MAX};   // the smallest ended_ops_ that a sleeper waits for
  std::atomic<uint64_t> times_held_{0};
  std::atomic<int64_t> tokens_{0};           // asynchronous operations that have begun and not ended
  std::atomic<uint64_t> admitted_ops_{0};    // pushes up to this ticket, and
  std::atomic<uint64_t> admitted_bytes_{0};  // this many bytes, do not wait: see admit_more()

  // Under the engine's lock.
  alignas(64) uint64_t ended_bytes_locked_ = 0;  // what ended_bytes_ publishes
  uint64_t admitted_at_ = UINT64_MAX;            // operations that had ended at the last admit_more()
  int doublings_ = 0;                            // calls of admit_more() since one ended, after the first
};

template <class Over>
void RunAhead::sleep(uint64_t ticket, int64_t enough, const Over& over) {
  const uint32_t word = word_.load(std::memory_order_seq_cst);
  if (!many(ticket, enough)) {
    // The bytes are over their limit, and any operation that ends may have held many: wake at the next end.
    wake_at_.store(0, std::memory_order_relaxed);
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
