// Batch: what a worker has taken and not yet given back. Internal.
//
// The owner claims one operation after another without the lock; whoever holds the lock may complete what is
// done and take away what is not claimed, so that a long operation hides neither.
//
// The owner:   start() under the lock; then, without it, run, mark_done(), claim_next(), run, ...;
//              then finish() under the lock.
// Any other:   scavenge() under the lock.
//
// The template parameter is for the exhaustive checker (tests/engine/model).
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "engine/detail/op.h"

namespace mx::detail {

inline constexpr size_t kMaxBatch = 32;

template <template <class> class Atomic = std::atomic>
struct alignas(64) BasicBatch {
  Atomic<uint32_t> claimed{0};  // operations that the owner has started
  Atomic<uint32_t> done{0};     // of these, the first `done` have ended
  Atomic<uint32_t> failed{0};   // which has failed, counted from 1; it is the last that ran
  uint32_t completed = 0;       // of these, given to DependencyState (under the lock)
  uint32_t size = 0;            // written under the lock
  Op* ops[kMaxBatch];           // null: it has left the batch, and ends by itself

  /// The first `n` of ops are there; the first of them is claimed.
  void start(size_t n) {
    claimed.store(1, std::memory_order_relaxed);
    done.store(0, std::memory_order_relaxed);
    failed.store(0, std::memory_order_relaxed);
    completed = 0;
    size = static_cast<uint32_t>(n);
  }

  /// May the owner, who started with `n`, go on with the next?
  bool claim_next(size_t n) { return claimed.fetch_add(1, std::memory_order_seq_cst) < n; }

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

  /// complete(Op*) for what has ended, after give_back(Op*) for what was ready and has not been claimed, last
  /// first.
  template <class GiveBack, class Complete>
  void finish(GiveBack&& give_back, Complete&& complete) {
    if (size == 1) [[likely]] {
      if (completed == 0) complete_first(1, complete);
    } else {
      put_back(std::min(claimed.load(std::memory_order_relaxed), size), give_back);
      complete_first(done.load(std::memory_order_relaxed), complete);
    }
    size = 0;
  }

  /// Undoes start(), in the same turn under the lock.
  template <class GiveBack>
  void undo(GiveBack&& give_back) {
    put_back(0, give_back);
    size = 0;
  }

  /// The same as finish(), by somebody else while the owner is at work.
  template <class GiveBack, class Complete>
  void scavenge(GiveBack&& give_back, Complete&& complete) {
    // Who sees a claim sees that what stands before it is done (acquire), and therefore completes it: a
    // claimed operation has all its grants when this returns.
    uint32_t taken = claimed.load(std::memory_order_acquire);
    while (taken < size && !claimed.compare_exchange_weak(taken, size + 1)) {
    }
    if (taken < size) {
      put_back(taken, give_back);
      size = taken;
    }
    complete_first(done.load(std::memory_order_acquire), complete);
  }

 private:
  static bool simple(const Op* op) {
    return (op->flags & (kOpSkip | kOpCancelled | kOpWide | kOpAsync | kOpNode)) == 0;
  }

  // What was not claimed goes back to where it came from, in its order.
  template <class GiveBack>
  void put_back(uint32_t from, GiveBack&& give_back) {
    for (uint32_t i = size; i-- > from;) {
      Op* op = ops[i];
      if (op->flags & kOpTaken) {
        op->flags &=
            static_cast<uint8_t>(~kOpTaken);  // not ready yet: it will be when the one before it ends
      } else {
        give_back(op);
      }
    }
  }

  template <class Complete>
  void complete_first(uint32_t n, Complete&& complete) {
    for (; completed < n; ++completed) {
      Op* op = ops[completed];
      if (op == nullptr) [[unlikely]]
        continue;
      if (failed.load(std::memory_order_relaxed) == completed + 1) [[unlikely]]
        op->flags |= kOpFailed;
      complete(op);
    }
  }
};

using Batch = BasicBatch<>;

}  // namespace mx::detail
