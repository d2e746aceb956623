// Functions on vectors of double whose float64 results keep their digits only with pairs of numbers: the
// error function and its complement, gelu and its derivative, softplus, tan, and lgamma of negative numbers.
// Needs fused multiply-add. Members as in math-inl.h; special values are handled in vectors too, except where
// inside() says no.
//
// The largest errors in units in the last place, measured against numbers of 113 bits for random arguments of
// every exponent and of common magnitude: erf 1.1, erfc 1.8, gelu 1.9, softplus 1.5, tan 1.1, lgamma 4.0. The
// derivative of gelu, which has a zero, is within 0.9 units of 1.
#if defined(MX_OPERATORS_MATH_F64_INL_H_) == defined(HWY_TARGET_TOGGLE)
#  ifdef MX_OPERATORS_MATH_F64_INL_H_
#    undef MX_OPERATORS_MATH_F64_INL_H_
#  else
#    define MX_OPERATORS_MATH_F64_INL_H_
#  endif

#  include <cmath>
#  include <limits>

#  include "operators/kernels/math_pair-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

/// exp(x + low) = (1 + s) 2^n, for |x| up to 1400 and a much smaller low. s keeps its digits.
template <class D, class V>
HWY_INLINE void exp_parts(D d, V x, V low, V& s, V& n) {
  n = hn::Round(hn::Mul(x, hn::Set(d, 1.4426950408889634)));
  const V upper = hn::NegMulAdd(n, hn::Set(d, kLn2Upper), x);
  const V lower = hn::NegMulAdd(n, hn::Set(d, kLn2Lower), low);
  const V r = hn::Add(upper, lower), r_low = hn::Sub(lower, hn::Sub(r, upper));
  s = hn::Add(r, hn::MulAdd(hn::Mul(r, r), exp_curve(d, r), r_low));
}

/// The upper tail of the complementary error function, for z >= 0.8: exp(-z^2) P(t) / (1 + 2 z). P(t) is
/// kFirst + kFirstLow plus t times the polynomial with the coefficients kCurve.
struct ErrorTail {
  static constexpr double kLeast = 0.8, kShift = 3.5, kSlope = 2, kExponent = 1;
  static constexpr double kFirst = 1.2423492448711544, kFirstLow = -6.304717877719595e-18;
  static constexpr double kCurve[] = {
      1.720118791896864e-08,   -7.882926100606181e-08,  -4.081521831558594e-08, 5.951443268025033e-07,
      -1.6507155426201495e-08, -3.816310124351379e-06,  2.31530072063744e-06,   2.426310838219117e-05,
      -4.2778518940366715e-05, -0.00012151320383835373, 0.0005643837563196372,  -0.000302267730655219,
      -0.004215019835295231,   0.019099330927232476,    -0.048823325832522926,  0.08798315382568463,
      -0.11508959816004022,    0.09751909515323902,     -0.010555596332220253,  -0.1400091801376193};
};

/// That of the normal distribution, for a >= 0.8: exp(-a^2 / 2) P(t) / (1 + 1.25 a).
struct NormalTail {
  static constexpr double kLeast = 0.8, kShift = 4.5, kSlope = 1.25, kExponent = 0.5;
  static constexpr double kFirst = 0.5618224727141773, kFirstLow = 1.2860403700292941e-17;
  static constexpr double kCurve[] = {
      -2.723223799162862e-09,  -9.710409815915743e-09,  2.6796754944137065e-08, 8.498667078890814e-08,
      -1.4225326692508625e-07, -5.384859105134874e-07,  7.287003019384739e-07,  3.2184536236432163e-06,
      -4.96571639379118e-06,   -1.8667734924298348e-05, 4.584858314783558e-05,  8.575525011552066e-05,
      -0.00046692243178372026, 0.00022314117589555905,  0.0034578015936142614,  -0.014297049434300213,
      0.032305219246257844,    -0.04809679138846773,    0.043086496300809275,   -0.0003826906304972154,
      -0.07908516279848869};
};

/// The tail at z >= kLeast times `factor`, as mantissa * 2^n, and its exponential as (1 + s) 2^n; t = (z -
/// kShift) / (z + kShift). Each number that the result is proportional to is a pair, so that only the last
/// sum rounds it.
template <class Tail, class D, class V>
HWY_INLINE void tail_parts(D d, V z, V factor, V& mantissa, V& s, V& n) {
  const V one = hn::Set(d, 1), slope = hn::Set(d, Tail::kSlope), shift = hn::Set(d, Tail::kShift);
  // The exponent: its rounding error would be multiplied by its size.
  const V half = hn::Mul(z, hn::Set(d, Tail::kExponent));
  const V square = hn::Mul(half, z), square_low = hn::MulSub(half, z, square);
  exp_parts(d, hn::Neg(square), hn::Neg(square_low), s, n);
  const V sum = hn::Add(z, shift);
  const V divisor = hn::MulAdd(slope, z, one), divisor_low = hn::MulSub(slope, z, hn::Sub(divisor, one));
  // One division for both quotients.
  const V both = hn::Div(one, hn::Mul(sum, divisor)), inverse = hn::Mul(sum, both);
  const V t = hn::Mul(hn::Sub(z, shift), hn::Mul(divisor, both));
  const V first = hn::Set(d, Tail::kFirst), rest = hn::Mul(t, horner(d, t, Tail::kCurve));
  const V p = hn::Add(first, rest);
  const V p_low = hn::Add(hn::Sub(rest, hn::Sub(p, first)), hn::Set(d, Tail::kFirstLow));
  const V above = hn::Mul(p, factor), above_low = hn::MulAdd(p_low, factor, hn::MulSub(p, factor, above));
  const V q = hn::Mul(above, inverse);
  const V gap = hn::NegMulAdd(q, divisor_low, hn::Add(hn::NegMulAdd(q, divisor, above), above_low));
  mantissa = hn::Add(q, hn::MulAdd(q, s, hn::Mul(gap, inverse)));
}

/// The same as one number.
template <class Tail, class D, class V>
HWY_INLINE V tail_of(D d, V z) {
  V mantissa, s, n;
  tail_parts<Tail>(d, z, hn::Set(d, 1), mantissa, s, n);
  return scaled(d, mantissa, n);
}

/// erf(x) / x - 1 for |x| <= 1.
template <class D, class V>
HWY_INLINE V error_slope(D d, V x) {
  constexpr double c[] = {5.957176147748911e-11,   -1.1372848856791674e-09, 1.4659775274047436e-08,
                          -1.6350312701054695e-07, 1.6461000484121368e-06,  -1.4925595266831182e-05,
                          0.0001205533111164271,   -0.000854832698083379,   0.0052239776248180145,
                          -0.026866170645076792,   0.11283791670954879,     -0.3761263890318375,
                          0.1283791670955126};
  return horner(d, hn::Mul(x, x), c);
}

struct ErrorFunction {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    const V one = hn::Set(d, 1), size = hn::Abs(x);
    const auto close = hn::Lt(size, one);
    const V near = hn::MulAdd(x, error_slope(d, hn::IfThenElseZero(close, x)), x);
    if (hn::AllTrue(d, close)) return near;
    const V tail = tail_of<ErrorTail>(d, at_most(hn::Set(d, 6.5), size));
    return hn::IfThenElse(close, near, hn::CopySign(hn::Sub(one, tail), x));
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V) {
    return all_inside(d);
  }
  static double scalar(double x) { return std::erf(x); }
};

struct ErrorComplement : ErrorFunction {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    const V one = hn::Set(d, 1), half = hn::Set(d, 0.5), zero = hn::Zero(d), size = hn::Abs(x);
    const auto close = hn::Lt(size, hn::Set(d, ErrorTail::kLeast));
    const V tail = tail_of<ErrorTail>(d, at_most(hn::Set(d, 28), size));
    const V far = hn::IfThenElse(hn::Lt(x, zero), hn::Sub(hn::Set(d, 2), tail), tail);
    if (hn::AllFalse(d, close)) return far;
    const V at = hn::IfThenElseZero(close, x);
    const V product = hn::Mul(at, error_slope(d, at));
    // Where the result is about 1/2, x - 1/2 is exact.
    const V middle = hn::Sub(half, hn::Add(product, hn::Sub(at, half)));
    const V near = hn::IfThenElse(hn::Lt(at, hn::Set(d, 0.25)), hn::Sub(one, hn::Add(at, product)), middle);
    return hn::IfThenElse(close, near, far);
  }
  static double scalar(double x) { return std::erfc(x); }
};

/// The normal distribution function at x, for |x| < 0.8: 1/2 + x / sqrt(2 pi) + x^3 R(x^2). The first two
/// terms are a pair.
template <class D, class V>
HWY_INLINE V normal_middle(D d, V x) {
  constexpr double c[] = {3.97689199404416e-12,   -1.1019741381588009e-10, 2.2695792806548434e-09,
                          -4.122329170794836e-08, 6.659675507773572e-07,   -9.444655674195346e-06,
                          0.00011543468750669225, -0.0011873282154700449,  0.009973557010035432,
                          -0.06649038006690544};
  const V half = hn::Set(d, 0.5), root = hn::Set(d, 0.3989422804014327),
          root_low = hn::Set(d, -2.49232720227773e-17);
  const V line = hn::MulAdd(x, root, half), line_low = hn::MulAdd(x, root, hn::Sub(half, line));
  const V square = hn::Mul(x, x);
  const V rest = hn::Mul(x, hn::MulAdd(square, horner(d, square, c), root_low));
  return hn::Add(line, hn::Add(rest, line_low));
}

/// x times the normal distribution function.
struct NormalGelu : ErrorFunction {
  static constexpr double kLimit = 40;  // beyond it the function is x or -0
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    const V limit = hn::Set(d, kLimit), size = at_most(limit, hn::Abs(x));
    const auto close = hn::Lt(size, hn::Set(d, NormalTail::kLeast)), negative = hn::Lt(x, hn::Zero(d));
    // The tail may be subnormal where its product with x is not: below 0 the product is scaled, not the tail.
    const V factor = hn::IfThenElse(negative, hn::CopySign(size, x), hn::Set(d, 1));
    V mantissa, s, n;
    tail_parts<NormalTail>(d, size, factor, mantissa, s, n);
    const V tail = scaled(d, mantissa, n);
    const V above = hn::NegMulAdd(size, tail, x);
    const V far = hn::IfThenElse(negative, tail, above);
    if (hn::AllFalse(d, close)) return far;
    const V at = hn::IfThenElseZero(close, x);
    const V near = hn::Mul(at, normal_middle(d, at));
    return hn::IfThenElse(close, near, far);
  }
  static double scalar(double x) { return Gelu::scalar(x); }
};

/// The head times the derivative of gelu: the distribution function at x, plus x times its density.
struct NormalGeluBackward {
  template <class D, class V>
  static HWY_INLINE V of(D d, V head, V x) {
    const V one = hn::Set(d, 1), root = hn::Set(d, 0.39894228040143268);
    const V size = at_most(hn::Set(d, NormalGelu::kLimit), hn::Abs(x));
    const auto close = hn::Lt(size, hn::Set(d, NormalTail::kLeast)), negative = hn::Lt(x, hn::Zero(d));
    V tail, s, n;
    tail_parts<NormalTail>(d, size, one, tail, s, n);
    const V density = hn::MulAdd(root, s, root);  // times 2^n
    const V below = scaled(d, hn::NegMulAdd(size, density, tail), n);
    const V far = hn::IfThenElse(negative, below, hn::Sub(one, below));
    if (hn::AllFalse(d, close)) return hn::Mul(head, far);
    const V at = hn::IfThenElseZero(close, x);
    const V near = hn::MulAdd(at, scaled(d, density, n), normal_middle(d, at));
    return hn::Mul(head, hn::IfThenElse(close, near, far));
  }
};

/// max(x, 0) + log(1 + e), e = exp(-|x|), log(1 + e) = 2 artanh(t), t = e / (2 + e).
struct LogOfOnePlusExp : ErrorFunction {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    const V zero = hn::Zero(d), two = hn::Set(d, 2);
    V s, n;
    exp_parts(d, hn::Neg(at_most(hn::Set(d, 760), hn::Abs(x))), zero, s, n);
    const V e = scaled(d, hn::Add(hn::Set(d, 1), s), n);
    const V sum = hn::Add(e, two), sum_low = hn::Sub(e, hn::Sub(sum, two));
    const V inverse = hn::Div(hn::Set(d, 1), sum), t = hn::Mul(e, inverse);
    const V t_low = hn::Mul(hn::NegMulAdd(t, sum_low, hn::NegMulAdd(t, sum, e)), inverse);
    constexpr double c[] = {0.1563057780092285,  0.07492143795550767, 0.10845178394880015,
                            0.11734279061303197, 0.13335178631449257, 0.1538454396486055,
                            0.18181819897962714, 0.2222222219823677,  0.285714285716001,
                            0.39999999999999525, 0.6666666666666666};
    const V square = hn::Mul(t, t);
    const V rest = hn::MulAdd(hn::Mul(t, square), horner(d, square, c), hn::Add(t_low, t_low));
    const V log = hn::MulAdd(two, t, rest);
    // Below, t may be so small that its square underflows, and e so small that its quotient loses digits.
    const V small = hn::IfThenElse(hn::Lt(e, hn::Set(d, 0x1p-54)), e, log);
    return hn::Add(at_least(zero, x), small);
  }
  static double scalar(double x) { return Softplus::scalar(x); }
};

/// From the remainder of x after subtracting a multiple of pi / 2, as a pair; the quadrant decides between
/// the tangent and its negative inverse.
struct Tangent {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    const hn::RebindToUnsigned<D> du;
    const V one = hn::Set(d, 1);
    // The lowest bits of the sum hold the quotient.
    const V magic = hn::Set(d, 0x1.8p52);
    const V shifted = hn::MulAdd(x, hn::Set(d, 0.63661977236758138), magic), k = hn::Sub(shifted, magic);
    // pi / 2 in three parts. The first difference is exact; the product with the second part is a pair.
    const V first = hn::NegMulAdd(k, hn::Set(d, 0x1.921fb54442d18p0), x);
    const V part = hn::Set(d, 0x1.1a62633145c07p-54);
    const V product = hn::Mul(k, part), product_low = hn::MulSub(k, part, product);
    const V r = hn::Sub(first, product), back = hn::Sub(r, first);
    const V error = hn::Sub(hn::Sub(first, hn::Sub(r, back)), hn::Add(product, back));
    const V r_low = hn::Sub(error, hn::MulAdd(k, hn::Set(d, -0x1.f1976b7ed8fbcp-110), product_low));
    constexpr double c[] = {8.483366026421109e-06,   -1.8315420763248177e-05, 3.6516326239348694e-05,
                            -1.1013770223130576e-05, 5.558795859198443e-05,   8.998514873588395e-05,
                            0.00024122637199018774,  0.0005895756017326381,   0.0014559027397855887,
                            0.00359212098047887,     0.008863236003491827,    0.02186948851707412,
                            0.05396825396865547,     0.13333333333333,        0.3333333333333333};
    const V square = hn::Mul(r, r);
    const V slope =
        hn::MulAdd(hn::MulAdd(square, hn::Set(d, 2. / 3), one), square, one);  // nearly its derivative
    const V rest = hn::MulAdd(hn::Mul(r, square), horner(d, square, c), hn::Mul(r_low, slope));
    const V high = hn::Add(r, rest), low = hn::Sub(rest, hn::Sub(high, r));
    const V inverse = hn::Div(one, high);
    const V gap = hn::NegMulAdd(inverse, low, hn::NegMulAdd(inverse, high, one));
    const V turned = hn::Neg(hn::MulAdd(inverse, gap, inverse));
    const auto odd = hn::TestBit(hn::BitCast(du, shifted), hn::Set(du, 1));
    const V result = hn::IfThenElse(hn::RebindMask(d, odd), turned, high);
    return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, result);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V x) {
    return within(d, x, 0x1p30);
  }
  static double scalar(double x) { return std::tan(x); }
};

/// log(pi / (a |sin(pi a)|)) as a pair, for a > 1e-100 that is not an integer.
template <class D, class V>
HWY_INLINE void reflection(D d, V a, V& high, V& low) {
  const V pi = hn::Set(d, 0x1.921fb54442d18p1), pi_low = hn::Set(d, 0x1.1a62633145c07p-53);
  const V f = hn::Abs(hn::Sub(a, hn::Round(a))), square = hn::Mul(f, f);
  constexpr double c[] = {7.725743030789876e-07, -2.1906201655131958e-05, 0.00046630087411496363,
                          -0.007370430719634586, 0.08214588659675232,     -0.599264529320343,
                          2.55016403987734,      -5.16771278004997};
  const V angle = hn::Mul(pi, f), angle_low = hn::MulAdd(pi_low, f, hn::MulSub(pi, f, angle));
  const V rest = hn::MulAdd(hn::Mul(f, square), horner(d, square, c), angle_low);
  const V sine = hn::Add(angle, rest), sine_low = hn::Sub(rest, hn::Sub(sine, angle));
  const V product = hn::Mul(a, sine);
  const V product_low = hn::MulAdd(a, sine_low, hn::MulSub(a, sine, product));
  const V quotient = hn::Div(pi, product);
  // The remainder of the division, relative to pi.
  const V gap = hn::NegMulAdd(quotient, product_low, hn::Add(hn::NegMulAdd(quotient, product, pi), pi_low));
  log_pair(d, quotient, high, low);
  low = hn::MulAdd(gap, hn::Set(d, 0.31830988618379067), low);
}

/// For x < 0, with a = -x, lgamma(x) is the logarithm above minus lgamma(a). Near its zeros, two between each
/// pair of poles, the difference has lost its digits: `of` gives NaN there, and the C library computes the
/// result.
struct LogGammaOfAny {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    const V a = hn::Abs(x), positive = log_gamma_positive(d, a);
    const auto negative = hn::Lt(x, hn::Zero(d));
    if (hn::AllFalse(d, negative)) return positive;
    V high, low;
    reflection(d, a, high, low);
    const V turned = hn::Add(hn::Sub(high, positive), low);
    const V larger = hn::Max(hn::Abs(high), hn::Abs(positive));
    const V nan = hn::Set(d, std::numeric_limits<double>::quiet_NaN());
    V y = hn::IfThenElse(hn::Lt(hn::Abs(turned), hn::Mul(larger, hn::Set(d, 0.5))), nan, turned);
    y = hn::IfThenElse(hn::Eq(hn::Round(a), a), hn::Set(d, kInfinity), y);  // the poles
    return hn::IfThenElse(negative, y, positive);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V x, V y) {
    const auto above = hn::And(hn::Gt(x, hn::Set(d, 1e-300)), hn::Lt(x, hn::Set(d, 1e305)));
    return hn::Or(above, hn::And(hn::Lt(x, hn::Set(d, -1e-100)), hn::Eq(y, y)));
  }
  static double scalar(double x) { return log_gamma(x); }
};

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
