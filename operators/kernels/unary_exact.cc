// Functions of one operand with the same bits in every instruction set. They are plain loops, which the
// compiler vectorises once for each instruction set without changing a bit.
#include <cmath>
#include <limits>
#include <type_traits>

#include "operators/kernels/tables.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/unary_exact.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

// Wrapping arithmetic, in the unsigned type of the same width.
template <class T>
using Wrapping = typename std::conditional_t<std::is_floating_point_v<T>, std::type_identity<T>,
                                             std::make_unsigned<T>>::type;

struct Copy {
  template <class T>
  static HWY_INLINE T of(T x) {
    return x;
  }
};
struct Neg {
  template <class T>
  static HWY_INLINE T of(T x) {
    if constexpr (std::is_floating_point_v<T>) {
      return -x;
    } else {
      return static_cast<T>(Wrapping<T>{0} - static_cast<Wrapping<T>>(x));
    }
  }
};
struct AbsValue {
  template <class T>
  static HWY_INLINE T of(T x) {
    if constexpr (std::is_floating_point_v<T>) {
      return std::fabs(x);
    } else if constexpr (std::is_unsigned_v<T>) {
      return x;
    } else {
      return x < 0 ? Neg::of(x) : x;
    }
  }
};
struct Sign {
  template <class T>
  static HWY_INLINE T of(T x) {
    const T sign = static_cast<T>((x > T{0}) - (x < T{0}));
    if constexpr (std::is_floating_point_v<T>) {
      return x == T{0} || x != x ? x : sign;
    } else {
      return sign;
    }
  }
};
struct Square {
  template <class T>
  static HWY_INLINE T of(T x) {
    if constexpr (std::is_floating_point_v<T>) {
      return x * x;
    } else {
      // 64 bits, because narrower unsigned types would be promoted to int, which overflows.
      const auto wide = static_cast<uint64_t>(static_cast<Wrapping<T>>(x));
      return static_cast<T>(static_cast<Wrapping<T>>(wide * wide));
    }
  }
};
struct Relu {
  template <class T>
  static HWY_INLINE T of(T x) {
    return x <= T{0} ? T{0} : x;
  }
};
struct FloorValue {
  template <class T>
  static HWY_INLINE T of(T x) {
    return std::floor(x);
  }
};
struct CeilValue {
  template <class T>
  static HWY_INLINE T of(T x) {
    return std::ceil(x);
  }
};
struct RoundValue {
  template <class T>
  static HWY_INLINE T of(T x) {
    return std::nearbyint(x);
  }
};
struct TruncValue {
  template <class T>
  static HWY_INLINE T of(T x) {
    return std::trunc(x);
  }
};
struct SquareRoot {
  template <class T>
  static HWY_INLINE T of(T x) {
    return std::sqrt(x);
  }
};
struct InverseRoot {
  template <class T>
  static HWY_INLINE T of(T x) {
    return T{1} / std::sqrt(x);
  }
};
struct Reciprocal {
  template <class T>
  static HWY_INLINE T of(T x) {
    return T{1} / x;
  }
};
struct BitwiseNot {
  template <class T>
  static HWY_INLINE T of(T x) {
    return static_cast<T>(~x);
  }
};
struct LogicalNot {
  template <class T>
  static HWY_INLINE uint8_t of(T x) {
    return x == T{0};
  }
};
struct IsNan {
  template <class T>
  static HWY_INLINE uint8_t of(T x) {
    return x != x;
  }
};
struct IsInf {
  template <class T>
  static HWY_INLINE uint8_t of(T x) {
    return std::fabs(x) == std::numeric_limits<T>::infinity();
  }
};
struct IsFinite {
  template <class T>
  static HWY_INLINE uint8_t of(T x) {
    return std::fabs(x) < std::numeric_limits<T>::infinity();
  }
};
struct SignBit {
  template <class T>
  static HWY_INLINE uint8_t of(T x) {
    if constexpr (std::is_floating_point_v<T>) {
      using Bits = std::conditional_t<sizeof(T) == 4, int32_t, int64_t>;
      return std::bit_cast<Bits>(x) < 0;
    } else {
      return x < T{0};
    }
  }
};
// Predicates with the same answer for every integer.
struct Never {
  template <class T>
  static HWY_INLINE uint8_t of(T) {
    return 0;
  }
};
struct Always {
  template <class T>
  static HWY_INLINE uint8_t of(T) {
    return 1;
  }
};

template <class F, class T>
void row(void* out, const void* const* in, int64_t n) {
  using To = decltype(F::of(T{}));
  To* const to = static_cast<To*>(out);
  const T* const x = static_cast<const T*>(in[0]);
  // The arrays are the same or do not overlap: no element depends on one that was written before it.
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) to[i] = F::of(x[i]);
}

template <class T>
Row find_any(UnaryOp op) {
  constexpr bool kFloating = std::is_floating_point_v<T>;
  switch (op) {
    case UnaryOp::copy:
      return row<Copy, T>;
    case UnaryOp::neg:
      return row<Neg, T>;
    case UnaryOp::abs:
      return row<AbsValue, T>;
    case UnaryOp::sign:
      return row<Sign, T>;
    case UnaryOp::square:
      return row<Square, T>;
    case UnaryOp::relu:
      return row<Relu, T>;
    case UnaryOp::logical_not:
      return row<LogicalNot, T>;
    case UnaryOp::signbit:
      return row<SignBit, T>;
    case UnaryOp::isnan:
      return row<std::conditional_t<kFloating, IsNan, Never>, T>;
    case UnaryOp::isinf:
      return row<std::conditional_t<kFloating, IsInf, Never>, T>;
    case UnaryOp::isfinite:
      return row<std::conditional_t<kFloating, IsFinite, Always>, T>;
    case UnaryOp::floor:
      return row<std::conditional_t<kFloating, FloorValue, Copy>, T>;
    case UnaryOp::ceil:
      return row<std::conditional_t<kFloating, CeilValue, Copy>, T>;
    case UnaryOp::round:
      return row<std::conditional_t<kFloating, RoundValue, Copy>, T>;
    case UnaryOp::trunc:
      return row<std::conditional_t<kFloating, TruncValue, Copy>, T>;
    default:
      break;
  }
  if constexpr (kFloating) {
    if (op == UnaryOp::sqrt) return row<SquareRoot, T>;
    if (op == UnaryOp::rsqrt) return row<InverseRoot, T>;
    if (op == UnaryOp::reciprocal) return row<Reciprocal, T>;
  } else {
    if (op == UnaryOp::bitwise_not) return row<BitwiseNot, T>;
  }
  return nullptr;
}

Row find_unary(UnaryOp op, DType computing) {
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
    default:
      break;
  }
  if (computing != DType::bool_) return nullptr;
  // bool: the bytes 0 and 1.
  if (op == UnaryOp::bitwise_not || op == UnaryOp::logical_not) return row<LogicalNot, uint8_t>;
  if (op == UnaryOp::neg || op == UnaryOp::sign) return nullptr;
  return find_any<uint8_t>(op);
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(find_unary);
Row unary_exact_row(UnaryOp op, DType computing) { return HWY_DYNAMIC_DISPATCH(find_unary)(op, computing); }
}  // namespace mx::kernels
#endif
