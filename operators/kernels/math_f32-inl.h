// Elementary functions on vectors of float: those that programs use most. The members of each type are
// described in math-inl.h. Results are within 2 units in the last place; special values are handled in
// vectors too.
//
// exp: n = round(x / ln 2); a polynomial of degree 6 for the remainder, times 2^n. log: x = 2^e m with m
// around 1; a polynomial in m - 1. softplus: exp, and a polynomial for log(1 + e) on [0, 1]. tanh: piecewise
// polynomials (tanh_table.h) if one instruction can look up a vector of coefficients, otherwise a polynomial
// and exp. The polynomials are fitted at Chebyshev points.
#if defined(MX_OPERATORS_MATH_F32_INL_H_) == defined(HWY_TARGET_TOGGLE)
#  ifdef MX_OPERATORS_MATH_F32_INL_H_
#    undef MX_OPERATORS_MATH_F32_INL_H_
#  else
#    define MX_OPERATORS_MATH_F32_INL_H_
#  endif

#  include <limits>

#  include "operators/kernels/math-inl.h"
#  include "operators/kernels/min_max-inl.h"
#  include "operators/kernels/tanh_table.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

// ln 2 in two parts. The first has few bits, so that its products with exponents are exact.
constexpr float kLn2High = 0.693359375f, kLn2Low = -2.12194440054690583e-4f;

struct ExpFloat {
  /// With a second argument `low`, which is much smaller than x: exp(x + low), for arguments that need more
  /// digits than a float has.
  template <class D, class V, class... Low>
  static HWY_INLINE V of(D d, V x, Low... low) {
    // Beyond these limits the result is 0 or infinity.
    x = at_least(hn::Set(d, -104.5f), at_most(hn::Set(d, 89.f), x));
    // Adding 1.5 * 2^23 puts the nearest integer into the lowest bits.
    const V magic = hn::Set(d, 12582912.f);
    const V shifted = hn::MulAdd(x, hn::Set(d, 1.44269504088896341f), magic);
    const V n = hn::Sub(shifted, magic);
    V r = hn::NegMulAdd(n, hn::Set(d, kLn2High), x);
    r = hn::NegMulAdd(n, hn::Set(d, kLn2Low), r);
    ((r = hn::Add(r, low)), ...);
    constexpr double c[] = {0.0013926176119935579,
                            0.0083631730745137109,
                            0.041666554662050534,
                            0.16666577025597988,
                            0.5,
                            1.0,
                            1.0};
    const V y = horner(d, r, c);
#  if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    return V{_mm512_scalef_ps(y.raw, n.raw)};
#  else
    // Multiplies in two steps, because 2^n alone may not be a normal number.
    const hn::RebindToSigned<D> di;
    const auto e = hn::Sub(hn::BitCast(di, shifted), hn::BitCast(di, magic));
    const auto half = hn::ShiftRight<1>(e);
    const auto bias = hn::Set(di, 127);
    const V first = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(half, bias)));
    const V second = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(hn::Sub(e, half), bias)));
    return hn::Mul(hn::Mul(y, first), second);
#  endif
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V) {
    return hn::FirstN(d, hn::Lanes(d));  // all lanes
  }
  static float scalar(float x) { return x; }
};

struct LogFloat : ExpFloat {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    const hn::RebindToSigned<D> di;
    const auto tiny = hn::Lt(x, hn::Set(d, 1.17549435e-38f));
    const V scaled = hn::IfThenElse(tiny, hn::Mul(x, hn::Set(d, 8388608.f)), x);
    const V less = hn::IfThenElseZero(tiny, hn::Set(d, 23.f));
    const auto bits = hn::BitCast(di, scaled);
    // The exponent e of the power of two for which m is in [sqrt(1/2), sqrt(2)).
    const auto e = hn::ShiftRight<23>(hn::Sub(bits, hn::Set(di, 0x3f3504f3)));
    const V m = hn::BitCast(d, hn::Sub(bits, hn::ShiftLeft<23>(e)));
    const V f = hn::Sub(m, hn::Set(d, 1.f));
    const V n = hn::Sub(hn::ConvertTo(d, e), less);
    constexpr double c[] = {0.069716114714511778, -0.11479733846637636, 0.11685419923486739,
                            -0.12425687331451106, 0.1424905764569748,   -0.16667802319501254,
                            0.20000715748892102,  -0.24999996957950882, 0.33333331180030048};
    const V square = hn::Mul(f, f);
    V y = hn::Mul(hn::Mul(f, square), horner(d, f, c));
    y = hn::MulAdd(n, hn::Set(d, kLn2Low), y);
    y = hn::NegMulAdd(hn::Set(d, 0.5f), square, y);
    y = hn::MulAdd(n, hn::Set(d, kLn2High), hn::Add(f, y));
    // The logarithm of infinity and NaN is the operand itself, that of 0 is minus infinity, that of a
    // negative number is NaN.
    const V infinity = hn::Set(d, std::numeric_limits<float>::infinity());
    y = hn::IfThenElse(hn::Lt(x, infinity), y, x);
    y = hn::IfThenElse(hn::Eq(x, hn::Zero(d)), hn::Neg(infinity), y);
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Set(d, std::numeric_limits<float>::quiet_NaN()), y);
  }
};

struct TanhFloat : ExpFloat {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    const V size = hn::Abs(x);
#  if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
    const V z = at_most(hn::Set(d, 15.99f), size);
    const V key = at_least(hn::Set(d, 0.0625f), z);
    const __m512i index = _mm512_srli_epi32(_mm512_castps_si512(key.raw), 21);
    const auto look = [&](int row) HWY_ATTR {
      return V{_mm512_permutex2var_ps(_mm512_loadu_ps(kTanhTable[row]), index,
                                      _mm512_loadu_ps(kTanhTable[row] + 16))};
    };
    const V t = hn::Sub(z, look(0));
    V y = look(6);
    for (int row = 5; row > 0; --row) y = hn::MulAdd(y, t, look(row));
#  else
    // Near 0 an odd polynomial; elsewhere 1 - 2 / (exp(2x) + 1), which would lose digits near 0.
    constexpr double c[] = {-0.006096714165981964, 0.02099717899913318, -0.05385090957852817,
                            0.1333276973697644, -0.33333328944134255};
    const V square = hn::Mul(size, size);
    const V near = hn::MulAdd(hn::Mul(size, square), horner(d, square, c), size);
    const V one = hn::Set(d, 1.f), two = hn::Set(d, 2.f);
    const V e = ExpFloat::of(d, at_most(hn::Set(d, 20.f), hn::Add(size, size)));
    const V far = hn::Sub(one, hn::Div(two, hn::Add(e, one)));
    const V y = hn::IfThenElse(hn::Lt(size, hn::Set(d, 0.625f)), near, far);
#  endif
    return hn::CopySign(y, x);
  }
};

/// 1 / q, for q far from the limits of the type's range.
template <class D, class V>
HWY_INLINE V inverse_of(D d, V q) {
  const V one = hn::Set(d, 1.f);
#  if HWY_ARCH_X86 && HWY_TARGET <= HWY_AVX3
  // An approximation with 14 bits, which a step of Newton's method doubles: a third of the time of a
  // division.
  const V r = hn::ApproximateReciprocal(q);
  return hn::MulAdd(hn::NegMulAdd(q, r, one), r, r);
#  else
  return hn::Div(one, q);
#  endif
}

struct SigmoidFloat : ExpFloat {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    const V e = ExpFloat::of(d, hn::Neg(hn::Abs(x)));
    const V r = inverse_of(d, hn::Add(hn::Set(d, 1.f), e));
    return hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(e, r), r);
  }
};

struct SoftplusFloat : ExpFloat {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    // max(x, 0) + log(1 + e), e = exp(-|x|) from 0 to 1.
    const V e = ExpFloat::of(d, hn::Neg(hn::Abs(x)));
    constexpr double c[] = {0.00280164199280335, -0.01718426698244871, 0.049309973434549695,
                            -0.0913941377401492, 0.13033364238242814,  -0.16365152869205535,
                            0.19956707952251837, -0.24996759908263924, 0.3333323734621399,
                            -0.4999999952222377};
    const V rest = hn::MulAdd(hn::Mul(e, e), horner(d, e, c), e);
    return hn::Add(at_least(hn::Zero(d), x), rest);
  }
};

struct SiluFloat {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    return hn::Mul(x, SigmoidFloat::of(d, x));
  }
  // For smaller x, exp has too few digits left.
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V x) {
    return hn::Gt(x, hn::Set(d, -80.f));
  }
  static float scalar(float x) { return static_cast<float>(Silu::scalar(x)); }
};

/// The distribution function of the normal distribution. With a = |x|: up to -a it is exp(-a^2 / 2) P(t) / (a
/// + 3.5), t = 1 - 7 / (a + 3.5); up to a, 1 minus that. Near 0 it is 1/2 plus an odd polynomial. `bell`
/// becomes exp(-x^2 / 2).
struct NormalFloat {
  template <class D, class V>
  static HWY_INLINE V integral(D d, V x, V& bell) {
    const V k = hn::Set(d, 3.5f), a = at_most(hn::Set(d, 20.f), hn::Abs(x));
    // The square in two parts: the first is the exact square of the upper half of the digits.
    const hn::RebindToUnsigned<D> du;
    const V upper = hn::And(a, hn::BitCast(d, hn::Set(du, 0xfffff000u)));
    const V half = hn::Set(d, -0.5f);
    const V high = hn::Mul(half, hn::Mul(upper, upper));
    const V low = hn::Mul(hn::Mul(half, hn::Add(a, upper)), hn::Sub(a, upper));
    const V inverse = inverse_of(d, hn::Add(a, k));
    constexpr double c[] = {-2.18766106816e-5, 7.67955304102e-5, 0.000433096391896, -0.000463003756578,
                            -0.00317541538653, 0.00648260972546, 0.017405951925,    -0.116051707178,
                            0.315425070412,    -0.565561791309,  0.744416074437};
    const V p = horner(d, hn::NegMulAdd(hn::Set(d, 7.f), inverse, hn::Set(d, 1.f)), c);
    bell = ExpFloat::of(d, high, low);
    const V tail = hn::Mul(hn::Mul(bell, p), inverse);
    const V far = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), tail, hn::Sub(hn::Set(d, 1.f), tail));
    // Near 0 an odd polynomial keeps more digits.
    constexpr double near[] = {-7.66053817138e-6, 0.000113502296193, -0.0011863439888,
                               0.00997332848126,  -0.0664903605672,  0.398942280131};
    const V close = hn::MulAdd(a, hn::CopySign(horner(d, hn::Mul(a, a), near), x), hn::Set(d, 0.5f));
    return hn::IfThenElse(hn::Lt(a, hn::Set(d, 1.f)), close, far);
  }
};

/// x times the distribution function of the normal distribution.
struct GeluFloat {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    V bell;
    return hn::Mul(x, NormalFloat::integral(d, x, bell));
  }
  // For smaller x, exp has too few digits left.
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V x) {
    return hn::Gt(x, hn::Set(d, -12.5f));
  }
  static float scalar(float x) { return static_cast<float>(Gelu::scalar(x)); }
};

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
