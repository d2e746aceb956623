// ReadyQueue: operations that may run, best first. Internal; used under the engine's lock.
//
// Higher priority first, and first come first served within one. Priority 0, the common case, is a list
// through the operations themselves; the others go through a heap.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "engine/detail/op.h"

namespace mx::detail {

class ReadyQueue {
 public:
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  /// Something of a priority above 0 is there.
  bool urgent() const { return !heap_.empty() && heap_.front().priority > 0; }

  bool has_priorities() const { return !heap_.empty(); }

  void push(Op* op) {
    ++size_;
    if (op->priority == 0) [[likely]] {
      op->next() = nullptr;
      (head_ == nullptr ? head_ : tail_->next()) = op;
      tail_ = op;
    } else {
      heap_.push_back({op->priority, sequence_++, op});
      std::push_heap(heap_.begin(), heap_.end());
    }
  }

  /// Back to the front: an operation that was taken and not started.
  void push_front(Op* op) {
    ++size_;
    if (op->priority != 0) {
      heap_.push_back({op->priority, --front_sequence_, op});
      std::push_heap(heap_.begin(), heap_.end());
      return;
    }
    op->next() = head_;
    head_ = op;
    if (tail_ == nullptr || op->next() == nullptr) tail_ = op;
  }

  Op* pop() {
    --size_;
    if (!heap_.empty() && (heap_.front().priority > 0 || head_ == nullptr)) [[unlikely]]
      return pop_heap();
    Op* op = head_;
    head_ = op->next();
    return op;
  }

  /// The n-th of size() in no particular order, 0-based; for random schedules.
  Op* pop_nth(size_t n) {
    --size_;
    if (n < heap_.size()) {
      Op* op = heap_[n].op;
      heap_.erase(heap_.begin() + static_cast<std::ptrdiff_t>(n));
      std::make_heap(heap_.begin(), heap_.end());
      return op;
    }
    n -= heap_.size();
    Op** place = &head_;
    Op* before = nullptr;
    for (; n > 0; --n) {
      before = *place;
      place = &before->next();
    }
    Op* op = *place;
    *place = op->next();
    if (op == tail_) tail_ = before;
    return op;
  }

  /// Removes and returns the first of the first `limit` list entries for which f(op) holds, or null.
  template <class F>
  Op* pop_if(size_t limit, F&& f) {
    for (size_t i = 0; i < heap_.size() && i < limit; ++i) {
      if (f(heap_[i].op)) return pop_nth(i);
    }
    Op* op = head_;
    for (size_t i = 0; op != nullptr && i < limit; ++i, op = op->next()) {
      if (f(op)) return pop_nth(heap_.size() + i);
    }
    return nullptr;
  }

  template <class F>
  void for_each(F&& f) {
    for (const Entry& entry : heap_) f(entry.op);
    for (Op* op = head_; op != nullptr; op = op->next()) f(op);
  }

 private:
  struct Entry {
    int16_t priority;
    int64_t sequence;
    Op* op;
    bool operator<(const Entry& other) const {
      return priority != other.priority ? priority < other.priority : sequence > other.sequence;
    }
  };

  Op* pop_heap() {
    std::pop_heap(heap_.begin(), heap_.end());
    Op* op = heap_.back().op;
    heap_.pop_back();
    return op;
  }

  Op* head_ = nullptr;
  Op* tail_ = nullptr;
  size_t size_ = 0;
  int64_t sequence_ = 0;
  int64_t front_sequence_ = 0;
  std::vector<Entry> heap_;
};

}  // namespace mx::detail
