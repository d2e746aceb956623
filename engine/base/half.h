// float16 (IEEE binary16) and bfloat16 as storage types: 2 bytes that convert to and from float.
//
// Arithmetic happens in float; conversion back rounds to nearest, ties to even, as hardware does. NaNs stay
// NaNs (quiet), values beyond the range become infinities, subnormals are kept.
#pragma once

#include <bit>
#include <compare>
#include <concepts>
#include <cstdint>

namespace mx {

namespace detail {

/// Bits of the binary16 nearest to `value`.
inline uint16_t float_to_half(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  const uint32_t sign = (bits >> 16) & 0x8000;
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude >= 0x7f800000)  // infinity or NaN
    return static_cast<uint16_t>(sign | 0x7c00 |
                                 (magnitude > 0x7f800000 ? 0x200 | ((magnitude >> 13) & 0x3ff) : 0));
  if (magnitude >= 0x477ff000) return static_cast<uint16_t>(sign | 0x7c00);  // rounds beyond 65504
  if (magnitude < 0x38800000) {
    // Subnormal: adding 0.5 moves the result's bits, correctly rounded, to the end of the sum's mantissa.
    const float sum = std::bit_cast<float>(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(sum) - 0x3f000000));
  }
  const uint32_t rounded = magnitude + 0xfff + ((magnitude >> 13) & 1);
  return static_cast<uint16_t>(sign | ((rounded - 0x38000000) >> 13));
}

inline float half_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000) << 16;
  const uint32_t exponent = (half >> 10) & 0x1f;
  const uint32_t mantissa = half & 0x3ff;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000 | (mantissa << 13));
  if (exponent == 0) {
    const float value = static_cast<float>(mantissa) * 0x1p-24f;
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

inline uint16_t float_to_bfloat(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value);
  if ((bits & 0x7fffffff) > 0x7f800000) return static_cast<uint16_t>((bits >> 16) | 0x40);
  return static_cast<uint16_t>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

inline float bfloat_to_float(uint16_t bits) {
  return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
}

}  // namespace detail

struct float16 {
  uint16_t bits;
  float16() = default;
  float16(float value) : bits(detail::float_to_half(value)) {}
  operator float() const { return detail::half_to_float(bits); }
};

struct bfloat16 {
  uint16_t bits;
  bfloat16() = default;
  bfloat16(float value) : bits(detail::float_to_bfloat(value)) {}
  operator float() const { return detail::bfloat_to_float(bits); }
};

template <class T>
concept HalfFloat = std::same_as<T, float16> || std::same_as<T, bfloat16>;

// Arithmetic and comparisons in float. Without these functions `a + b` and `a == b` would be ambiguous,
// because operators of arrays accept such numbers too.
template <HalfFloat A, HalfFloat B>
float operator+(A a, B b) {
  return static_cast<float>(a) + static_cast<float>(b);
}
template <HalfFloat A, HalfFloat B>
float operator-(A a, B b) {
  return static_cast<float>(a) - static_cast<float>(b);
}
template <HalfFloat A, HalfFloat B>
float operator*(A a, B b) {
  return static_cast<float>(a) * static_cast<float>(b);
}
template <HalfFloat A, HalfFloat B>
float operator/(A a, B b) {
  return static_cast<float>(a) / static_cast<float>(b);
}
template <HalfFloat A, HalfFloat B>
bool operator==(A a, B b) {
  return static_cast<float>(a) == static_cast<float>(b);
}
template <HalfFloat A, HalfFloat B>
std::partial_ordering operator<=>(A a, B b) {
  return static_cast<float>(a) <=> static_cast<float>(b);
}

static_assert(sizeof(float16) == 2 && sizeof(bfloat16) == 2);

}  // namespace mx
