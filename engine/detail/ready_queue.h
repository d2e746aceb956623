// ReadyQueue: operations that may run, best first. Internal; used under the engine's lock.
//
// Higher priority first, and first come first served within one. Priority 0, the common case, is a list
// through the operations themselves; the others stand in a tree, likewise. Nothing is allocated.
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
  /// Something of a priority above 0 is there.
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

  /// Back to the front: an operation that was taken and not started.
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
    if (!tree_.empty() && (tree_.first()->priority > 0 || head_ == nullptr)) [[unlikely]]
      return take(tree_.first());
    --size_;
    Op* op = head_;
    head_ = op->next();
    return op;
  }

  /// The n-th of size() in no particular order, 0-based; for random schedules.
  Op* pop_nth(size_t n) {
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

  /// Removes and returns the best for which f(op) holds, or null; looks at the first `limit` of the urgent
  /// ones, of the list and of the rest.
  template <class F>
  Op* pop_if(size_t limit, F&& f) {
    Op* op = tree_.first();
    for (size_t i = 0; op != nullptr && op->priority > 0 && i < limit; ++i, op = PriorityTree::after(op)) {
      if (f(op)) return take(op);
    }
    Op* before = nullptr;
    Op* listed = head_;
    for (size_t i = 0; listed != nullptr && i < limit; ++i, before = listed, listed = listed->next()) {
      if (f(listed)) return take_behind(before);
    }
    // (Where there are more urgent ones than the limit, those below 0 are out of reach as well.)
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
  // The one behind `before` in the list; the first behind null.
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
  size_t size_ = 0;
  int64_t sequence_ = 0;
  int64_t front_sequence_ = 0;
  PriorityTree tree_;
};

}  // namespace mx::detail
