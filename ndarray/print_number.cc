#include "ndarray/print_number.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <type_traits>

namespace mx::detail {
namespace {

// Enough for the largest double without exponent and 100 digits after the point.
constexpr int kTextSize = 512;

/// Parses "d.ddde+xx".
Decimal parse_scientific(const char* begin, const char* end) {
  Decimal result;
  const char* const e = std::find(begin, end, 'e');
  for (const char* c = begin; c != e; ++c)
    if (*c != '.') result.digits += *c;
  while (result.digits.size() > 1 && result.digits.back() == '0') result.digits.pop_back();
  const char* number = e + 1;
  if (*number == '+') ++number;  // from_chars accepts no plus sign
  std::from_chars(number, end, result.exponent);
  return result;
}

/// Returns true if `value` rounds to `half`, a positive number.
bool reads_as(double value, float16 half) {
  const double self = float(half);
  float16 above = half, below = half;
  ++above.bits;
  --below.bits;
  const double next = half.bits == 0x7bff ? 65536.0 : double{float(above)};
  const double low = (self + float(below)) / 2, high = (self + next) / 2;
  const bool even = (half.bits & 1) == 0;  // then ties round to it
  return (low < value && value < high) || (even && (value == low || value == high));
}

std::string sign_of(double value) { return std::signbit(value) ? "-" : ""; }

std::string exponent_text(int exponent) {
  const std::string number = std::to_string(std::abs(exponent));
  return std::string(exponent < 0 ? "e-" : "e+") + (number.size() < 2 ? "0" : "") + number;
}

/// Returns the digits with the decimal point inserted: "12.5", "3.", "0.05".
std::string place_point(const Decimal& decimal) {
  const int count = static_cast<int>(decimal.digits.size());
  if (decimal.exponent < 0)
    return "0." + std::string(static_cast<size_t>(-decimal.exponent - 1), '0') + decimal.digits;
  if (decimal.exponent + 1 >= count)
    return decimal.digits + std::string(static_cast<size_t>(decimal.exponent + 1 - count), '0') + '.';
  std::string text = decimal.digits;
  return text.insert(static_cast<size_t>(decimal.exponent + 1), 1, '.');
}

/// A scalar whose absolute value is at least this is written with an exponent.
template <class T>
constexpr double kScalarCutoff = 1e16;
template <>
constexpr double kScalarCutoff<float> = 1e6;
template <>
constexpr double kScalarCutoff<float16> = 1e3;

}  // namespace

template <class T>
Decimal shortest_decimal(T value) {
  char text[kTextSize];
  if constexpr (std::is_same_v<T, float16>) {
    const float16 half(std::fabs(float(value)));
    const double exact = float(half);
    if (exact == 0) return {"0", 0};
    // Five digits identify any number of eleven bits.
    for (int precision = 0;; ++precision) {
      const char* end =
          std::to_chars(text, text + kTextSize, exact, std::chars_format::scientific, precision).ptr;
      double read = 0;
      std::from_chars(text, end, read);
      if (precision == 4 || reads_as(read, half)) return parse_scientific(text, end);
      // The decimals that round to a power of two extend twice as far above it as below. So the nearest
      // decimal may not round to it although the next larger one does (0.01563 for 0.015625).
      char* const last = std::find(text, text + kTextSize, 'e') - 1;
      if (*last < '0' || *last >= '9' || read > exact) continue;
      ++*last;
      std::from_chars(text, end, read);
      if (reads_as(read, half)) return parse_scientific(text, end);
    }
  } else {
    const char* end =
        std::to_chars(text, text + kTextSize, std::fabs(value), std::chars_format::scientific).ptr;
    return parse_scientific(text, end);
  }
}

template <class T>
std::string positional(T value, int precision) {
  const double exact = value;
  const Decimal shortest = shortest_decimal(value);
  const int fraction = static_cast<int>(shortest.digits.size()) - 1 - shortest.exponent;
  if (fraction <= precision) return sign_of(exact) + place_point(shortest);
  char text[kTextSize];
  const char* end =
      std::to_chars(text, text + kTextSize, std::fabs(exact), std::chars_format::fixed, precision).ptr;
  std::string result(text, static_cast<size_t>(end - text));
  if (precision == 0) return sign_of(exact) + result + '.';
  result.erase(result.find_last_not_of('0') + 1);
  return sign_of(exact) + result;
}

template <class T>
std::string scientific(T value, int precision, bool all) {
  const double exact = value;
  Decimal decimal = shortest_decimal(value);
  const int fraction = static_cast<int>(decimal.digits.size()) - 1;
  // The shortest form is used only if it has exactly the digits that are wanted. If it has too many, the
  // exact value is rounded. If it has too few and `all` is set, the exact value provides further digits,
  // which are not all zero.
  if (fraction > precision || (all && fraction < precision)) {
    char text[kTextSize];
    const char* end =
        std::to_chars(text, text + kTextSize, std::fabs(exact), std::chars_format::scientific, precision).ptr;
    decimal = parse_scientific(text, end);
  }
  if (all) decimal.digits.resize(static_cast<size_t>(precision) + 1, '0');
  return sign_of(exact) + decimal.digits.insert(1, 1, '.') + exponent_text(decimal.exponent);
}

template <class T>
std::string scalar_text(T value) {
  const double exact = value;
  if (std::isnan(exact)) return "nan";
  if (std::isinf(exact)) return exact < 0 ? "-inf" : "inf";
  Decimal decimal = shortest_decimal(value);
  const double size = std::fabs(exact);
  if (size == 0 || (size >= 1e-4 && size < kScalarCutoff<T>)) {
    std::string text = sign_of(exact) + place_point(decimal);
    if (text.back() == '.') text += '0';
    return text;
  }
  if (decimal.digits.size() > 1) decimal.digits.insert(1, 1, '.');
  return sign_of(exact) + decimal.digits + exponent_text(decimal.exponent);
}

template Decimal shortest_decimal(float);
template Decimal shortest_decimal(double);
template Decimal shortest_decimal(float16);
template std::string positional(float, int);
template std::string positional(double, int);
template std::string positional(float16, int);
template std::string scientific(float, int, bool);
template std::string scientific(double, int, bool);
template std::string scientific(float16, int, bool);
template std::string scalar_text(float);
template std::string scalar_text(double);
template std::string scalar_text(float16);

}  // namespace mx::detail
