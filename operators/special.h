// Elementwise functions beside those of elementwise_unary.h and elementwise_binary.h, with the names of NumPy
// and SciPy.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "operators/operand.h"
#include "operators/operator.h"

namespace mx {

/// The inverse of erf: infinite at -1 and 1, NaN beyond. Integers give f32.
NDArray erfinv(const Arg& x);
/// log(x / (1 - x)): infinite at 0 and 1, NaN beyond; with `eps` of x cut to [eps, 1 - eps].
NDArray logit(const Arg& x, std::optional<double> eps = {});
/// x * log(y), and 0 where x is 0 and y is not NaN.
NDArray xlogy(const Operand& x, const Operand& y);

/// The greatest common divisor and the least common multiple, not negative; of 0 and 0: 0. For integers; what
/// the type does not hold wraps. Shapes broadcast.
NDArray gcd(const Operand& a, const Operand& b);
NDArray lcm(const Operand& a, const Operand& b);

/// The nearest number with that many decimals, halves to the even one; with -2 the nearest multiple of 100.
/// Multiplies, rounds and divides in x's type, f32 for narrower ones, as NumPy does; a number that is too
/// large to have decimals stays what it is. Integers with decimals below 0 are rounded exactly, and wrap;
/// others stay what they are. Throws InvalidArgument for less than -18 decimals of integers.
NDArray round(const Arg& x, int64_t decimals);

struct NanToNumOptions {
  double nan = 0;
  std::optional<double> posinf{};  ///< none: the largest number of the type
  std::optional<double> neginf{};  ///< none: the smallest
};
/// x with numbers instead of NaN and infinities. The gradient is 0 there.
NDArray nan_to_num(const Arg& x, const NanToNumOptions& options = {});

}  // namespace mx
