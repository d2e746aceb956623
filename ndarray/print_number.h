// Decimal text of floating-point numbers: the pieces from which format() builds its columns.
#pragma once

#include <string>

#include "ndarray/half.h"

namespace mx::detail {

/// |value| as 0 or d.ddd * 10^exponent: the fewest digits that no other number of type T is nearer to.
struct Decimal {
  std::string digits;  ///< without a point, no zeros at the end
  int exponent = 0;
};

/// T is float, double or float16; the value is finite.
template <class T>
Decimal shortest_decimal(T value);

/// "-12.5", "3.", "0.": at most `precision` digits after the point, rounded from the exact value when the
/// shortest form has more; no zeros at the end.
template <class T>
std::string positional(T value, int precision);

/// "1.25e-07": the fraction has at most `precision` digits; exactly so many, with those of the exact value,
/// when `all` is set.
template <class T>
std::string scientific(T value, int precision, bool all);

/// "1.5", "2.0", "1e+16", "nan": as a number by itself is written.
template <class T>
std::string scalar_text(T value);

}  // namespace mx::detail
