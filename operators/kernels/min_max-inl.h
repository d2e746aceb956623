// Minimum and maximum that propagate NaN. Included once per instruction set.
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

/// min(limit, x), and NaN if x is NaN. Precondition: the limit is not NaN. In this case the instructions of
/// x86 return their second operand and those of ARM return NaN. Highway's emulation, which processors without
/// AVX2 may use, returns the limit.
template <class V>
HWY_INLINE V at_most(V limit, V x) {
#  if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
  return hn::IfThenElse(hn::Gt(x, limit), limit, x);
#  else
  return hn::Min(limit, x);
#  endif
}

/// max(limit, x), and NaN if x is NaN. Precondition: the limit is not NaN.
template <class V>
HWY_INLINE V at_least(V limit, V x) {
#  if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
  return hn::IfThenElse(hn::Lt(x, limit), limit, x);
#  else
  return hn::Max(limit, x);
#  endif
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif
