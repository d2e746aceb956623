// Decimal text of floating-point numbers, for the columns of format().
#pragma once

#include <string>

#include "engine/base/half.h"

namespace mx::detail {

/// |value| as 0 or d.ddd * 10^exponent, with the fewest digits such that no other number of type T is nearer.
struct Decimal {
  std::string digits;  ///< without a point, no zeros at the end
  int exponent = 0;
};

/// Precondition of this and the next two functions: the value is finite. T is float, double or float16.
template <class T>
Decimal shortest_decimal(T value);

/// Returns "-12.5", "3.", "0.": at most `precision` digits after the point, and no zeros at the end. If the
/// shortest form has more digits, the exact value is rounded.
template <class T>
std::string positional(T value, int precision);

/// Returns "1.25e-07". The fraction has at most `precision` digits; if `all` is set, it has exactly so many,
/// which are those of the exact value.
template <class T>
std::string scientific(T value, int precision, bool all);

/// Returns "1.5", "2.0", "1e+16", "nan": the text of a scalar.
template <class T>
std::string scalar_text(T value);

}  // namespace mx::detail
