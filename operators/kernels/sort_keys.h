// Sort keys: unsigned numbers whose order is that of the elements, alone or combined with the element's
// index; and sorting them.
//
// Keys are sorted by Highway's vector quicksort; several threads sort pieces, which are then merged. Equal
// keys are identical in every bit, so only one sorted order exists and results do not depend on the number of
// threads.
#pragma once

#include <hwy/base.h>
#include <hwy/contrib/sort/vqsort.h>

#include <cstdint>
#include <limits>
#include <memory>

#include "operators/kernels/sort_key.h"

namespace mx::kernels {

/// A key and an index in one number. The index makes all of them different.
struct Packed64 {
  using Number = uint64_t;
  static constexpr int64_t kMost = int64_t{1} << 32;  // the largest number of elements
  static Number make(uint32_t key, int64_t index) {
    return uint64_t{key} << 32 | static_cast<uint64_t>(index);
  }
  static int64_t index(Number n) { return static_cast<int64_t>(n & 0xffffffff); }
  static uint32_t key(Number n) { return static_cast<uint32_t>(n >> 32); }
  static bool same_key(Number a, Number b) { return (a ^ b) >> 32 == 0; }
};
struct Packed128 {
  using Number = hwy::uint128_t;
  static constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  static Number make(uint64_t key, int64_t index) {
    Number n;
    n.hi = key;
    n.lo = static_cast<uint64_t>(index);
    return n;
  }
  static int64_t index(const Number& n) { return static_cast<int64_t>(n.lo); }
  static uint64_t key(const Number& n) { return n.hi; }
  static bool same_key(const Number& a, const Number& b) { return a.hi == b.hi; }
};

/// Calls f with the smallest packing that suffices for n elements of type T.
template <class T, class F>
void visit_packed(int64_t n, F&& f) {
  if constexpr (sizeof(T) <= 4) {
    if (n <= Packed64::kMost) return f(Packed64());
  }
  f(Packed128());
}

/// An array of keys; not initialised.
template <class K>
struct Keys {
  explicit Keys(int64_t count) : n(count), data(new K[static_cast<size_t>(count)]) {}
  K& operator[](int64_t i) { return data[i]; }
  const K& operator[](int64_t i) const { return data[i]; }
  K* begin() { return data.get(); }
  K* end() { return data.get() + n; }

  int64_t n;
  std::unique_ptr<K[]> data;
};

/// Sorts in ascending order, many keys on several threads. Thread-safety: one thread at a time.
class KeySorter {
 public:
  /// Sorts the `count` smallest keys to the front. The other keys follow in any order; none is lost.
  template <class K>
  void sort_first(Keys<K>& keys, int64_t count);
  /// Sorts the first `count` keys. The others are not read.
  template <class K>
  void sort_front(Keys<K>& keys, int64_t count);
  template <class K>
  void sort(Keys<K>& keys);

 private:
  hwy::Sorter sorter_;
};

}  // namespace mx::kernels
