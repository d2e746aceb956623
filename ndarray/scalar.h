// Scalar: a C++ number on its way into an operation on arrays.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <ostream>
#include <string>
#include <type_traits>
#include <utility>

#include "ndarray/dtype.h"

namespace mx {

/// The exact value of a bool, an integer of up to 64 bits or a floating-point number. Type promotion looks at
/// the category only.
class Scalar {
 public:
  Scalar() = default;
  template <class T>
  requires std::is_arithmetic_v<T> Scalar(T value) {
    if constexpr (std::is_same_v<T, bool>) {
      kind_ = Kind::boolean;
      bits_ = value ? 1 : 0;
    } else if constexpr (std::is_integral_v<T>) {
      bits_ = static_cast<uint64_t>(value);
      if (std::is_unsigned_v<T> && bits_ > static_cast<uint64_t>(INT64_MAX)) kind_ = Kind::large;
    } else {
      kind_ = Kind::real;
      bits_ = std::bit_cast<uint64_t>(static_cast<double>(value));
    }
  }
  Scalar(float16 value) : Scalar(static_cast<float>(value)) {}
  Scalar(bfloat16 value) : Scalar(static_cast<float>(value)) {}

  /// bool_, i64 or f64.
  DType category() const {
    return kind_ == Kind::real ? DType::f64 : kind_ == Kind::boolean ? DType::bool_ : DType::i64;
  }
  bool floating() const { return kind_ == Kind::real; }
  /// The nearest double.
  double real() const {
    if (kind_ == Kind::real) return std::bit_cast<double>(bits_);
    return kind_ == Kind::large ? static_cast<double>(bits_) : static_cast<double>(integer());
  }
  /// 0 for a floating-point number, and where fits() says no.
  int64_t integer() const { return floating() || !fits() ? 0 : static_cast<int64_t>(bits_); }
  /// Is it one that an int64_t holds, if it is an integer? If not, unsigned_integer() has it.
  bool fits() const { return kind_ != Kind::large; }
  /// An integer of 2^63 or more; only where fits() says no.
  uint64_t unsigned_integer() const { return bits_; }
  bool truth() const { return floating() ? real() != 0 : bits_ != 0; }

  /// A number of that type as T, which must be able to hold it but for rounding: integers out of range become
  /// the nearest that T has, fractions of integers are cut off, NaN becomes the integer 0. bool: its truth.
  template <class T>
  T to() const;

 private:
  enum class Kind : uint8_t { boolean, integer, large, real };
  uint64_t bits_ = 0;
  Kind kind_ = Kind::integer;
};

/// Can an element of that type be set to the number? An integer type takes what is in its range, and cuts off
/// fractions; a floating-point type takes everything that does not become infinite by rounding; bool takes
/// everything, as its truth.
bool fits(const Scalar& number, DType dtype);
/// Throws InvalidArgument, which names `op`, the number and the type, where fits() says no.
void check_fits(const Scalar& number, DType dtype, const char* op);
/// Below all values of an integer type, or above?
bool below_all(const Scalar& number, DType dtype);
bool above_all(const Scalar& number, DType dtype);

/// "true", "300", "2.5".
std::string to_string(const Scalar& number);
std::ostream& operator<<(std::ostream& out, const Scalar& number);

/// A floating-point parameter of a function. It takes every number but bool: a bool there is a flag that
/// stands in the wrong place, as in stddev(x, 1, true), and does not compile.
class RealArg {
 public:
  template <class T>
  requires(std::is_arithmetic_v<T> && !std::same_as<T, bool>) constexpr RealArg(T value)
      : value_(static_cast<double>(value)) {}
  constexpr operator double() const { return value_; }

 private:
  double value_;
};

/// An integer parameter of a function, or an option: an axis, a count. It takes every integer but bool. An
/// integer that an int64_t does not hold becomes the largest int64_t, so it is out of range wherever it is
/// used, instead of negative.
class IntArg {
 public:
  template <class T>
  requires(std::integral<T> && !std::same_as<T, bool>) constexpr IntArg(T value)
      : value_(std::in_range<int64_t>(value) ? static_cast<int64_t>(value) : INT64_MAX) {}
  constexpr operator int64_t() const { return value_; }
  /// For options that a program changes or reads from a stream: `options.steps *= 2`, `in >> options.steps`.
  constexpr operator int64_t&() & { return value_; }

 private:
  int64_t value_;
};

}  // namespace mx
