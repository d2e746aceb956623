// SubmitRing: the queue to which pushers submit operations, in one total order. Internal.
//
// A bounded queue of many producers and one consumer at a time, the holder of the engine's lock. The order of
// the queue is the order of the program: if one push happens before another, on whatever threads, it comes
// first.
//
// A producer claims a slot and stores its operation by the same compare-and-swap, in the first slot that is
// empty *for its round*. So there is no moment between a claim and a store in which a preempted producer
// delays all later ones, as with a ticket counter. Each producer remembers where to begin: the place after
// its own last item. There is no shared position, which a preempted producer could move back.
//
// An empty slot holds the ticket it waits for, (ticket << 1) | 1. So if a producer sleeps through a whole
// round, its swap fails instead of writing into the wrong place.
//
// The template parameter lets the exhaustive checker (tests/engine/model_check_ring_test.cc) run this very
// code on atomics that it schedules.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace mx::detail {

template <class T, template <class> class Atomic = std::atomic>
class SubmitRing {
 public:
  explicit SubmitRing(size_t capacity) : mask_(capacity - 1), slots_(new Atomic<uintptr_t>[capacity]) {
    for (size_t i = 0; i < capacity; ++i) slots_[i].store(empty(i), std::memory_order_relaxed);
  }

  size_t capacity() const { return mask_ + 1; }

  /// Adds an item. Returns its place in the order, or kFull. Any thread. `hint` belongs to the calling
  /// thread: 0 at its first push to this ring, and kept from one push to the next.
  uint64_t try_push(T* item, uint64_t& hint) {
    uint64_t ticket = hint;
    for (;;) {
      // The head must be read before the slot: then the slot is known to be past its previous round. A
      // producer that reads known_head_ must see what the producer that wrote it saw (acquire, release).
      // Otherwise it could mistake the previous round for this one and leave a hole in the order.
      if (ticket - known_head_.load(std::memory_order_acquire) > mask_) {
        const uint64_t head = head_.load(std::memory_order_acquire);
        known_head_.store(head, std::memory_order_release);
        if (static_cast<int64_t>(ticket - head) < 0) {
          ticket = head;  // all places before the head have been consumed
        } else if (ticket - head > mask_) {
          hint = ticket;
          return kFull;
        }
      }
      Atomic<uintptr_t>& slot = slots_[ticket & mask_];
      uintptr_t seen = slot.load(std::memory_order_relaxed);
      if (seen == empty(ticket) &&
          slot.compare_exchange_strong(seen, reinterpret_cast<uintptr_t>(item), std::memory_order_seq_cst)) {
        // Sequentially consistent, so that the loads of wake_after_submit() are not ordered before it.
        hint = ticket + 1;
        return ticket;
      }
      ++ticket;  // another producer has filled this place, and it may even have been consumed
    }
  }

  /// Returns the place after the last item whose push happened before this call. Reads the slots
  /// of the items in the ring, from the calling thread's `hint` on (see try_push()): all earlier slots are
  /// full.
  uint64_t tail(uint64_t hint = 0) const {
    uint64_t ticket = head_.load(std::memory_order_acquire);
    if (static_cast<int64_t>(hint - ticket) > 0) ticket = hint;
    while (ticket - head_.load(std::memory_order_acquire) <= mask_ ||
           static_cast<int64_t>(ticket - head_.load(std::memory_order_acquire)) < 0) {
      if (slots_[ticket & mask_].load(std::memory_order_acquire) == empty(ticket)) break;
      ++ticket;
    }
    return ticket;
  }

  /// Returns true if there is an item to take. Any thread; the answer may be out of date.
  bool maybe_nonempty() const {
    const uint64_t head = head_.load(std::memory_order_relaxed);
    return (slots_[head & mask_].load(std::memory_order_seq_cst) & 1) == 0;
  }

  /// Takes up to `limit` items in order, and returns how many. Called by the consumer only.
  size_t pop(T** out, size_t limit) {
    uint64_t head = head_.load(std::memory_order_relaxed);
    const size_t mask = mask_;
    Atomic<uintptr_t>* const slots = slots_.get();
    size_t n = 0;
    for (; n < limit; ++n, ++head) {
      Atomic<uintptr_t>& slot = slots[head & mask];
      const uintptr_t value = slot.load(std::memory_order_acquire);
      if (value & 1) break;
      out[n] = reinterpret_cast<T*>(value);
      __builtin_prefetch(out[n], 1);  // it is in another core's cache, and needed next
      slot.store(empty(head + mask + 1), std::memory_order_release);
    }
    if (n > 0) head_.store(head, std::memory_order_release);
    return n;
  }

  /// Returns how many items have been taken.
  uint64_t head() const { return head_.load(std::memory_order_acquire); }

  static constexpr uint64_t kFull = UINT64_MAX;

 private:
  static uintptr_t empty(uint64_t ticket) { return (ticket << 1) | 1; }

  const size_t mask_;
  std::unique_ptr<Atomic<uintptr_t>[]> slots_;
  // A past value of head_, which a producer updates once a round, so that producers need not read the
  // consumer's cache line at every push.
  alignas(64) Atomic<uint64_t> known_head_{0};
  // Written by the consumer.
  alignas(64) Atomic<uint64_t> head_{0};
};

}  // namespace mx::detail
