// Powers with a constant exponent, computed by multiplications, divisions and roots: one operand, plain
// loops.
//
// Each is within 2 units in the last place: an intermediate value is rounded at most twice before the last
// operation, and it overflows or underflows only if the result does.
#include <cmath>
#include <limits>
#include <type_traits>

#include "operators/kernels/tables.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/binary_power.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

/// Integer multiplication that wraps. Narrow types are not multiplied as int, which could overflow.
template <class T>
HWY_INLINE T times(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    return a * b;
  } else {
    using U = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
    return static_cast<T>(static_cast<U>(a) * static_cast<U>(b));
  }
}

struct PowerZero {  // 1 for NaN too
  template <class T>
  static HWY_INLINE T of(T) {
    return T{1};
  }
};
struct PowerOne {
  template <class T>
  static HWY_INLINE T of(T x) {
    return x;
  }
};
struct PowerTwo {
  template <class T>
  static HWY_INLINE T of(T x) {
    return times(x, x);
  }
};
struct PowerThree {
  template <class T>
  static HWY_INLINE T of(T x) {
    return times(times(x, x), x);
  }
};
struct PowerFour {
  template <class T>
  static HWY_INLINE T of(T x) {
    const T square = times(x, x);
    return times(square, square);
  }
};
struct PowerMinusOne {
  template <class T>
  static HWY_INLINE T of(T x) {
    return T{1} / x;
  }
};
struct PowerMinusTwo {
  template <class T>
  static HWY_INLINE T of(T x) {
    const T inverse = T{1} / x;  // the square may overflow although the result does not underflow
    return inverse * inverse;
  }
};

// Roots with the special values of pow: for -0 as for 0, and for -infinity not NaN.
struct PowerHalf {
  template <class T>
  static HWY_INLINE T of(T x) {
    constexpr T kInfinity = std::numeric_limits<T>::infinity();
    const T root = std::sqrt(x + T{0});
    return x == -kInfinity ? kInfinity : root;
  }
};
struct PowerMinusHalf {
  template <class T>
  static HWY_INLINE T of(T x) {
    const T result = T{1} / std::sqrt(x + T{0});
    return x == -std::numeric_limits<T>::infinity() ? T{0} : result;
  }
};
struct PowerOneAndHalf {
  template <class T>
  static HWY_INLINE T of(T x) {
    constexpr T kInfinity = std::numeric_limits<T>::infinity();
    const T result = x * std::sqrt(x);
    return x == -kInfinity ? kInfinity : result;
  }
};

template <class F, class T>
void power_loop(void* out, const void* const* in, int64_t n) {
  T* const to = static_cast<T*>(out);
  const T* const x = static_cast<const T*>(in[0]);
  // The arrays are the same or do not overlap.
#pragma GCC ivdep
  for (int64_t i = 0; i < n; ++i) to[i] = F::of(x[i]);
}

template <class T>
Row find_power_of(double exponent) {
  if (exponent == 0) return power_loop<PowerZero, T>;
  if (exponent == 1) return power_loop<PowerOne, T>;
  if (exponent == 2) return power_loop<PowerTwo, T>;
  if (exponent == 3) return power_loop<PowerThree, T>;
  if (exponent == 4) return power_loop<PowerFour, T>;
  if constexpr (std::is_floating_point_v<T>) {
    if (exponent == -1) return power_loop<PowerMinusOne, T>;
    if (exponent == -2) return power_loop<PowerMinusTwo, T>;
    if (exponent == 0.5) return power_loop<PowerHalf, T>;
    if (exponent == -0.5) return power_loop<PowerMinusHalf, T>;
    if (exponent == 1.5) return power_loop<PowerOneAndHalf, T>;
  }
  return nullptr;
}

Row find_power(DType computing, double exponent) {
  switch (computing) {
    case DType::f32:
      return find_power_of<float>(exponent);
    case DType::f64:
      return find_power_of<double>(exponent);
    case DType::i8:
      return find_power_of<int8_t>(exponent);
    case DType::u8:
      return find_power_of<uint8_t>(exponent);
    case DType::i32:
      return find_power_of<int32_t>(exponent);
    case DType::i64:
      return find_power_of<int64_t>(exponent);
    default:
      return nullptr;
  }
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(find_power);
Row power_row(DType computing, double exponent) {
  return HWY_DYNAMIC_DISPATCH(find_power)(computing, exponent);
}
}  // namespace mx::kernels
#endif
