// The order of elements as the order of unsigned numbers, for sorting on every device: NaN last, -0 equal to
// 0.
#pragma once

#include <bit>
#include <cstdint>
#include <limits>
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
constexpr BitsOf<T> raw_key(T value) {
  using Bits = BitsOf<T>;
  const auto bits = std::bit_cast<Bits>(value);
  if constexpr (kOfFloating<T>) {
    return static_cast<Bits>((bits & kSignBit<T>) != 0 ? ~bits : bits | kSignBit<T>);
  } else {
    return static_cast<Bits>(std::is_signed_v<T> ? bits ^ kSignBit<T> : bits);
  }
}
template <class T>
constexpr T element_of_key(BitsOf<T> key) {
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
constexpr bool is_special(T value) {
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
constexpr BitsOf<T> key_of(T value, bool descending) {
  using Bits = BitsOf<T>;
  Bits key = raw_key(value);
  if constexpr (kOfFloating<T>) {
    const auto size = static_cast<Bits>(std::bit_cast<Bits>(value) & ~kSignBit<T>);
    if (size > kInfinityBits<T>) return std::numeric_limits<Bits>::max();
    if (size == 0) key = kSignBit<T>;
  }
  return descending ? static_cast<Bits>(~key) : key;
}

}  // namespace mx::kernels
