// PriorityTree: ready operations that have a priority, best first. Internal; used under the engine's lock.
//
// An intrusive treap (Seidel and Aragon, Randomized Search Trees, 1996). A ready operation is in no queue of
// a variable, so the `next` fields of its four links, including unused links, hold the pointers of the tree.
// So nothing is allocated: an operation that has been submitted must run even without memory.
//
// The order is by priority, higher first, then by sequence number, smaller first. The first operation is
// known at once. Insertion and removal take logarithmic time on average, a step to the next operation
// constant time.
#pragma once

#include <cstddef>
#include <cstdint>

#include "engine/detail/op.h"

namespace mx::detail {

class PriorityTree {
 public:
  bool empty() const { return root_ == nullptr; }
  size_t size() const { return size_; }
  /// Returns the best operation, or null if the tree is empty.
  Op* first() const { return first_; }

  /// Adds an operation. `sequence` must be unique among the operations of its priority.
  void insert(Op* op, int64_t sequence) {
    left(op) = right(op) = nullptr;
    sequence_of(op) = sequence;
    Op* above = nullptr;
    bool leftmost = true;
    for (Op* at = root_; at != nullptr;) {
      above = at;
      const bool goes_left = before(op, at);
      leftmost &= goes_left;
      at = goes_left ? left(at) : right(at);
    }
    parent(op) = above;
    if (above == nullptr) {
      root_ = op;
    } else {
      (before(op, above) ? left(above) : right(above)) = op;
    }
    if (leftmost) first_ = op;
    ++size_;
    while (parent(op) != nullptr && weight(parent(op)) < weight(op)) rotate_up(op);
  }

  void remove(Op* op) {
    if (op == first_) first_ = after(op);
    // Move it down until it has at most one child, which then takes its place.
    while (left(op) != nullptr && right(op) != nullptr) {
      rotate_up(weight(left(op)) < weight(right(op)) ? right(op) : left(op));
    }
    Op* child = left(op) != nullptr ? left(op) : right(op);
    if (child != nullptr) parent(child) = parent(op);
    place_of(op) = child;
    --size_;
  }

  /// Returns the next best operation after `op`, or null after the last.
  static Op* after(Op* op) {
    if (Op* at = right(op); at != nullptr) {
      while (left(at) != nullptr) at = left(at);
      return at;
    }
    Op* above = parent(op);
    while (above != nullptr && right(above) == op) {
      op = above;
      above = parent(op);
    }
    return above;
  }

 private:
  static Op*& left(Op* op) { return op->link_a[0].next_op; }
  static Op*& right(Op* op) { return op->link_a[1].next_op; }
  static Op*& parent(Op* op) { return op->link_b[0].next_op; }
  static int64_t& sequence_of(Op* op) { return op->link_b[1].sequence; }
  // A hash of the sequence number, instead of the random number of a treap, so that runs are repeatable.
  static uint64_t weight(Op* op) {
    const uint64_t x = static_cast<uint64_t>(sequence_of(op)) * 0x9e3779b97f4a7c15;
    return (x ^ (x >> 32)) * 0xd6e8feb86659fd93;
  }
  static bool before(Op* a, Op* b) {
    return a->priority != b->priority ? a->priority > b->priority : sequence_of(a) < sequence_of(b);
  }

  Op*& place_of(Op* op) {
    Op* above = parent(op);
    return above == nullptr ? root_ : left(above) == op ? left(above) : right(above);
  }
  // Rotates an operation above its parent, which becomes its child.
  void rotate_up(Op* op) {
    Op* above = parent(op);
    place_of(above) = op;
    parent(op) = parent(above);
    const bool from_left = left(above) == op;
    Op*& inner = from_left ? right(op) : left(op);
    if (inner != nullptr) parent(inner) = above;
    (from_left ? left(above) : right(above)) = inner;
    inner = above;
    parent(above) = op;
  }

  Op* root_ = nullptr;
  Op* first_ = nullptr;
  size_t size_ = 0;
};

}  // namespace mx::detail
