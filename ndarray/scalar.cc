#include "ndarray/scalar.h"

#include <cmath>
#include <limits>
#include <ostream>

#include "engine/base/check.h"
#include "ndarray/kernels/convert.h"

namespace mx {
namespace {

template <class T>
bool is_below(const Scalar& number) {
  if (number.floating()) {
    // Fractions are truncated, so -0.5 is 0 and not below an unsigned type. For i64, kLeast - 1 rounds to
    // kLeast, which is therefore excluded.
    constexpr auto kLeast = static_cast<double>(std::numeric_limits<T>::min());
    return number.real() <= kLeast - 1 && number.real() != kLeast;
  }
  return number.fits() && number.integer() < static_cast<int64_t>(std::numeric_limits<T>::min());
}

template <class T>
bool is_above(const Scalar& number) {
  // For i64 the limit is 2^63: its largest value is not a double, and rounds to 2^63.
  if (number.floating()) return number.real() >= static_cast<double>(std::numeric_limits<T>::max()) + 1;
  return !number.fits() || number.integer() > static_cast<int64_t>(std::numeric_limits<T>::max());
}

}  // namespace

template <class T>
T Scalar::to() const {
  if constexpr (std::is_same_v<T, bool>) {
    return truth();
  } else if constexpr (std::is_integral_v<T>) {
    if (is_below<T>(*this)) return std::numeric_limits<T>::min();
    if (is_above<T>(*this)) return std::numeric_limits<T>::max();
    return floating() ? convert<T>(real()) : static_cast<T>(integer());
  } else if constexpr (std::is_same_v<T, float> || std::is_same_v<T, double>) {
    if (floating()) return static_cast<T>(real());
    return fits() ? static_cast<T>(integer()) : static_cast<T>(unsigned_integer());
  } else {
    return T(to<float>());
  }
}

template float Scalar::to<float>() const;
template double Scalar::to<double>() const;
template float16 Scalar::to<float16>() const;
template bfloat16 Scalar::to<bfloat16>() const;
template int8_t Scalar::to<int8_t>() const;
template uint8_t Scalar::to<uint8_t>() const;
template int32_t Scalar::to<int32_t>() const;
template int64_t Scalar::to<int64_t>() const;
template bool Scalar::to<bool>() const;

bool below_all(const Scalar& number, DType dtype) {
  return visit(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      return is_below<T>(number);
    } else {
      return false;
    }
  });
}

bool above_all(const Scalar& number, DType dtype) {
  return visit(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T> && !std::is_same_v<T, bool>) {
      return is_above<T>(number);
    } else {
      return false;
    }
  });
}

bool fits(const Scalar& number, DType dtype) {
  // Frequent case: every type can hold small numbers.
  if (!number.floating() && number.fits() && number.integer() >= 0 && number.integer() <= 127) return true;
  if (is_integral(dtype))
    return !below_all(number, dtype) && !above_all(number, dtype) && !std::isnan(number.real());
  if (!is_floating(dtype) || !std::isfinite(number.real())) return true;
  return visit(dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    return std::isfinite(static_cast<double>(number.to<T>()));
  });
}

void check_fits(const Scalar& number, DType dtype, const char* op) {
  if (fits(number, dtype)) [[likely]]
    return;
  const std::string range = visit(dtype, [](auto tag) {
    using T = typename decltype(tag)::type;
    if constexpr (std::is_integral_v<T>)
      return detail::concat(" (", +std::numeric_limits<T>::min(), " to ", +std::numeric_limits<T>::max(),
                            ")");
    return std::string();
  });
  throw InvalidArgument(
      detail::concat("[", op, "] expected a number that ", dtype, range, " can hold, got ", number));
}

std::string to_string(const Scalar& number) {
  if (number.category() == bool_) return number.truth() ? "true" : "false";
  if (!number.floating())
    return number.fits() ? std::to_string(number.integer()) : std::to_string(number.unsigned_integer());
  return detail::concat(number.real());
}

std::ostream& operator<<(std::ostream& out, const Scalar& number) { return out << to_string(number); }

}  // namespace mx
