// The scalar formulas of the elementwise operators, for the host and for GPUs: for the plain loops of the
// CPU's kernels, the CUDA kernels, and the text of fused kernels.
//
// T is a type of computation: float, double, or an integer type. CUDA computes all integers and bool in
// int64_t. Integers wrap when a result is stored in a narrower type. The special values are those of
// operators/kernels/unary.h and binary.h. An operation without a formula does not compile. Where a choice is
// written as two, or a condition without a branch, compilers make vector instructions of it.
#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "operators/kernels/binary.h"
#include "operators/kernels/unary.h"

namespace mx::formulas {

using kernels::BinaryOp;
using kernels::UnaryOp;

template <class T>
inline constexpr bool kReal = std::is_floating_point_v<T>;

/// Return whether the operation has a formula in T.
template <class T>
constexpr bool has_unary(UnaryOp op) {
  if (op >= UnaryOp::exp && op <= UnaryOp::gelu_tanh) return kReal<T>;
  return op == UnaryOp::bitwise_not ? !kReal<T> : true;
}
template <class T>
constexpr bool has_binary(BinaryOp op) {
  if (op >= BinaryOp::div && op <= BinaryOp::binary_cross_entropy) return kReal<T>;
  return op >= BinaryOp::bitwise_and ? !kReal<T> : true;
}

/// The unsigned type in which integers wrap: at least 32 bits, because narrower types would be promoted to
/// int.
template <bool kLong>
struct WrappingOf {
  using type = uint32_t;
};
template <>
struct WrappingOf<true> {
  using type = uint64_t;
};
template <class T>
using Wrapping = typename WrappingOf<sizeof(T) == 8>::type;

/// Wrapping arithmetic of an integer type.
template <class T>
constexpr T wrapped_sum(T a, T b) {
  return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
}
template <class T>
constexpr T wrapped_difference(T a, T b) {
  return static_cast<T>(static_cast<Wrapping<T>>(a) - static_cast<Wrapping<T>>(b));
}
template <class T>
constexpr T wrapped_product(T a, T b) {
  return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
}
template <class T>
constexpr T negative(T a) {
  return wrapped_difference(T{0}, a);
}

template <class T>
constexpr T sigmoid(T x) {
  const T e = std::exp(-std::fabs(x));  // never overflows
  return x >= T{0} ? T{1} / (T{1} + e) : x != x ? x : e / (T{1} + e);
}
template <class T>
constexpr T softplus(T x) {
  return x != x ? x : std::fmax(x, T{0}) + std::log1p(std::exp(-std::fabs(x)));
}
template <class T>
constexpr T gelu(T x) {
  // Returns the limit, because the product would be infinity times 0.
  if (x < T{-40}) return x * T{2} == x ? -T{0} : x * T{0};
  return x * (T{0.5} * std::erfc(x * static_cast<T>(-0.70710678118654752440)));
}
template <class T>
constexpr T gelu_tanh_argument(T x) {
  return static_cast<T>(0.79788456080286535588) * (x + static_cast<T>(0.044715) * x * x * x);
}
template <class T>
constexpr T gelu_tanh(T x) {
  // x * (1 + tanh(u)) / 2 = x * sigmoid(2u), without the cancellation in 1 + tanh(u).
  if (x < T{-40}) return x * T{2} == x ? -T{0} : x * T{0};
  return x * sigmoid(T{2} * gelu_tanh_argument(x));
}
template <class T>
constexpr T silu(T x) {
  return x * T{2} == x && x < T{0} ? -T{0} : x * sigmoid(x);
}

template <UnaryOp kOp, class T>
constexpr auto unary(T x) {
  if constexpr (kOp == UnaryOp::copy) {
    return x;
  } else if constexpr (kOp == UnaryOp::neg) {
    if constexpr (kReal<T>) {
      return -x;
    } else {
      return negative(x);
    }
  } else if constexpr (kOp == UnaryOp::abs) {
    if constexpr (kReal<T>) {
      return static_cast<T>(std::fabs(x));
    } else {
      return x < T{0} ? negative(x) : x;
    }
  } else if constexpr (kOp == UnaryOp::sign) {
    if constexpr (kReal<T>) {
      const T sign = static_cast<T>((x > T{0}) - (x < T{0}));
      return x == T{0} || x != x ? x : sign;
    } else {
      return static_cast<T>((x > 0) - (x < 0));
    }
  } else if constexpr (kOp == UnaryOp::square) {
    if constexpr (kReal<T>) {
      return x * x;
    } else {
      return wrapped_product(x, x);
    }
  } else if constexpr (kOp == UnaryOp::relu) {
    return x <= T{0} ? T{0} : x;
  } else if constexpr (kOp == UnaryOp::floor || kOp == UnaryOp::ceil || kOp == UnaryOp::round ||
                       kOp == UnaryOp::trunc) {
    if constexpr (!kReal<T>) {
      return x;
    } else if constexpr (kOp == UnaryOp::floor) {
      return static_cast<T>(std::floor(x));
    } else if constexpr (kOp == UnaryOp::ceil) {
      return static_cast<T>(std::ceil(x));
    } else if constexpr (kOp == UnaryOp::round) {
      return static_cast<T>(std::nearbyint(x));
    } else {
      return static_cast<T>(std::trunc(x));
    }
  } else if constexpr (kOp == UnaryOp::exp) {
    return static_cast<T>(std::exp(x));
  } else if constexpr (kOp == UnaryOp::exp2) {
    return static_cast<T>(std::exp2(x));
  } else if constexpr (kOp == UnaryOp::expm1) {
    return static_cast<T>(std::expm1(x));
  } else if constexpr (kOp == UnaryOp::log) {
    return static_cast<T>(std::log(x));
  } else if constexpr (kOp == UnaryOp::log2) {
    return static_cast<T>(std::log2(x));
  } else if constexpr (kOp == UnaryOp::log10) {
    return static_cast<T>(std::log10(x));
  } else if constexpr (kOp == UnaryOp::log1p) {
    return static_cast<T>(std::log1p(x));
  } else if constexpr (kOp == UnaryOp::sqrt) {
    return static_cast<T>(std::sqrt(x));
  } else if constexpr (kOp == UnaryOp::rsqrt) {
    return static_cast<T>(T{1} / std::sqrt(x));
  } else if constexpr (kOp == UnaryOp::cbrt) {
    return static_cast<T>(std::cbrt(x));
  } else if constexpr (kOp == UnaryOp::reciprocal) {
    return T{1} / x;
  } else if constexpr (kOp == UnaryOp::sin) {
    return static_cast<T>(std::sin(x));
  } else if constexpr (kOp == UnaryOp::cos) {
    return static_cast<T>(std::cos(x));
  } else if constexpr (kOp == UnaryOp::tan) {
    return static_cast<T>(std::tan(x));
  } else if constexpr (kOp == UnaryOp::asin) {
    return static_cast<T>(std::asin(x));
  } else if constexpr (kOp == UnaryOp::acos) {
    return static_cast<T>(std::acos(x));
  } else if constexpr (kOp == UnaryOp::atan) {
    return static_cast<T>(std::atan(x));
  } else if constexpr (kOp == UnaryOp::sinh) {
    return static_cast<T>(std::sinh(x));
  } else if constexpr (kOp == UnaryOp::cosh) {
    return static_cast<T>(std::cosh(x));
  } else if constexpr (kOp == UnaryOp::tanh) {
    return static_cast<T>(std::tanh(x));
  } else if constexpr (kOp == UnaryOp::asinh) {
    return static_cast<T>(std::asinh(x));
  } else if constexpr (kOp == UnaryOp::acosh) {
    return static_cast<T>(std::acosh(x));
  } else if constexpr (kOp == UnaryOp::atanh) {
    return static_cast<T>(std::atanh(x));
  } else if constexpr (kOp == UnaryOp::erf) {
    return static_cast<T>(std::erf(x));
  } else if constexpr (kOp == UnaryOp::erfc) {
    return static_cast<T>(std::erfc(x));
  } else if constexpr (kOp == UnaryOp::lgamma) {
    return static_cast<T>(std::lgamma(x));
  } else if constexpr (kOp == UnaryOp::sigmoid) {
    return sigmoid(x);
  } else if constexpr (kOp == UnaryOp::softplus) {
    return softplus(x);
  } else if constexpr (kOp == UnaryOp::silu) {
    return silu(x);
  } else if constexpr (kOp == UnaryOp::gelu) {
    return gelu(x);
  } else if constexpr (kOp == UnaryOp::gelu_tanh) {
    return gelu_tanh(x);
  } else if constexpr (kOp == UnaryOp::bitwise_not) {
    return static_cast<T>(~x);
  } else if constexpr (kOp == UnaryOp::logical_not) {
    return x == T{0};
  } else if constexpr (kOp == UnaryOp::isnan) {
    return x != x;
  } else if constexpr (kOp == UnaryOp::isinf) {
    if constexpr (kReal<T>) {
      return std::fabs(x) == std::numeric_limits<T>::infinity();
    } else {
      return false;
    }
  } else if constexpr (kOp == UnaryOp::isfinite) {
    if constexpr (kReal<T>) {
      return std::fabs(x) < std::numeric_limits<T>::infinity();
    } else {
      return true;
    }
  } else {
    static_assert(kOp == UnaryOp::signbit);
    if constexpr (kReal<T>) {
      return std::copysign(T{1}, x) < T{0};
    } else {
      return x < 0;
    }
  }
}

/// The remainder with the sign of the dividend; 0 for a divisor of 0.
constexpr int64_t truncated_rest(int64_t a, int64_t b) { return b == 0 || b == -1 ? 0 : a % b; }
constexpr int64_t integer_power(int64_t a, int64_t b) {
  if (b < 0) {
    if (a == 1) return 1;
    if (a == -1) return b % 2 == 0 ? 1 : -1;
    return 0;
  }
  uint64_t result = 1, base = static_cast<uint64_t>(a);
  for (uint64_t rest = static_cast<uint64_t>(b); rest != 0; rest >>= 1) {
    if ((rest & 1) != 0) result *= base;
    base *= base;
  }
  return static_cast<int64_t>(result);
}

template <class T>
constexpr T floored_rest(T a, T b) {
  if constexpr (kReal<T>) {
    const T rest = std::fmod(a, b);
    if (rest == 0) return b == 0 ? rest : std::copysign(T{0}, b);
    return (rest < 0) != (b < 0) ? rest + b : rest;
  } else {
    const T rest = truncated_rest(a, b);
    return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
  }
}
template <class T>
constexpr T floored_quotient(T a, T b) {
  if constexpr (kReal<T>) {
    if (b == 0) return a / b;
    const T rest = std::fmod(a, b);
    T quotient = (a - rest) / b;
    if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
    if (quotient == 0) return std::copysign(T{0}, a / b);
    const T whole = std::floor(quotient);
    return quotient - whole > T{0.5} ? whole + 1 : whole;  // the division above may have rounded
  } else {
    if (b == 0) return 0;
    if (b == T{-1}) return negative(a);
    const T quotient = a / b;
    return a % b != 0 && (a < 0) != (b < 0) ? quotient - 1 : quotient;
  }
}
template <class T>
constexpr T maximum(T a, T b) {
  const T chosen = a > b ? a : b;
  return a != a ? a : chosen;
}
template <class T>
constexpr T minimum(T a, T b) {
  const T chosen = a < b ? a : b;
  return a != a ? a : chosen;
}
template <class T>
constexpr T log_add_exp(T a, T b) {
  if (a == b) return a + static_cast<T>(0.69314718055994530942);  // includes infinities
  if (a != a || b != b) return a + b;
  return std::fmax(a, b) + std::log1p(std::exp(std::fmin(a, b) - std::fmax(a, b)));
}
template <class T>
constexpr T gelu_slope(T x) {
  if (x != x) return x;
  const T at = std::fmax(T{-40}, std::fmin(T{40}, x));  // at these limits the function has reached 0 or 1
  return T{0.5} * std::erfc(at * static_cast<T>(-0.70710678118654752440)) +
         at * std::exp(T{-0.5} * at * at) * static_cast<T>(0.39894228040143267794);
}
template <class T>
constexpr T gelu_tanh_slope(T x) {
  if (x != x) return x;
  const T at = std::fmax(T{-40}, std::fmin(T{40}, x));
  const T s = sigmoid(T{2} * gelu_tanh_argument(at));
  const T du = static_cast<T>(0.79788456080286535588) * (T{1} + static_cast<T>(3 * 0.044715) * at * at);
  return s + at * (T{2} * s * (T{1} - s)) * du;
}
template <class T>
constexpr T silu_slope(T x) {
  if (x != x) return x;
  const T at = std::fmax(T{-1000}, std::fmin(T{1000}, x));
  const T s = sigmoid(at);
  return s * (T{1} + at * (T{1} - s));
}
template <class T>
constexpr T cross_entropy_term(T x, T target) {
  const T yes = maximum(std::log(x), T{-100}), no = maximum(std::log1p(-x), T{-100});
  return -target * yes - (T{1} - target) * no;
}

/// `width`: the bits of the integer type, for shifts.
template <BinaryOp kOp, class T>
constexpr auto binary(T a, T b, [[maybe_unused]] int width) {
  if constexpr (kOp == BinaryOp::add) {
    if constexpr (kReal<T>) {
      return a + b;
    } else {
      return wrapped_sum(a, b);
    }
  } else if constexpr (kOp == BinaryOp::sub) {
    if constexpr (kReal<T>) {
      return a - b;
    } else {
      return wrapped_difference(a, b);
    }
  } else if constexpr (kOp == BinaryOp::mul) {
    if constexpr (kReal<T>) {
      return a * b;
    } else {
      return wrapped_product(a, b);
    }
  } else if constexpr (kOp == BinaryOp::floor_div) {
    return floored_quotient(a, b);
  } else if constexpr (kOp == BinaryOp::mod) {
    return floored_rest(a, b);
  } else if constexpr (kOp == BinaryOp::fmod) {
    if constexpr (kReal<T>) {
      return static_cast<T>(std::fmod(a, b));
    } else {
      return truncated_rest(a, b);
    }
  } else if constexpr (kOp == BinaryOp::pow) {
    if constexpr (kReal<T>) {
      return static_cast<T>(std::pow(a, b));
    } else {
      return integer_power(a, b);
    }
  } else if constexpr (kOp == BinaryOp::maximum) {
    return maximum(a, b);
  } else if constexpr (kOp == BinaryOp::minimum) {
    return minimum(a, b);
  } else if constexpr (kOp == BinaryOp::fmax) {
    const T chosen = a > b ? a : b;
    return b != b ? a : chosen;
  } else if constexpr (kOp == BinaryOp::fmin) {
    const T chosen = a < b ? a : b;
    return b != b ? a : chosen;
  } else if constexpr (kOp == BinaryOp::div) {
    return a / b;
  } else if constexpr (kOp == BinaryOp::atan2) {
    return static_cast<T>(std::atan2(a, b));
  } else if constexpr (kOp == BinaryOp::hypot) {
    return static_cast<T>(std::hypot(a, b));
  } else if constexpr (kOp == BinaryOp::copysign) {
    return static_cast<T>(std::copysign(a, b));
  } else if constexpr (kOp == BinaryOp::nextafter) {
    return static_cast<T>(std::nextafter(a, b));
  } else if constexpr (kOp == BinaryOp::logaddexp) {
    return log_add_exp(a, b);
  } else if constexpr (kOp == BinaryOp::relu_backward) {
    return b <= T{0} ? T{0} : a;
  } else if constexpr (kOp == BinaryOp::tanh_backward) {
    return a * (T{1} - b * b);
  } else if constexpr (kOp == BinaryOp::sigmoid_backward) {
    return a * (b * (T{1} - b));
  } else if constexpr (kOp == BinaryOp::silu_backward) {
    return a * silu_slope(b);
  } else if constexpr (kOp == BinaryOp::gelu_backward) {
    return a * gelu_slope(b);
  } else if constexpr (kOp == BinaryOp::gelu_tanh_backward) {
    return a * gelu_tanh_slope(b);
  } else if constexpr (kOp == BinaryOp::binary_cross_entropy) {
    return cross_entropy_term(a, b);
  } else if constexpr (kOp == BinaryOp::equal) {
    return a == b;
  } else if constexpr (kOp == BinaryOp::not_equal) {
    return a != b;
  } else if constexpr (kOp == BinaryOp::less) {
    return a < b;
  } else if constexpr (kOp == BinaryOp::less_equal) {
    return a <= b;
  } else if constexpr (kOp == BinaryOp::greater) {
    return a > b;
  } else if constexpr (kOp == BinaryOp::greater_equal) {
    return a >= b;
  } else if constexpr (kOp == BinaryOp::logical_and) {
    return ((a != T{0}) & (b != T{0})) != 0;
  } else if constexpr (kOp == BinaryOp::logical_or) {
    return ((a != T{0}) | (b != T{0})) != 0;
  } else if constexpr (kOp == BinaryOp::logical_xor) {
    return (a != T{0}) != (b != T{0});
  } else if constexpr (kOp == BinaryOp::bitwise_and) {
    return static_cast<T>(a & b);
  } else if constexpr (kOp == BinaryOp::bitwise_or) {
    return static_cast<T>(a | b);
  } else if constexpr (kOp == BinaryOp::bitwise_xor) {
    return static_cast<T>(a ^ b);
  } else if constexpr (kOp == BinaryOp::left_shift) {
    const bool inside = ((b >= T{0}) & (b < static_cast<T>(width))) != 0;
    const T count = inside ? b : T{0};
    const T shifted = static_cast<T>(static_cast<Wrapping<T>>(a) << count);
    return inside ? shifted : T{0};
  } else {
    static_assert(kOp == BinaryOp::right_shift);
    // For a signed type the largest count leaves copies of the sign bit. For an unsigned one the result is
    // set.
    constexpr bool kSigned = static_cast<T>(-1) < T{0};
    const bool inside = ((b >= T{0}) & (b < static_cast<T>(width))) != 0;
    const T count = inside ? b : static_cast<T>(8 * sizeof(T) - 1);
    const T shifted = static_cast<T>(a >> count);
    return kSigned || inside ? shifted : T{0};
  }
}

}  // namespace mx::formulas
