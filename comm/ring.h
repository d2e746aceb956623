// Ring: a queue that grows and never shrinks, so that it allocates nothing in its steady state. Internal.
//
// Slots are used again with what they hold. So an element that owns memory, such as a vector, keeps it for
// the next element in its slot.
//
// Thread-safety: none.
#pragma once

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

namespace mx::comm {

template <class T>
class Ring {
 public:
  bool empty() const { return size_ == 0; }
  size_t size() const { return size_; }
  /// Element i, counted from the oldest. Precondition: i < size().
  T& operator[](size_t i) { return slots_[(first_ + i) & (slots_.size() - 1)]; }
  const T& operator[](size_t i) const { return slots_[(first_ + i) & (slots_.size() - 1)]; }
  T& front() { return (*this)[0]; }
  const T& front() const { return (*this)[0]; }

  /// Appends an element and returns it. It holds what was in its slot before.
  T& push() {
    if (size_ == slots_.size()) grow();
    return (*this)[size_++];
  }
  /// Removes the oldest element. Precondition: not empty.
  void pop() {
    first_ = (first_ + 1) & (slots_.size() - 1);
    --size_;
  }
  /// Keeps the oldest `count` elements. Precondition: count <= size().
  void truncate(size_t count) { size_ = count; }

 private:
  void grow() {
    std::vector<T> larger(std::max<size_t>(16, 2 * slots_.size()));
    for (size_t i = 0; i < size_; ++i) larger[i] = std::move((*this)[i]);
    slots_.swap(larger);
    first_ = 0;
  }

  std::vector<T> slots_;  ///< its size is 0 or a power of two
  size_t first_ = 0, size_ = 0;
};

}  // namespace mx::comm
