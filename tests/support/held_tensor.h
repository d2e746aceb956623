// Tensors for tests of kernels: each in its own memory, in every layout, with values that include the special
// values of the type.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "ndarray/dtype.h"
#include "ndarray/kernels/convert.h"
#include "ndarray/tensor.h"

namespace mx::test {

/// A tensor and its memory. Bytes between and around the elements hold a pattern, so a write outside the
/// elements is detected.
struct Held {
  std::vector<unsigned char> memory;
  Tensor tensor;
  bool gaps = false;

  static constexpr unsigned char kPattern = 0xA5;
};

inline const std::vector<std::string>& layouts() {
  static const std::vector<std::string> all = {"contiguous", "strided",  "negative",
                                               "transposed", "permuted", "unaligned"};
  return all;
}

/// A tensor of `shape` in one of layouts(), filled with the pattern.
inline Held make_tensor(DType dtype, const Shape& shape, const std::string& layout = "contiguous") {
  Held held;
  const size_t size = size_of(dtype);
  Strides strides = contiguous_strides(shape);
  int64_t start = 0, elements = shape.numel();
  const int rank = shape.rank();
  if (layout == "strided" && rank > 0) {
    for (int i = 0; i < rank; ++i) strides[i] *= 3;
    elements *= 3;
  } else if (layout == "negative" && rank > 0) {
    for (int i = 0; i < rank; ++i) {
      if (shape[i] > 0) start += (shape[i] - 1) * strides[i];
      strides[i] = -strides[i];
    }
    if (elements == 0) start = 0;
  } else if ((layout == "transposed" || layout == "permuted") && rank > 1) {
    // Column-major, or only the last two dimensions exchanged.
    int64_t step = 1;
    if (layout == "transposed") {
      for (int i = 0; i < rank; ++i) {
        strides[i] = step;
        step *= shape[i];
      }
    } else {
      strides[rank - 2] = 1;
      strides[rank - 1] = shape[rank - 2];
    }
  } else if (layout == "unaligned") {
    start = 1;
  }
  held.memory.assign((static_cast<size_t>(elements + start) + 2) * size, Held::kPattern);
  held.tensor = {held.memory.data() + static_cast<size_t>(start) * size, dtype, shape, strides};
  return held;
}

/// Returns the address of the element with row-major index `number`.
inline void* element_at(const Tensor& tensor, int64_t number) {
  int64_t offset = 0;
  for (int i = tensor.rank() - 1; i >= 0; --i) {
    offset += number % tensor.shape[i] * tensor.strides[i];
    number /= tensor.shape[i];
  }
  return tensor.as<char>() + offset * static_cast<int64_t>(size_of(tensor.dtype));
}

/// Returns a tensor of one element: the one with row-major index `number`.
inline Tensor element_of(const Tensor& tensor, int64_t number) {
  return {element_at(tensor, number), tensor.dtype, {}, {}};
}

/// Yields the special values first, then pseudorandom bits of a fixed sequence.
class Values {
 public:
  explicit Values(uint64_t seed = 1) : state_(seed * 0x9E3779B97F4A7C15u) {}

  uint64_t bits() {
    state_ = state_ * 6364136223846793005u + 1442695040888963407u;
    return (state_ >> 29) ^ state_;
  }

  template <class T>
  T next() {
    const uint64_t raw = bits();
    const uint64_t kind = count_++ % 8;
    if constexpr (std::is_same_v<T, bool>) {
      return (raw & 4) != 0;
    } else if constexpr (std::is_integral_v<T>) {
      constexpr T specials[] = {0,
                                1,
                                std::numeric_limits<T>::min(),
                                std::numeric_limits<T>::max(),
                                static_cast<T>(-1),
                                7,
                                8 * sizeof(T)};
      if (kind == 0) return specials[raw / 64 % 7];
      return kind < 4 ? static_cast<T>(static_cast<int64_t>(raw >> 7) % 12 - (std::is_signed_v<T> ? 6 : 0))
                      : static_cast<T>(raw);
    } else if constexpr (sizeof(T) == 2) {
      return T(static_cast<float>(Values::next<float>()));
    } else {
      using L = std::numeric_limits<T>;
      constexpr T specials[] = {T(0),
                                T(-0.0),
                                L::infinity(),
                                -L::infinity(),
                                L::quiet_NaN(),
                                L::denorm_min(),
                                -L::denorm_min(),
                                L::max(),
                                L::lowest(),
                                L::min(),
                                T(1),
                                T(-1),
                                T(0.5),
                                T(2.5)};
      if (kind == 0) return specials[raw / 64 % 14];
      const T unit = static_cast<T>(static_cast<double>(raw & 0xffffff) / double{1 << 24} - 0.5);
      if (kind < 3) return unit * 200;
      return kind < 6 ? unit * 8 : unit;
    }
  }

 private:
  uint64_t state_, count_ = 0;
};

/// Assigns a value to every element.
inline void fill_values(const Tensor& tensor, uint64_t seed = 1) {
  Values values(seed);
  visit(tensor.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const int64_t n = tensor.numel();
    for (int64_t i = 0; i < n; ++i) *static_cast<T*>(element_at(tensor, i)) = values.next<T>();
  });
}

/// Returns the element as a double (int64 is rounded).
inline double value_at(const Tensor& tensor, int64_t number) {
  return visit(tensor.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return static_cast<double>(*static_cast<const T*>(element_at(tensor, number)));
  });
}

/// Returns the row-major index of the first element that differs in a bit (all NaNs count as equal), or -1.
inline int64_t first_difference(const Tensor& a, const Tensor& b) {
  const size_t size = size_of(a.dtype);
  for (int64_t i = 0; i < a.numel(); ++i) {
    if (std::memcmp(element_at(a, i), element_at(b, i), size) == 0) continue;
    if (is_floating(a.dtype)) {
      const double x = value_at(a, i), y = value_at(b, i);
      if (x != x && y != y) continue;
    }
    return i;
  }
  return -1;
}

/// Returns true if the bytes that belong to no element still hold the pattern.
inline bool untouched_between(const Held& held) {
  std::vector<bool> mine(held.memory.size());
  const Tensor& t = held.tensor;
  for (int64_t i = 0; i < t.numel(); ++i) {
    const auto* at = static_cast<const unsigned char*>(element_at(t, i));
    for (size_t k = 0; k < size_of(t.dtype); ++k)
      mine[static_cast<size_t>(at - held.memory.data()) + k] = true;
  }
  for (size_t i = 0; i < mine.size(); ++i)
    if (!mine[i] && held.memory[i] != Held::kPattern) return false;
  return true;
}

/// Returns the distance in units in the last place of T (of a normal or subnormal result); 0 for equal
/// infinities, for two NaNs and for zeros of one sign. If the exact value is infinite or far beyond the range
/// of T, the largest number of T is wrong.
template <class T>
double ulps(T value, long double exact) {
  if (exact != exact || value != value) return exact != exact && value != value ? 0 : 1e30;
  const T rounded = static_cast<T>(exact);
  if (value == rounded) return std::signbit(value) == std::signbit(rounded) || value != 0 ? 0 : 1e30;
  if (std::isinf(value) || std::isinf(rounded)) {
    // One unit in the last place beyond the largest value.
    const T limit = std::numeric_limits<T>::max();
    const bool beside =
        std::fabs(std::isinf(value) ? rounded : value) == limit && (value < 0) == (rounded < 0) &&
        std::fabs(exact) <= limit * (1 + 2 * static_cast<long double>(std::numeric_limits<T>::epsilon()));
    return beside ? 1 : 1e30;
  }
  int exponent;
  std::frexp(rounded, &exponent);
  exponent = std::max(exponent, std::numeric_limits<T>::min_exponent);
  const long double unit = std::ldexp(1.0L, exponent - std::numeric_limits<T>::digits);
  return static_cast<double>(std::fabs(static_cast<long double>(value) - exact) / unit);
}

}  // namespace mx::test
