// Scalar: a C++ number as an operand of operations on arrays.
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

/// The exact value of a bool, an integer of up to 64 bits or a floating-point number. Type promotion uses
/// only its category.
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

  /// Returns bool_, i64 or f64.
  DType category() const {
    return kind_ == Kind::real ? DType::f64 : kind_ == Kind::boolean ? DType::bool_ : DType::i64;
  }
  bool floating() const { return kind_ == Kind::real; }
  /// Returns the nearest double.
  double real() const {
    if (kind_ == Kind::real) return std::bit_cast<double>(bits_);
    return kind_ == Kind::large ? static_cast<double>(bits_) : static_cast<double>(integer());
  }
  /// Returns the integer; 0 for a floating-point number, and if fits() is false.
  int64_t integer() const { return floating() || !fits() ? 0 : static_cast<int64_t>(bits_); }
  /// Returns false for an integer that an int64_t cannot hold; unsigned_integer() returns it.
  bool fits() const { return kind_ != Kind::large; }
  /// Returns an integer of 2^63 or more. Precondition: fits() is false.
  uint64_t unsigned_integer() const { return bits_; }
  bool truth() const { return floating() ? real() != 0 : bits_ != 0; }

  /// Converts to T. A floating-point T rounds. An integer T saturates numbers out of range, truncates
  /// fractions, and converts NaN to 0. bool is true for every number but 0. Use mx::fits() first if a changed
  /// value would be an error.
  template <class T>
  T to() const;

 private:
  enum class Kind : uint8_t { boolean, integer, large, real };
  uint64_t bits_ = 0;
  Kind kind_ = Kind::integer;
};

/// Returns true if an element of that type can be set to the number. An integer type accepts numbers in its
/// range and truncates fractions. A floating-point type accepts every number that does not become infinite by
/// rounding. bool accepts every number.
bool fits(const Scalar& number, DType dtype);
/// Throws InvalidArgument, naming `op`, the number and the type, if fits() is false.
void check_fits(const Scalar& number, DType dtype, const char* op);
/// Return true if the number is below, or above, all values of an integer type; false for other types.
bool below_all(const Scalar& number, DType dtype);
bool above_all(const Scalar& number, DType dtype);

/// "true", "300", "2.5".
std::string to_string(const Scalar& number);
std::ostream& operator<<(std::ostream& out, const Scalar& number);

/// A floating-point parameter of a function. It accepts every number but bool: a bool is a flag in the wrong
/// position, as in stddev(x, 1, true), and does not compile.
class RealArg {
 public:
  template <class T>
  requires(std::is_arithmetic_v<T> && !std::same_as<T, bool>) constexpr RealArg(T value)
      : value_(static_cast<double>(value)) {}
  constexpr operator double() const { return value_; }

 private:
  double value_;
};

namespace detail {
/// An integer of any type but bool, or an enumerator that is a number without a cast: enum { batch, time }.
template <class T>
concept IntegerNumber = (std::integral<T> || (std::is_enum_v<T> && std::convertible_to<T, int64_t>)) &&
                        !std::same_as<T, bool>;
/// Returns the number; the largest int64_t if an int64_t cannot hold it.
template <IntegerNumber T>
constexpr int64_t int64_of(T number) {
  // +: in_range() takes neither characters nor enumerators.
  return std::in_range<int64_t>(+number) ? static_cast<int64_t>(number) : INT64_MAX;
}
}  // namespace detail

/// An integer parameter of a function, or an integer option: an axis, a count. It accepts every integer but
/// bool, and enumerators that convert to integers. An integer that an int64_t cannot hold becomes the largest
/// int64_t, so that it is out of range and not negative.
class IntArg {
 public:
  template <detail::IntegerNumber T>
  constexpr IntArg(T value) : value_(detail::int64_of(value)) {}
  constexpr operator int64_t() const { return value_; }
  /// For options that a program changes or reads from a stream: `options.steps *= 2`, `in >> options.steps`.
  constexpr operator int64_t&() & { return value_; }

 private:
  int64_t value_;
};

}  // namespace mx
