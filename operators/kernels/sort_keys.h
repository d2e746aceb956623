// Sort keys: unsigned numbers whose order is that of the elements, alone or combined with the element's
// index; and sorting them.
//
// Keys are sorted by Highway's vector quicksort; several threads sort pieces, which are then merged. Equal
// keys are identical in every bit, so only one sorted order exists and results do not depend on the number of
// threads.
#pragma once

#include <hwy/base.h>
#include <hwy/contrib/sort/vqsort.h>

#include <bit>
#include <cstdint>
#include <limits>
#include <memory>
#include <type_traits>

#include "engine/base/half.h"

namespace mx::kernels {

/// The unsigned integer of T's size.
template <class T>
using BitsOf = std::conditional_t<
    sizeof(T) == 1, uint8_t,
    std::conditional_t<sizeof(T) == 2, uint16_t, std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;

template <class T>
inline constexpr BitsOf<T> kSignBit = static_cast<BitsOf<T>>(BitsOf<T>{1} << (8 * sizeof(T) - 1));
template <class T>
inline constexpr BitsOf<T> kInfinityBits = 0;
template <>
inline constexpr uint32_t kInfinityBits<float> = 0x7f800000;
template <>
inline constexpr uint64_t kInfinityBits<double> = 0x7ff0000000000000;
template <>
inline constexpr uint16_t kInfinityBits<float16> = 0x7c00;
template <>
inline constexpr uint16_t kInfinityBits<bfloat16> = 0x7f80;
template <class T>
inline constexpr bool kOfFloating = kInfinityBits<T> != 0;

/// Returns a key with the order of the numbers: -0 before 0, and each NaN beyond one of the infinities.
/// element_of_key() is the inverse.
template <class T>
BitsOf<T> raw_key(T value) {
  using Bits = BitsOf<T>;
  const auto bits = std::bit_cast<Bits>(value);
  if constexpr (kOfFloating<T>) {
    return static_cast<Bits>((bits & kSignBit<T>) != 0 ? ~bits : bits | kSignBit<T>);
  } else {
    return static_cast<Bits>(std::is_signed_v<T> ? bits ^ kSignBit<T> : bits);
  }
}
template <class T>
T element_of_key(BitsOf<T> key) {
  using Bits = BitsOf<T>;
  if constexpr (kOfFloating<T>) {
    return std::bit_cast<T>(static_cast<Bits>((key & kSignBit<T>) != 0 ? key ^ kSignBit<T> : ~key));
  } else {
    return std::bit_cast<T>(static_cast<Bits>(std::is_signed_v<T> ? key ^ kSignBit<T> : key));
  }
}

/// Returns true for NaN and -0: they equal elements with other bits, or their place differs from that of
/// their raw key.
template <class T>
bool is_special(T value) {
  if constexpr (kOfFloating<T>) {
    const auto bits = std::bit_cast<BitsOf<T>>(value);
    return static_cast<BitsOf<T>>(bits & ~kSignBit<T>) > kInfinityBits<T> || bits == kSignBit<T>;
  } else {
    return false;
  }
}

/// Returns the same key for equal elements: -0 has the key of 0, and all NaNs have one key, which is last in
/// either direction.
template <class T>
BitsOf<T> key_of(T value, bool descending) {
  using Bits = BitsOf<T>;
  Bits key = raw_key(value);
  if constexpr (kOfFloating<T>) {
    const auto size = static_cast<Bits>(std::bit_cast<Bits>(value) & ~kSignBit<T>);
    if (size > kInfinityBits<T>) return std::numeric_limits<Bits>::max();
    if (size == 0) key = kSignBit<T>;
  }
  return descending ? static_cast<Bits>(~key) : key;
}

/// A key and an index in one number. The index makes all of them different.
struct Packed64 {
  using Number = uint64_t;
  static constexpr int64_t kMost = int64_t{1} << 32;  // the largest number of elements
  static Number make(uint32_t key, int64_t index) {
    return uint64_t{key} << 32 | static_cast<uint64_t>(index);
  }
  static int64_t index(Number n) { return static_cast<int64_t>(n & 0xffffffff); }
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
  template <class K>
  void sort(Keys<K>& keys);

 private:
  hwy::Sorter sorter_;
};

}  // namespace mx::kernels
