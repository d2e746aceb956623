// Batch: the operations that a worker has taken and not yet completed. Internal.
//
// The owner, a worker, claims one operation after another without the lock. Meanwhile another thread that
// holds the lock may complete the operations that have run, and take away those that are not yet claimed.
// Without that, a long operation would delay both.
//
// The owner:   start() under the lock; then, without it, run, mark_done(), claim_next(), run, ...;
//              then finish() under the lock.
// Any other:   scavenge() under the lock.
//
// Every operation needs a claim, so a claim is a store and a load without a full fence; the thread that takes
// operations away pays for the fence (asymmetric_fence.h). If both happen at once, the owner may store a
// claim and then see that the operation has been excluded by the limit: the owner does not run it, and
// finish() gives it back.
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
  Atomic<uint32_t> claimed{0};  // operations that the owner has started or tried to claim
  Atomic<uint32_t> limit{0};    // operations that it may start; lowered by the thread that takes the rest
  Atomic<uint32_t> done{0};     // operations that have run: the first `done` of ops
  Atomic<uint32_t> failed{0};   // the place of the one that failed, counted from 1; the last that ran
  uint32_t completed = 0;       // of the `done`, those given to DependencyState (under the lock)
  uint32_t size = 0;            // written under the lock
  uint32_t seen_claimed = 0;    // `claimed` when stuck() last saw it change (under the lock), and when
  uint64_t seen_ticks = 0;
  Op* ops[kMaxBatch];  // null: the operation has left the batch, and is completed elsewhere

  /// Begins a batch of the first `n` of ops, and claims the first of them.
  void start(size_t n) {
    claimed.store(1, std::memory_order_relaxed);
    limit.store(static_cast<uint32_t>(n), std::memory_order_relaxed);
    done.store(0, std::memory_order_relaxed);
    failed.store(0, std::memory_order_relaxed);
    completed = 0;
    seen_claimed = 0;
    size = static_cast<uint32_t>(n);
  }

  /// Returns true if the owner, which has run `ran` operations, may run the next one. If false, the owner
  /// must run no more of this batch.
  bool claim_next(uint32_t ran) {
    claimed.store(ran + 1, std::memory_order_release);
    Fence::light();
    return limit.load(std::memory_order_relaxed) > ran;
  }

  /// Records that the first `n` operations have run.
  void mark_done(uint32_t n) { done.store(n, std::memory_order_release); }

  /// The same, and the last of them has failed. Its kOpFailed is set only when it is completed: until then
  /// its flags belong to the holder of the lock, which may be granting one of its links at this moment.
  void mark_failed(uint32_t n) {
    failed.store(n, std::memory_order_relaxed);
    mark_done(n);
  }

  /// Appends to the first `n` operations those that wait only for operations of this batch. They run right
  /// after these, in the order of the variable's queue. Called when nothing else is ready. Returns the new
  /// number of operations.
  size_t extend(size_t n) {
    for (size_t i = 0; i < n && n < kMaxBatch; ++i) {
      Op* op = ops[i];
      if (!simple(op)) break;
      for (size_t k = 0; k < op->links; ++k) {
        const Link& link = op->link(k);
        if (!link.exclusive() || !link.granted()) continue;
        // The operations queued behind a writer of this batch, up to the first that waits for more.
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

  /// Returns the operation that the owner has claimed last, or null if that has left the batch or has been
  /// completed. Under the lock.
  Op* current() {
    const uint32_t claim = claimed.load(std::memory_order_acquire);
    if (claim <= completed || claim > size) return nullptr;
    return std::atomic_ref<Op*>(ops[claim - 1]).load(std::memory_order_relaxed);
  }
  /// Removes the operation in this place from the batch: it is completed elsewhere. Called by the owner,
  /// before mark_done(), so a thread that completes the batch sees the null pointer.
  static void leave(Op*& place) { std::atomic_ref<Op*>(place).store(nullptr, std::memory_order_relaxed); }

  /// Ends the batch. First calls give_back(Op*) for each operation that is ready and was not run, last first;
  /// then complete(Op*) for each that has run.
  template <class GiveBack, class Complete>
  void finish(GiveBack&& give_back, Complete&& complete) {
    const uint32_t ran = done.load(std::memory_order_relaxed);
    if (ran < size) [[unlikely]]
      put_back(ran, give_back);
    complete_first(ran, complete);
    size = 0;
  }

  /// Undoes start(). Must be called before the lock under which start() was called has been released.
  template <class GiveBack>
  void undo(GiveBack&& give_back) {
    put_back(0, give_back);
    size = 0;
  }

  /// Returns true if the owner is still in the operation in which a call at least `age` ticks ago found it.
  /// Records what this call finds.
  bool stuck(uint64_t now, uint64_t age) {
    const uint32_t seen = claimed.load(std::memory_order_relaxed);
    if (seen != seen_claimed) {
      seen_claimed = seen;
      seen_ticks = now;
    }
    return now - seen_ticks >= age;
  }

  /// Completes the operations that have run, and with `take` gives back those that the owner has not started.
  /// Called under the lock by another thread than the owner, while the owner may run operations.
  template <class GiveBack, class Complete>
  void scavenge(bool take, GiveBack&& give_back, Complete&& complete) {
    // The load acquires, so a thread that sees a claim also sees that the operations before the claimed one
    // are done, and completes them below. So a claimed operation has all its grants when this returns.
    uint32_t taken = claimed.load(std::memory_order_acquire);
    if (take && taken < size) {
      limit.store(taken, std::memory_order_relaxed);
      Fence::heavy();
      // Either the owner sees the limit at its next claim, or it has claimed before and this load sees it.
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

  // Gives back the operations that were not run, last first, so that the ready queue has them in their order.
  // An operation that extend() has taken and that is not ready stays in the variable's queue.
  template <class GiveBack>
  void put_back(uint32_t from, GiveBack&& give_back) {
    for (uint32_t i = size; i-- > from;) {
      Op* op = ops[i];
      if (op->flags & kOpTaken) {
        op->flags &= static_cast<uint8_t>(~kOpTaken);
        if (op->pending != 0) continue;  // it becomes ready when the one before it is completed
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
