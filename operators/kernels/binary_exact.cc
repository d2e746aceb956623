// Functions of two operands with the same bits in every instruction set, and where and clamp. They are plain
// loops, which the compiler vectorises once for each instruction set without changing a bit.
#include <cmath>
#include <limits>
#include <type_traits>

#include "operators/formulas.h"
#include "operators/kernels/tables.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/binary_exact.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

// Divides integers of up to 32 bits in floating point, because floating-point division has vector
// instructions. A quotient that is not an integer differs from one by more than the rounding of the division;
// products and remainders are exact.
template <class T>
using Dividing = std::conditional_t<sizeof(T) == 1, float, double>;
template <class T>
inline constexpr bool kDividesAsFloat = std::is_integral_v<T> && sizeof(T) <= 4;

struct FloorDivide {
  template <class T>
  static HWY_INLINE T of(T a, T b) {
    using F = Dividing<T>;
    constexpr F kOver = static_cast<F>(std::numeric_limits<T>::max()) + 1;
    const F quotient = std::floor(static_cast<F>(a) / static_cast<F>(b == 0 ? T{1} : b));
    // The smallest number divided by -1 wraps.
    const T whole = static_cast<T>(std::is_signed_v<T> && quotient == kOver ? -kOver : quotient);
    return b == 0 ? T{0} : whole;
  }
};
struct FloorRest {
  template <class T>
  static HWY_INLINE T of(T a, T b) {
    using F = Dividing<T>;
    const F x = static_cast<F>(a), y = static_cast<F>(b == 0 ? T{1} : b);
    const T rest = static_cast<T>(x - std::floor(x / y) * y);
    return b == 0 ? T{0} : rest;
  }
};
struct TruncateRest {
  template <class T>
  static HWY_INLINE T of(T a, T b) {
    using F = Dividing<T>;
    const F x = static_cast<F>(a), y = static_cast<F>(b == 0 ? T{1} : b);
    const T rest = static_cast<T>(x - std::trunc(x / y) * y);
    return b == 0 ? T{0} : rest;
  }
};

/// A formula as a function.
template <BinaryOp kOp>
struct Formula {
  template <class T>
  static HWY_INLINE auto of(T a, T b) {
    return formulas::binary<kOp>(a, b, 8 * sizeof(T));
  }
};

template <class F, class T>
void row(void* out, const void* const* in, int64_t n) {
  constexpr bool kPredicate = std::is_same_v<decltype(F::of(T{}, T{})), bool>;
  using To = std::conditional_t<kPredicate, uint8_t, T>;
  To* const to = static_cast<To*>(out);
  const T* const a = static_cast<const T*>(in[0]);
  const T* const b = static_cast<const T*>(in[1]);
  // The arrays are the same or do not overlap: no element depends on one that was written before it.
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) to[i] = static_cast<To>(F::of(a[i], b[i]));
}

// T is any type of the element's size.
template <class T>
void choose_row(void* out, const void* const* in, int64_t n) {
  T* const to = static_cast<T*>(out);
  const uint8_t* const condition = static_cast<const uint8_t*>(in[0]);
  const T* const a = static_cast<const T*>(in[1]);
  const T* const b = static_cast<const T*>(in[2]);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) {
    const T x = a[i], y = b[i];  // both are loaded, so that the choice needs no branch
    to[i] = condition[i] != 0 ? x : y;
  }
}

template <class T>
void limit_row(void* out, const void* const* in, int64_t n) {
  T* const to = static_cast<T*>(out);
  const T* const x = static_cast<const T*>(in[0]);
  const T* const low = static_cast<const T*>(in[1]);
  const T* const high = static_cast<const T*>(in[2]);
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) to[i] = formulas::minimum(formulas::maximum(x[i], low[i]), high[i]);
}

/// Finds the row of `op` among those of kOps.
template <class T, BinaryOp... kOps>
Row find_among(BinaryOp op) {
  Row found = nullptr;
  ((found = op == kOps ? row<Formula<kOps>, T> : found), ...);
  return found;
}

template <class T>
Row find_predicate(BinaryOp op) {
  using enum BinaryOp;
  return find_among<T, equal, not_equal, less, less_equal, greater, greater_equal, logical_and, logical_or,
                    logical_xor>(op);
}

template <class T>
Row find_any(BinaryOp op) {
  using enum BinaryOp;
  if (const Row found = find_among<T, add, sub, mul, maximum, minimum, fmax, fmin>(op)) return found;
  if constexpr (std::is_floating_point_v<T>) {
    if (const Row found = find_among<T, div, copysign, relu_backward, tanh_backward, sigmoid_backward>(op))
      return found;
  } else {
    if (const Row found = find_among<T, bitwise_and, bitwise_or, bitwise_xor, left_shift, right_shift>(op))
      return found;
    if constexpr (kDividesAsFloat<T>) {
      if (op == floor_div) return row<FloorDivide, T>;
      if (op == mod) return row<FloorRest, T>;
      if (op == fmod) return row<TruncateRest, T>;
    }
  }
  return find_predicate<T>(op);
}

Row find_bool(BinaryOp op) {
  using enum BinaryOp;
  switch (op) {
    case add:
    case maximum:
    case fmax:
      return row<Formula<bitwise_or>, uint8_t>;
    case mul:
    case minimum:
    case fmin:
      return row<Formula<bitwise_and>, uint8_t>;
    default:
      break;
  }
  if (const Row found = find_among<uint8_t, bitwise_and, bitwise_or, bitwise_xor>(op)) return found;
  return find_predicate<uint8_t>(op);
}

Row find_binary(BinaryOp op, DType computing) {
  switch (computing) {
    case DType::f32:
      return find_any<float>(op);
    case DType::f64:
      return find_any<double>(op);
    case DType::i8:
      return find_any<int8_t>(op);
    case DType::u8:
      return find_any<uint8_t>(op);
    case DType::i32:
      return find_any<int32_t>(op);
    case DType::i64:
      return find_any<int64_t>(op);
    case DType::bool_:
      return find_bool(op);
    default:
      return nullptr;
  }
}

Row find_where(DType type) {
  switch (size_of(type)) {
    case 1:
      return choose_row<uint8_t>;
    case 2:
      return choose_row<uint16_t>;
    case 4:
      return choose_row<uint32_t>;
    default:
      return choose_row<uint64_t>;
  }
}

Row find_clamp(DType type) {
  switch (type) {
    case DType::f32:
      return limit_row<float>;
    case DType::f64:
      return limit_row<double>;
    case DType::i8:
      return limit_row<int8_t>;
    case DType::u8:
    case DType::bool_:
      return limit_row<uint8_t>;
    case DType::i32:
      return limit_row<int32_t>;
    case DType::i64:
      return limit_row<int64_t>;
    default:
      return nullptr;
  }
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(find_binary);
HWY_EXPORT(find_where);
HWY_EXPORT(find_clamp);
Row binary_exact_row(BinaryOp op, DType computing) {
  return HWY_DYNAMIC_DISPATCH(find_binary)(op, computing);
}
Row where_row(DType type) { return HWY_DYNAMIC_DISPATCH(find_where)(type); }
Row clamp_row(DType type) { return HWY_DYNAMIC_DISPATCH(find_clamp)(type); }
}  // namespace mx::kernels
#endif
