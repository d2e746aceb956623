// Minimum and maximum that propagate NaN. Included once per instruction set.
//
// Highway leaves open which operand its Min and Max return if one is NaN. The instructions of x86 return the
// second operand. Those of 64-bit ARM and RISC-V, and Highway's emulation, return the number, so NaN would be
// lost. The functions here compare and select where the instruction does not propagate NaN.
#if defined(MX_MIN_MAX_INL_H_) == defined(HWY_TARGET_TOGGLE)
#  ifdef MX_MIN_MAX_INL_H_
#    undef MX_MIN_MAX_INL_H_
#  else
#    define MX_MIN_MAX_INL_H_
#  endif

#  include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

/// True if hn::Min and hn::Max return their second operand if one is NaN.
inline constexpr bool kSecondOfNan =
    HWY_ARCH_X86 != 0 && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR;

/// min(limit, x), and NaN if x is NaN. Precondition: the limit is not NaN.
template <class V>
HWY_INLINE V at_most(V limit, V x) {
  if constexpr (kSecondOfNan) {
    return hn::Min(limit, x);
  } else {
    return hn::IfThenElse(hn::Gt(x, limit), limit, x);
  }
}

/// max(limit, x), and NaN if x is NaN. Precondition: the limit is not NaN.
template <class V>
HWY_INLINE V at_least(V limit, V x) {
  if constexpr (kSecondOfNan) {
    return hn::Max(limit, x);
  } else {
    return hn::IfThenElse(hn::Lt(x, limit), limit, x);
  }
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
