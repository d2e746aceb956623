// Scalar: a C++ number on its way into an operation on arrays.
#pragma once

#include <concepts>
#include <cstdint>
#include <type_traits>

#include "ndarray/dtype.h"

namespace mx {

/// Remembers whether it was a bool, an integer or a floating-point number: in type promotion only that
/// counts. An integer of 2^63 or more is an integer that only real() has: arrays of integers refuse it.
class Scalar {
 public:
  template <class T>
  requires std::is_arithmetic_v<T> Scalar(T value)
      : category_(std::is_same_v<T, bool> ? DType::bool_
                  : std::is_integral_v<T> ? DType::i64
                                          : DType::f64),
        real_(static_cast<double>(value)),
        fits_(!std::is_integral_v<T> || !beyond(value)),
        integer_(std::is_integral_v<T> && fits_ ? static_cast<int64_t>(value) : 0) {}
  Scalar(float16 value) : Scalar(static_cast<float>(value)) {}
  Scalar(bfloat16 value) : Scalar(static_cast<float>(value)) {}

  /// bool_, i64 or f64.
  DType category() const { return category_; }
  bool floating() const { return category_ == DType::f64; }
  double real() const { return real_; }
  /// 0 for a floating-point number, and where fits() says no.
  int64_t integer() const { return integer_; }
  /// Is it one that an int64_t holds, if it is an integer?
  bool fits() const { return fits_; }

 private:
  template <class T>
  static constexpr bool beyond(T value) {
    if constexpr (std::unsigned_integral<T> && sizeof(T) >= sizeof(int64_t)) {
      return value > static_cast<uint64_t>(INT64_MAX);
    } else {
      return false;
    }
  }

  DType category_;
  double real_;
  bool fits_;
  int64_t integer_;
};

}  // namespace mx
