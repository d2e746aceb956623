// FixedList: a list of up to kCapacity elements in place, without an allocation. For the lists of one call
// that have an entry per dimension, such as the arrays of an index. Internal.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <utility>

#include "engine/base/check.h"

namespace mx::detail {

/// T must be default constructible: elements beyond size() hold such values.
template <class T, size_t kCapacity>
class FixedList {
 public:
  /// Throws InvalidArgument if the list is full.
  void push_back(T item) {
    MX_CHECK(size_ < kCapacity, InvalidArgument, "[index] expected at most ", kCapacity,
             " arrays in one index, got more");
    items_[size_++] = std::move(item);
  }
  /// Appends default values up to that size. Precondition: size() <= size <= kCapacity.
  void grow(size_t size) { size_ = size; }

  T& operator[](size_t i) { return items_[i]; }
  const T& operator[](size_t i) const { return items_[i]; }
  T& back() { return items_[size_ - 1]; }
  const T* begin() const { return items_.data(); }
  const T* end() const { return items_.data() + size_; }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  operator std::span<const T>() const { return {items_.data(), size_}; }

 private:
  std::array<T, kCapacity> items_;
  size_t size_ = 0;
};

}  // namespace mx::detail
