// More elementwise functions, with the names of NumPy and SciPy. See also elementwise_unary.h and
// elementwise_binary.h.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>

#include "operators/operand.h"
#include "operators/operator.h"

namespace mx {

/// The inverse of erf: infinite at -1 and 1, NaN beyond. Integers give f32.
NDArray erfinv(const Arg& x);
/// log(x / (1 - x)): infinite at 0 and 1, NaN beyond. With `eps`, x is first clamped to [eps, 1 - eps].
NDArray logit(const Arg& x, std::optional<double> eps = {});
/// x * log(y), and 0 where x is 0 and y is not NaN.
NDArray xlogy(const Operand& x, const Operand& y);

/// The greatest common divisor and the least common multiple of integers; not negative; 0 for 0 and 0. A
/// result that does not fit the type wraps. Shapes broadcast.
NDArray gcd(const Operand& a, const Operand& b);
NDArray lcm(const Operand& a, const Operand& b);

/// Rounds to that many decimals, ties to even; -2 rounds to multiples of 100. Floating point is multiplied,
/// rounded and divided in x's type, or in f32 for f16 and bf16, as NumPy does; a number that is too large to
/// have decimals is returned unchanged. Integers are rounded exactly if `decimals` is negative, and may wrap;
/// otherwise they are returned unchanged. Throws InvalidArgument for integers with less than -18 decimals.
NDArray round(const Arg& x, IntArg decimals);

struct NanToNumOptions {
  double nan = 0;
  std::optional<double> posinf{};  ///< none: the largest number of the type
  std::optional<double> neginf{};  ///< none: the smallest number of the type
};
/// Returns x with NaN and infinities replaced by numbers. The gradient of replaced elements is 0.
NDArray nan_to_num(const Arg& x, const NanToNumOptions& options = {});

}  // namespace mx
