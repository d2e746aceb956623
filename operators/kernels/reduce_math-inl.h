// Vector code that reductions, softmax, losses and updates share: exp, loads and stores of 16-bit floats,
// folds of a row. Included once per instruction set, before HWY_BEFORE_NAMESPACE of the including file.
#if defined(MX_OPERATORS_KERNELS_REDUCE_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#  ifdef MX_OPERATORS_KERNELS_REDUCE_MATH_INL_H_
#    undef MX_OPERATORS_KERNELS_REDUCE_MATH_INL_H_
#  else
#    define MX_OPERATORS_KERNELS_REDUCE_MATH_INL_H_
#  endif

#  include <hwy/highway.h>

#  include <algorithm>
#  include <cstdint>
#  include <limits>

#  include "operators/kernels/min_max-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

/// exp(x), within 2 units in the last place. NaN stays NaN; beyond the range the result is 0 or infinity;
/// subnormal results are kept. Cody-Waite reduction to |r| <= ln(2) / 2, then the Taylor series to the
/// precision of the type.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_of(D d, V x) {
  using T = hn::TFromD<D>;
  const hn::RebindToSigned<D> di;
  constexpr bool kSingle = sizeof(T) == 4;
  constexpr int kMantissa = kSingle ? 23 : 52, kBias = kSingle ? 127 : 1023;
  const V low = hn::Set(d, static_cast<T>(kSingle ? -104.0 : -745.5));
  const V high = hn::Set(d, static_cast<T>(kSingle ? 89.0 : 710.0));
  const V clamped = at_least(low, at_most(high, x));
  const V n = hn::Round(hn::Mul(clamped, hn::Set(d, static_cast<T>(1.44269504088896340736))));
  const V high_part = hn::Set(d, static_cast<T>(kSingle ? 0.693359375 : 6.93147180369123816490e-01));
  const V low_part =
      hn::Set(d, static_cast<T>(kSingle ? -2.12194440054690583e-4 : 1.90821492927058770002e-10));
  const V r = hn::NegMulAdd(n, low_part, hn::NegMulAdd(n, high_part, clamped));
  V p;
  if constexpr (kSingle) {
    p = hn::Set(d, static_cast<T>(1.0 / 5040));
  } else {
    p = hn::Set(d, static_cast<T>(1.0 / 6227020800));
    for (double f : {479001600.0, 39916800.0, 3628800.0, 362880.0, 40320.0, 5040.0})
      p = hn::MulAdd(p, r, hn::Set(d, static_cast<T>(1.0 / f)));
  }
  for (double f : {720.0, 120.0, 24.0, 6.0, 2.0, 1.0, 1.0})
    p = hn::MulAdd(p, r, hn::Set(d, static_cast<T>(1.0 / f)));
  // Multiplies by 2^n in two steps, because 2^n alone would leave the range of exponents at both ends.
  const auto whole = hn::ConvertTo(di, n);
  const auto half = hn::ShiftRight<1>(whole);
  const auto bias = hn::Set(di, kBias);
  const V first = hn::BitCast(d, hn::ShiftLeft<kMantissa>(hn::Add(half, bias)));
  const V second = hn::BitCast(d, hn::ShiftLeft<kMantissa>(hn::Add(hn::Sub(whole, half), bias)));
  return hn::IfThenElse(hn::IsNaN(x), x, hn::Mul(hn::Mul(p, first), second));
}

// True if an instruction multiplies by a power of two. It keeps NaN.
#  if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
inline constexpr bool kScales = true;
template <class D, class V>
HWY_INLINE V times_power_of_2(D, V x, V n) {
  return V{_mm512_scalef_ps(x.raw, n.raw)};
}
#  else
inline constexpr bool kScales = false;
#  endif

/// True if exp_below() of NaN is NaN.
template <class T>
inline constexpr bool kExpBelowKeepsNan = kScales || sizeof(T) == 8;

/// exp(x) for x <= 0 or -infinity; for NaN see kExpBelowKeepsNan. Takes fewer steps than exp_of(); the result
/// is 0 below about 2^-125. The error is below one unit in the last place.
template <class D, class V = hn::Vec<D>>
HWY_INLINE V exp_below(D d, V x) {
  using T = hn::TFromD<D>;
  const hn::RebindToSigned<D> di;
  if constexpr (sizeof(T) == 8) {
    return exp_of(d, x);
  } else {
    // Adding 1.5 * 2^23 to a product puts its nearest integer into the lowest bits.
    const V shift = hn::Set(d, 12582912.f);
    const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504088896340736f), shift);
    const V n = hn::Sub(shifted, shift);
    const V r =
        hn::NegMulAdd(n, hn::Set(d, -2.12194440054690583e-4f), hn::NegMulAdd(n, hn::Set(d, 0.693359375f), x));
    // Fitted to exp on |r| <= ln(2) / 2 for the smallest relative error, with the last two coefficients equal
    // to 1.
    V p = hn::Set(d, 1.381459878757596e-3f);
    for (float f :
         {8.3687175065279e-3f, 4.168838899254799e-2f, 1.666652113199234e-1f, 4.999999403953552e-1f, 1.f, 1.f})
      p = hn::MulAdd(p, r, hn::Set(d, f));
    const auto small = hn::Lt(x, hn::Set(d, -86.6f));
    if constexpr (kScales) {
      return hn::IfThenZeroElse(small, times_power_of_2(d, p, n));
    } else {
      // Multiplies by 2^n by adding the exponents. If x is too small for that, the result is not used.
      const auto power = hn::ShiftLeft<23>(hn::BitCast(di, shifted));
      return hn::IfThenZeroElse(small, hn::BitCast(d, hn::Add(hn::BitCast(di, p), power)));
    }
  }
}

// True if masked loads and stores never access the lanes outside their mask, so that these cannot fault.
#  if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX2
inline constexpr bool kMasks = true;
#  else
inline constexpr bool kMasks = false;
#  endif

/// Loads n < lanes elements; the other lanes are `fill`.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_tail(D d, const T* x, int64_t n, T fill) {
  if constexpr (kMasks && sizeof(T) >= 4) {
    const auto mask = hn::FirstN(d, static_cast<size_t>(n));
    return hn::IfThenElse(mask, hn::MaskedLoad(mask, d, x), hn::Set(d, fill));
  } else {
    HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(T)];
    const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
    for (int64_t i = 0; i < lanes; ++i) buffer[i] = i < n ? x[i] : fill;
    return hn::Load(d, buffer);
  }
}

/// Stores the first n < lanes elements.
template <class D, class V = hn::Vec<D>, class T = hn::TFromD<D>>
HWY_INLINE void store_tail(D d, V v, T* to, int64_t n) {
  if constexpr (kMasks && sizeof(T) >= 4) {
    hn::BlendedStore(v, hn::FirstN(d, static_cast<size_t>(n)), d, to);
  } else if constexpr (HWY_TARGET != HWY_SCALAR) {  // a vector of one element has no rest
    HWY_ALIGN T buffer[HWY_MAX_BYTES / sizeof(T)];
    hn::Store(v, d, buffer);
    for (int64_t i = 0; i < n; ++i) to[i] = buffer[i];
  }
}

/// Folds a row with four accumulators, which are combined in a fixed order. Op has neutral(), step(d,
/// accumulator, x) and merge(d, a, b).
template <class D, class Op, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> fold_row(D d, const Op& op, const T* HWY_RESTRICT x, int64_t n, hn::Vec<D> start) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto a0 = start, a1 = start, a2 = start, a3 = start;
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    a0 = op.step(d, a0, hn::LoadU(d, x + i));
    a1 = op.step(d, a1, hn::LoadU(d, x + i + lanes));
    a2 = op.step(d, a2, hn::LoadU(d, x + i + 2 * lanes));
    a3 = op.step(d, a3, hn::LoadU(d, x + i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) {
    a0 = op.step(d, a0, hn::LoadU(d, x + i));
    std::swap(a0, a1);
  }
  if (i < n) a2 = op.step(d, a2, load_tail(d, x + i, n - i, op.neutral()));
  return op.merge(d, op.merge(d, a0, a1), op.merge(d, a2, a3));
}

template <class T>
struct SumStep {
  T neutral() const { return 0; }
  template <class D, class V>
  HWY_INLINE V step(D, V acc, V x) const {
    return hn::Add(acc, x);
  }
  template <class D, class V>
  HWY_INLINE V merge(D, V a, V b) const {
    return hn::Add(a, b);
  }
};

/// The larger one, or NaN if either is NaN.
template <class D, class V>
HWY_INLINE V max_or_nan(D, V acc, V x) {
  return hn::IfThenElse(hn::Or(hn::Gt(x, acc), hn::IsNaN(x)), x, acc);
}
template <class D, class V>
HWY_INLINE V min_or_nan(D, V acc, V x) {
  return hn::IfThenElse(hn::Or(hn::Lt(x, acc), hn::IsNaN(x)), x, acc);
}

template <class T>
struct MaxStep {
  T neutral() const { return -std::numeric_limits<T>::infinity(); }
  template <class D, class V>
  HWY_INLINE V step(D d, V acc, V x) const {
    return max_or_nan(d, acc, x);
  }
  template <class D, class V>
  HWY_INLINE V merge(D d, V a, V b) const {
    return max_or_nan(d, a, b);
  }
};

template <class D, class T = hn::TFromD<D>>
HWY_INLINE T sum_row(D d, const T* x, int64_t n) {
  return hn::GetLane(hn::SumOfLanes(d, fold_row(d, SumStep<T>{}, x, n, hn::Zero(d))));
}

/// The largest lane, NaN if one is NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::TFromD<D> max_of_lanes(D d, V v) {
  using T = hn::TFromD<D>;
  if (!hn::AllFalse(d, hn::IsNaN(v))) return std::numeric_limits<T>::quiet_NaN();
  return hn::GetLane(hn::MaxOfLanes(d, v));
}

/// The lanes in which a or b is NaN.
template <class D, class V = hn::Vec<D>>
HWY_INLINE hn::Mask<D> nan_in_either([[maybe_unused]] D d, V a, V b) {
#  if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  if constexpr (sizeof(hn::TFromD<D>) == 4) {
    return hn::Mask<D>{_mm512_cmp_ps_mask(a.raw, b.raw, _CMP_UNORD_Q)};
  } else {
    return hn::Mask<D>{_mm512_cmp_pd_mask(a.raw, b.raw, _CMP_UNORD_Q)};
  }
#  else
  return hn::Or(hn::IsNaN(a), hn::IsNaN(b));
#  endif
}

/// The largest (or smallest) element of a row, NaN if one is NaN. The search for NaN is separate from the
/// fold and tests two vectors at once.
template <bool kLargest, class D, class T = hn::TFromD<D>>
HWY_INLINE T extreme_of_row(D d, const T* HWY_RESTRICT x, int64_t n) {
  const auto pick = [](auto a, auto b) { return kLargest ? hn::Max(a, b) : hn::Min(a, b); };
  const T neutral = kLargest ? -std::numeric_limits<T>::infinity() : std::numeric_limits<T>::infinity();
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto a0 = hn::Set(d, neutral), a1 = a0, a2 = a0, a3 = a0;
  auto nan = hn::IsNaN(a0);
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    const auto x0 = hn::LoadU(d, x + i), x1 = hn::LoadU(d, x + i + lanes);
    const auto x2 = hn::LoadU(d, x + i + 2 * lanes), x3 = hn::LoadU(d, x + i + 3 * lanes);
    nan = hn::Or(nan, hn::Or(nan_in_either(d, x0, x1), nan_in_either(d, x2, x3)));
    a0 = pick(a0, x0);
    a1 = pick(a1, x1);
    a2 = pick(a2, x2);
    a3 = pick(a3, x3);
  }
  for (; i < n; i += lanes) {
    const auto v = n - i >= lanes ? hn::LoadU(d, x + i) : load_tail(d, x + i, n - i, neutral);
    nan = hn::Or(nan, hn::IsNaN(v));
    a0 = pick(a0, v);
    std::swap(a0, a1);
  }
  if (!hn::AllFalse(d, nan)) return std::numeric_limits<T>::quiet_NaN();
  const auto all = pick(pick(a0, a1), pick(a2, a3));
  return hn::GetLane(kLargest ? hn::MaxOfLanes(d, all) : hn::MinOfLanes(d, all));
}

template <class D, class T = hn::TFromD<D>>
HWY_INLINE T max_row(D d, const T* x, int64_t n) {
  return extreme_of_row<true>(d, x, n);
}

/// Maximum that may drop NaN: for a row with NaN the result is NaN or one of the numbers.
template <class T>
struct AnyMaxStep {
  T neutral() const { return -std::numeric_limits<T>::infinity(); }
  template <class D, class V>
  HWY_INLINE V step(D, V acc, V x) const {
    return hn::Max(acc, x);
  }
  template <class D, class V>
  HWY_INLINE V merge(D, V a, V b) const {
    return hn::Max(a, b);
  }
};

/// The largest element of a row, to be subtracted before exp_below(). If the row has a NaN, the sum of those
/// exponentials is NaN, whatever this returns.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE T exp_shift_of_row(D d, const T* x, int64_t n) {
  if constexpr (kExpBelowKeepsNan<T>) {
    const AnyMaxStep<T> op;
    return hn::GetLane(hn::MaxOfLanes(d, fold_row(d, op, x, n, hn::Set(d, op.neutral()))));
  } else {
    return max_row(d, x, n);
  }
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
