// ReadyQueue: operations that may run, best first. Internal; used under the engine's lock.
//
// Higher priorities come first; operations of one priority are first come, first served, except those that
// push_released() adds. Operations of priority 0, the common case, are in an intrusive list, all others in an
// intrusive tree. Nothing is allocated.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/detail/op.h"
#include "engine/detail/priority_tree.h"

namespace mx::detail {

class ReadyQueue {
 public:
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  /// Returns true if there is an operation of a priority above 0.
  bool urgent() const { return !tree_.empty() && tree_.first()->priority > 0; }

  bool has_priorities() const { return !tree_.empty(); }

  void push(Op* op) {
    ++size_;
    if (op->priority == 0) [[likely]] {
      op->next() = nullptr;
      (head_ == nullptr ? head_ : tail_->next()) = op;
      tail_ = op;
    } else {
      tree_.insert(op, sequence_++);
    }
  }

  /// Adds an operation for which others had to end, before those of priority 0 that never had to wait, and
  /// behind those added in this way since the last operation was taken. So the operations that use a result
  /// come before others that would make more results, and its memory is free sooner.
  void push_released(Op* op) {
    if (op->priority != 0 || head_ == nullptr) {
      push(op);
      if (op->priority == 0) released_ = op;
      return;
    }
    ++size_;
    Op*& place = released_ == nullptr ? head_ : released_->next();
    op->next() = place;
    place = op;
    if (op->next() == nullptr) tail_ = op;
    released_ = op;
  }

  /// Puts back an operation that was taken and not started, before all others of its priority.
  void push_front(Op* op) {
    ++size_;
    if (op->priority != 0) {
      tree_.insert(op, --front_sequence_);
      return;
    }
    op->next() = head_;
    head_ = op;
    if (tail_ == nullptr || op->next() == nullptr) tail_ = op;
  }

  Op* pop() {
    released_ = nullptr;
    if (!tree_.empty() && (tree_.first()->priority > 0 || head_ == nullptr)) [[unlikely]]
      return take(tree_.first());
    --size_;
    Op* op = head_;
    head_ = op->next();
    return op;
  }

  /// Removes and returns the n-th operation, counted from 0, in no particular order. For random schedules.
  /// Precondition: n < size().
  Op* pop_nth(size_t n) {
    released_ = nullptr;
    if (n < tree_.size()) {
      Op* op = tree_.first();
      for (; n > 0; --n) op = PriorityTree::after(op);
      return take(op);
    }
    n -= tree_.size();
    Op* before = nullptr;
    for (Op* op = head_; n > 0; --n, op = op->next()) before = op;
    return take_behind(before);
  }

  /// Removes and returns the best operation for which f(op) is true, or null. Tries at most `limit`
  /// operations each of those with a priority above 0, of priority 0, and below 0.
  template <class F>
  Op* pop_if(size_t limit, F&& f) {
    released_ = nullptr;
    Op* op = tree_.first();
    for (size_t i = 0; op != nullptr && op->priority > 0 && i < limit; ++i, op = PriorityTree::after(op)) {
      if (f(op)) return take(op);
    }
    Op* before = nullptr;
    Op* listed = head_;
    for (size_t i = 0; listed != nullptr && i < limit; ++i, before = listed, listed = listed->next()) {
      if (f(listed)) return take_behind(before);
    }
    // If there are more urgent operations than the limit, those below 0 are not tried either.
    for (size_t i = 0; op != nullptr && op->priority < 0 && i < limit; ++i, op = PriorityTree::after(op)) {
      if (f(op)) return take(op);
    }
    return nullptr;
  }

  template <class F>
  void for_each(F&& f) {
    for (Op* op = tree_.first(); op != nullptr; op = PriorityTree::after(op)) f(op);
    for (Op* op = head_; op != nullptr; op = op->next()) f(op);
  }

 private:
  Op* take(Op* op) {
    --size_;
    tree_.remove(op);
    return op;
  }
  // Removes and returns the operation after `before` in the list, or the first if `before` is null.
  Op* take_behind(Op* before) {
    --size_;
    Op*& place = before == nullptr ? head_ : before->next();
    Op* op = place;
    place = op->next();
    if (op == tail_) tail_ = before;
    return op;
  }

  Op* head_ = nullptr;
  Op* tail_ = nullptr;
  Op* released_ = nullptr;  // the last one that push_released() has added, if none was taken since
  size_t size_ = 0;
  int64_t sequence_ = 0;
  int64_t front_sequence_ = 0;
  PriorityTree tree_;
};

}  // namespace mx::detail
