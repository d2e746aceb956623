// Functions of two operands with the same bits in every instruction set, and where and clamp. They are plain
// loops, which the compiler vectorises once for each instruction set without changing a bit.
#include <cmath>
#include <limits>
#include <type_traits>

#include "operators/kernels/tables.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/binary_exact.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

// Wrapping arithmetic: unsigned, and at least 32 bits wide, because narrower types would be promoted to int.
template <class T>
struct WrappingOf {
  using type = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
};
template <class T>
using Wrapping =
    typename std::conditional_t<std::is_floating_point_v<T>, std::type_identity<T>, WrappingOf<T>>::type;

struct Plus {
  template <class T>
  static HWY_INLINE T of(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) + static_cast<Wrapping<T>>(b));
  }
};
struct Minus {
  template <class T>
  static HWY_INLINE T of(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) - static_cast<Wrapping<T>>(b));
  }
};
struct Times {
  template <class T>
  static HWY_INLINE T of(T a, T b) {
    return static_cast<T>(static_cast<Wrapping<T>>(a) * static_cast<Wrapping<T>>(b));
  }
};
struct Divide {
  template <class T>
  static HWY_INLINE T of(T a, T b) {
    return a / b;
  }
};
// Two choices, one after the other: with a single choice of two conditions the compiler would not vectorise
// some loops.
struct Maximum {
  template <class T>
  static HWY_INLINE T of(T a, T b) {
    const T chosen = a > b ? a : b;
    return a != a ? a : chosen;
  }
};
struct Minimum {
  template <class T>
  static HWY_INLINE T of(T a, T b) {
    const T chosen = a < b ? a : b;
    return a != a ? a : chosen;
  }
};
struct FMaximum {
  template <class T>
  static HWY_INLINE T of(T a, T b) {
    const T chosen = a > b ? a : b;
    return b != b ? a : chosen;
  }
};
struct FMinimum {
  template <class T>
  static HWY_INLINE T of(T a, T b) {
    const T chosen = a < b ? a : b;
    return b != b ? a : chosen;
  }
};
struct CopySignTo {
  template <class T>
  static HWY_INLINE T of(T a, T b) {
    return std::copysign(a, b);
  }
};
struct ReluBackward {
  template <class T>
  static HWY_INLINE T of(T head, T y) {
    return y <= T{0} ? T{0} : head;
  }
};
struct TanhBackward {
  template <class T>
  static HWY_INLINE T of(T head, T y) {
    return head * (T{1} - y * y);
  }
};
struct SigmoidBackward {
  template <class T>
  static HWY_INLINE T of(T head, T y) {
    return head * (y * (T{1} - y));
  }
};
struct Equal {
  template <class T>
  static HWY_INLINE uint8_t of(T a, T b) {
    return a == b;
  }
};
struct NotEqual {
  template <class T>
  static HWY_INLINE uint8_t of(T a, T b) {
    return a != b;
  }
};
struct Less {
  template <class T>
  static HWY_INLINE uint8_t of(T a, T b) {
    return a < b;
  }
};
struct LessEqual {
  template <class T>
  static HWY_INLINE uint8_t of(T a, T b) {
    return a <= b;
  }
};
struct Greater {
  template <class T>
  static HWY_INLINE uint8_t of(T a, T b) {
    return a > b;
  }
};
struct GreaterEqual {
  template <class T>
  static HWY_INLINE uint8_t of(T a, T b) {
    return a >= b;
  }
};
struct LogicalAnd {
  template <class T>
  static HWY_INLINE uint8_t of(T a, T b) {
    return static_cast<uint8_t>((a != T{0}) & (b != T{0}));
  }
};
struct LogicalOr {
  template <class T>
  static HWY_INLINE uint8_t of(T a, T b) {
    return static_cast<uint8_t>((a != T{0}) | (b != T{0}));
  }
};
struct LogicalXor {
  template <class T>
  static HWY_INLINE uint8_t of(T a, T b) {
    return static_cast<uint8_t>((a != T{0}) ^ (b != T{0}));
  }
};
struct BitwiseAnd {
  template <class T>
  static HWY_INLINE T of(T a, T b) {
    return static_cast<T>(a & b);
  }
};
struct BitwiseOr {
  template <class T>
  static HWY_INLINE T of(T a, T b) {
    return static_cast<T>(a | b);
  }
};
struct BitwiseXor {
  template <class T>
  static HWY_INLINE T of(T a, T b) {
    return static_cast<T>(a ^ b);
  }
};
struct LeftShift {
  template <class T>
  static HWY_INLINE T of(T a, T b) {
    constexpr T kWidth = static_cast<T>(8 * sizeof(T));
    const bool inside = b >= T{0} && b < kWidth;
    const T count = inside ? b : T{0};
    const T shifted = static_cast<T>(static_cast<Wrapping<T>>(a) << count);
    return inside ? shifted : T{0};
  }
};
struct RightShift {
  template <class T>
  static HWY_INLINE T of(T a, T b) {
    constexpr T kWidth = static_cast<T>(8 * sizeof(T));
    const bool inside = b >= T{0} && b < kWidth;
    // For a signed type the largest count leaves copies of the sign bit. For an unsigned one, the 0 is set
    // separately.
    const T count = inside ? b : static_cast<T>(kWidth - 1);
    const T shifted = static_cast<T>(a >> count);
    return std::is_unsigned_v<T> && !inside ? T{0} : shifted;
  }
};

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

template <class F, class T>
void row(void* out, const void* const* in, int64_t n) {
  using To = decltype(F::of(T{}, T{}));
  To* const to = static_cast<To*>(out);
  const T* const a = static_cast<const T*>(in[0]);
  const T* const b = static_cast<const T*>(in[1]);
  // The arrays are the same or do not overlap: no element depends on one that was written before it.
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) to[i] = F::of(a[i], b[i]);
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
  for (int64_t i = 0; i < n; ++i) to[i] = Minimum::of(Maximum::of(x[i], low[i]), high[i]);
}

template <class T>
Row find_compare(BinaryOp op) {
  switch (op) {
    case BinaryOp::equal:
      return row<Equal, T>;
    case BinaryOp::not_equal:
      return row<NotEqual, T>;
    case BinaryOp::less:
      return row<Less, T>;
    case BinaryOp::less_equal:
      return row<LessEqual, T>;
    case BinaryOp::greater:
      return row<Greater, T>;
    case BinaryOp::greater_equal:
      return row<GreaterEqual, T>;
    case BinaryOp::logical_and:
      return row<LogicalAnd, T>;
    case BinaryOp::logical_or:
      return row<LogicalOr, T>;
    case BinaryOp::logical_xor:
      return row<LogicalXor, T>;
    default:
      return nullptr;
  }
}

template <class T>
Row find_any(BinaryOp op) {
  switch (op) {
    case BinaryOp::add:
      return row<Plus, T>;
    case BinaryOp::sub:
      return row<Minus, T>;
    case BinaryOp::mul:
      return row<Times, T>;
    case BinaryOp::maximum:
      return row<Maximum, T>;
    case BinaryOp::minimum:
      return row<Minimum, T>;
    default:
      break;
  }
  if constexpr (std::is_floating_point_v<T>) {
    if (op == BinaryOp::div) return row<Divide, T>;
    if (op == BinaryOp::fmax) return row<FMaximum, T>;
    if (op == BinaryOp::fmin) return row<FMinimum, T>;
    if (op == BinaryOp::copysign) return row<CopySignTo, T>;
    if (op == BinaryOp::relu_backward) return row<ReluBackward, T>;
    if (op == BinaryOp::tanh_backward) return row<TanhBackward, T>;
    if (op == BinaryOp::sigmoid_backward) return row<SigmoidBackward, T>;
  } else {
    if (op == BinaryOp::fmax) return row<Maximum, T>;
    if (op == BinaryOp::fmin) return row<Minimum, T>;
    if (op == BinaryOp::bitwise_and) return row<BitwiseAnd, T>;
    if (op == BinaryOp::bitwise_or) return row<BitwiseOr, T>;
    if (op == BinaryOp::bitwise_xor) return row<BitwiseXor, T>;
    if (op == BinaryOp::left_shift) return row<LeftShift, T>;
    if (op == BinaryOp::right_shift) return row<RightShift, T>;
    if constexpr (kDividesAsFloat<T>) {
      if (op == BinaryOp::floor_div) return row<FloorDivide, T>;
      if (op == BinaryOp::mod) return row<FloorRest, T>;
      if (op == BinaryOp::fmod) return row<TruncateRest, T>;
    }
  }
  return find_compare<T>(op);
}

Row find_bool(BinaryOp op) {
  switch (op) {
    case BinaryOp::add:
    case BinaryOp::maximum:
    case BinaryOp::fmax:
    case BinaryOp::bitwise_or:
      return row<BitwiseOr, uint8_t>;
    case BinaryOp::mul:
    case BinaryOp::minimum:
    case BinaryOp::fmin:
    case BinaryOp::bitwise_and:
      return row<BitwiseAnd, uint8_t>;
    case BinaryOp::bitwise_xor:
      return row<BitwiseXor, uint8_t>;
    default:
      return find_compare<uint8_t>(op);
  }
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
