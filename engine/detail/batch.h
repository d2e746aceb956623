// Batch: what a worker has taken and not yet given back. Internal.
//
// The owner claims one operation after another without the lock; whoever holds the lock may complete what is
// done and take away what is not claimed, so that a long operation hides neither.
//
// The owner:   start() under the lock; then, without it, run, mark_done(), claim_next(), run, ...;
//              then finish() under the lock.
// Any other:   scavenge() under the lock.
//
// A claim is a store and a load without a fence, since there is one for every operation; who takes away
// pays for both (asymmetric_fence.h). When they meet, the owner may have stored a claim and then seen that
// there is nothing left for it: it leaves that operation alone and gives it back itself.
//
// The template parameters are for the exhaustive checker (tests/engine/model).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "engine/base/asymmetric_fence.h"
#include "engine/detail/op.h"

namespace mx::detail {

inline constexpr size_t kMaxBatch = 32;

template <template <class> class Atomic = std::atomic, class Fence = AsymmetricFence>
struct alignas(64) BasicBatch {
  Atomic<uint32_t> claimed{0};  // operations that the owner has started, or would like to
  Atomic<uint32_t> limit{0};    // how many of them it may start; lowered by who takes away the rest
  Atomic<uint32_t> done{0};     // of these, the first `done` have ended
  Atomic<uint32_t> failed{0};   // which has failed, counted from 1; it is the last that ran
  uint32_t completed = 0;       // of these, given to DependencyState (under the lock)
  uint32_t size = 0;            // written under the lock
  uint32_t seen_claimed = 0;    // by the last look from outside (under the lock), and when that was
  uint64_t seen_ticks = 0;
  Op* ops[kMaxBatch];  // null: it has left the batch, and ends by itself

  /// The first `n` of ops are there; the first of them is claimed.
  void start(size_t n) {
    claimed.store(1, std::memory_order_relaxed);
    limit.store(static_cast<uint32_t>(n), std::memory_order_relaxed);
    done.store(0, std::memory_order_relaxed);
    failed.store(0, std::memory_order_relaxed);
    completed = 0;
    seen_claimed = 0;
    size = static_cast<uint32_t>(n);
  }

  /// May the owner, who has run `ran` operations, go on with the next? If not, it runs no more of this batch.
  bool claim_next(uint32_t ran) {
    claimed.store(ran + 1, std::memory_order_release);
    Fence::light();
    return limit.load(std::memory_order_relaxed) > ran;
  }

  /// The first `n` have ended.
  void mark_done(uint32_t n) { done.store(n, std::memory_order_release); }

  /// The same, and the last of them has failed. (Its flags belong to the lock's holder, who may be granting
  /// it, as one that was taken along, in this moment; so it is flagged when it is completed.)
  void mark_failed(uint32_t n) {
    failed.store(n, std::memory_order_relaxed);
    mark_done(n);
  }

  /// Behind the first `n` operations, nothing else being ready: appends those that wait only for operations
  /// of this batch, to be run right behind them in the order of the queue. Returns how many there are then.
  size_t extend(size_t n) {
    for (size_t i = 0; i < n && n < kMaxBatch; ++i) {
      Op* op = ops[i];
      if (!simple(op)) break;
      for (size_t k = 0; k < op->links; ++k) {
        const Link& link = op->link(k);
        if (!link.exclusive() || !link.granted()) continue;
        // The queue behind a writer of this batch, as far as each has nothing else to wait for.
        for (Link* next = link.var()->head; next != nullptr && n < kMaxBatch; next = next->next) {
          Op* follower = op_of(next);
          if (!follower->follows()) break;
          follower->flags |= kOpTaken;
          ops[n++] = follower;
        }
      }
    }
    return n;
  }

  /// Under the lock: the operation that the owner has claimed last. Null if that has left the batch, or has
  /// ended and been completed.
  Op* current() {
    const uint32_t claim = claimed.load(std::memory_order_acquire);
    if (claim <= completed || claim > size) return nullptr;
    return std::atomic_ref<Op*>(ops[claim - 1]).load(std::memory_order_relaxed);
  }
  /// By the owner: the operation in this place ends by itself. (Whoever completes it later has seen this.)
  static void leave(Op*& place) { std::atomic_ref<Op*>(place).store(nullptr, std::memory_order_relaxed); }

  /// complete(Op*) for what has ended, after give_back(Op*) for what is ready and was not run, last first.
  template <class GiveBack, class Complete>
  void finish(GiveBack&& give_back, Complete&& complete) {
    const uint32_t ran = done.load(std::memory_order_relaxed);
    if (ran < size) [[unlikely]]
      put_back(ran, give_back);
    complete_first(ran, complete);
    size = 0;
  }

  /// Undoes start(), in the same turn under the lock.
  template <class GiveBack>
  void undo(GiveBack&& give_back) {
    put_back(0, give_back);
    size = 0;
  }

  /// Has the owner been in the same operation since a look that is at least `age` ticks old? Notes this one.
  bool stuck(uint64_t now, uint64_t age) {
    const uint32_t seen = claimed.load(std::memory_order_relaxed);
    if (seen != seen_claimed) {
      seen_claimed = seen;
      seen_ticks = now;
    }
    return now - seen_ticks >= age;
  }

  /// By somebody else while the owner is at work: completes what has ended, and with `take` gives back what
  /// the owner has not started.
  template <class GiveBack, class Complete>
  void scavenge(bool take, GiveBack&& give_back, Complete&& complete) {
    // Who sees a claim sees that what stands before it is done (acquire), and therefore completes it: a
    // claimed operation has all its grants when this returns.
    uint32_t taken = claimed.load(std::memory_order_acquire);
    if (take && taken < size) {
      limit.store(taken, std::memory_order_relaxed);
      Fence::heavy();
      // The owner either sees the limit at its next claim, or has claimed before and is seen here.
      taken = claimed.load(std::memory_order_acquire);
      if (taken < size) {
        put_back(taken, give_back);
        size = taken;
      }
    }
    complete_first(done.load(std::memory_order_acquire), complete);
  }

 private:
  static bool simple(const Op* op) {
    return (op->flags & (kOpSkip | kOpCancelled | kOpWide | kOpAsync | kOpNode)) == 0;
  }

  // What was not run goes back to where it came from, in its order.
  template <class GiveBack>
  void put_back(uint32_t from, GiveBack&& give_back) {
    for (uint32_t i = size; i-- > from;) {
      Op* op = ops[i];
      if (op->flags & kOpTaken) {
        op->flags &= static_cast<uint8_t>(~kOpTaken);
        if (op->pending != 0) continue;  // it will be ready when the one before it ends
      }
      give_back(op);
    }
  }

  template <class Complete>
  void complete_first(uint32_t n, Complete&& complete) {
    if (failed.load(std::memory_order_relaxed) == n && n > completed) [[unlikely]]
      ops[n - 1]->flags |= kOpFailed;
    for (; completed < n; ++completed) {
      Op* op = ops[completed];
      if (op != nullptr) [[likely]]
        complete(op);
    }
  }
};

using Batch = BasicBatch<>;

}  // namespace mx::detail
