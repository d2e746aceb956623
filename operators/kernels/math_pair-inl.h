// Functions on vectors of double that Highway's contrib/math lacks, or computes with fewer digits than
// float64 needs: powers, cube roots, angles, remainders, the logarithm of the gamma function. More are in
// math_f64-inl.h.
//
// If a logarithm is multiplied by an exponent, the product keeps all digits only if the logarithm has more
// digits than a double. So it is a pair of doubles, the second much smaller than the first. Polynomials are
// fitted at Chebyshev points. Unary functions have the members that math-inl.h describes; functions of two
// operands have
//   of(d, a, b)      the vector function, accurate within its domain,
//   inside(d, a, b)  the mask of the elements that are in the domain,
//   scalar(a, b)     the C library's result for the others.
// Without fused multiply-add the errors are larger: the functions that need it are then computed by the C
// library (find_row of binary_vector.cc).
#if defined(MX_OPERATORS_MATH_PAIR_INL_H_) == defined(HWY_TARGET_TOGGLE)
#  ifdef MX_OPERATORS_MATH_PAIR_INL_H_
#    undef MX_OPERATORS_MATH_PAIR_INL_H_
#  else
#    define MX_OPERATORS_MATH_PAIR_INL_H_
#  endif

#  include <cmath>
#  include <limits>

#  include "operators/formulas.h"
#  include "operators/kernels/log_gamma.h"
#  include "operators/kernels/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

// ln 2 in two parts. The first has 42 bits, so that its products with exponents are exact.
constexpr double kLn2Upper = 0x1.62e42fefa4000p-1, kLn2Lower = -0x1.8432a1b0e2634p-43;

/// A mask of all lanes, for functions that handle special values themselves.
template <class D>
HWY_INLINE hn::Mask<D> all_inside(D d) {
  return hn::FirstN(d, hn::Lanes(d));
}

/// 2^n for integers n from -1022 to 1023.
template <class D, class V>
HWY_INLINE V two_to(D d, V n) {
  const hn::RebindToUnsigned<D> du;
  // The lowest bits of the sum hold n + 1023.
  return hn::BitCast(d, hn::ShiftLeft<52>(hn::BitCast(du, hn::Add(n, hn::Set(d, 0x1p52 + 1023)))));
}

/// x * 2^n, for integers n from -2044 to 2046. In two steps, because 2^n alone may not be a normal number.
/// Only the second step rounds.
template <class D, class V>
HWY_INLINE V scaled(D d, V x, V n) {
  const V half = hn::Floor(hn::Mul(n, hn::Set(d, 0.5)));
  return hn::Mul(hn::Mul(x, two_to(d, half)), two_to(d, hn::Sub(n, half)));
}

/// Converts integers below 2^52, in the lowest bits of the lanes, to double.
template <class D, class VU>
HWY_INLINE hn::Vec<D> from_small(D d, VU bits) {
  const hn::RebindToUnsigned<D> du;
  return hn::Sub(hn::BitCast(d, hn::Or(bits, hn::BitCast(du, hn::Set(d, 0x1p52)))), hn::Set(d, 0x1p52));
}

/// Splits x = 2^e m with m from sqrt(1/2) to sqrt(2), for finite x > 0.
template <class D, class V>
HWY_INLINE void split_exponent(D d, V x, V& m, V& e) {
  const hn::RebindToUnsigned<D> du;
  const auto tiny = hn::Lt(x, hn::Set(d, 0x1p-1022));
  const auto bits = hn::BitCast(du, hn::IfThenElse(tiny, hn::Mul(x, hn::Set(d, 0x1p54)), x));
  const auto one = hn::Set(du, 0x3ff0000000000000u);
  const auto shifted = hn::Add(bits, hn::Set(du, 0x3ff0000000000000u - 0x3fe6a09e00000000u));
  e = hn::Sub(from_small(d, hn::ShiftRight<52>(shifted)), hn::Set(d, 1023));
  e = hn::Sub(e, hn::IfThenElseZero(tiny, hn::Set(d, 54)));
  m = hn::BitCast(d, hn::Sub(bits, hn::Sub(hn::And(shifted, hn::Set(du, 0xfff0000000000000u)), one)));
}

/// log(x) = high + low, with a relative error of about 2^-68, for finite x > 0. Needs fused multiply-add.
template <class D, class V>
HWY_INLINE void log_pair(D d, V x, V& high, V& low) {
  // With t = (m - 1) / (m + 1): log m = 2t + 2/3 t^3 + t^5 Q(t^2). The first two terms are pairs.
  V m, e;
  split_exponent(d, x, m, e);
  const V one = hn::Set(d, 1);
  const V f = hn::Sub(m, one), g = hn::Add(m, one), g_low = hn::Sub(m, hn::Sub(g, one));
  const V inverse = hn::Div(one, g);
  const V t = hn::Mul(f, inverse);
  const V t_low = hn::Mul(hn::NegMulAdd(t, g_low, hn::NegMulAdd(t, g, f)), inverse);
  const V s = hn::Mul(t, t);
  const V s_low = hn::MulAdd(hn::Add(t, t), t_low, hn::MulSub(t, t, s));
  const V c = hn::Mul(s, t);
  const V c_low = hn::MulAdd(s, t_low, hn::MulAdd(s_low, t, hn::MulSub(s, t, c)));
  const V third = hn::Set(d, 0x1.5555555555555p-1), third_low = hn::Set(d, 0x1.5555555555555p-55);
  const V p = hn::Mul(third, c);
  const V p_low = hn::MulAdd(third, c_low, hn::MulAdd(third_low, c, hn::MulSub(third, c, p)));
  constexpr double q[] = {0.10762867423643211, 0.10456278375778207, 0.11766815303406081,
                          0.13333296483973291, 0.1538461576181261,  0.18181818179652515,
                          0.22222222222228445, 0.28571428571428565, 0.4};
  const V rest = hn::Mul(hn::Mul(c, s), horner(d, s, q));
  // Adds the larger terms first; the rounding error of each sum goes into the low part.
  const V upper = hn::Mul(e, hn::Set(d, kLn2Upper)), twice = hn::Add(t, t);
  const V first = hn::Add(upper, twice), first_low = hn::Sub(twice, hn::Sub(first, upper));
  const V second = hn::Add(first, p), second_low = hn::Sub(p, hn::Sub(second, first));
  V small = hn::MulAdd(e, hn::Set(d, kLn2Lower), hn::Add(hn::Add(t_low, t_low), hn::Add(p_low, rest)));
  small = hn::Add(small, hn::Add(first_low, second_low));
  high = hn::Add(second, small);
  low = hn::Sub(small, hn::Sub(high, second));
}

/// (exp(r) - 1 - r) / r^2 for |r| <= ln(2) / 2.
template <class D, class V>
HWY_INLINE V exp_curve(D d, V r) {
  constexpr double c[] = {2.0914707069612353e-9,
                          2.510524515390137e-8,
                          2.7557273594799413e-7,
                          2.7557255332554409e-6,
                          2.4801587325585839e-5,
                          0.00019841269874873975,
                          0.0013888888888883737,
                          0.0083333333333261199,
                          0.04166666666666667,
                          0.16666666666666671,
                          0.5};
  return horner(d, r, c);
}

/// exp(x + low), for |low| much smaller than 1.
template <class D, class V>
HWY_INLINE V exp_pair(D d, V x, V low) {
  // Beyond these limits the result is 0 or infinity.
  x = at_least(hn::Set(d, -760), at_most(hn::Set(d, 760), x));
  const V n = hn::Round(hn::Mul(x, hn::Set(d, 1.4426950408889634)));
  V r = hn::NegMulAdd(n, hn::Set(d, kLn2Upper), x);
  r = hn::Add(hn::NegMulAdd(n, hn::Set(d, kLn2Lower), r), low);
  const V y = hn::Add(hn::Set(d, 1), hn::MulAdd(hn::Mul(r, r), exp_curve(d, r), r));
  return scaled(d, y, n);
}

/// Gives `result` the sign that a power of a negative x has; the result is NaN if y is not an integer.
template <class D, class V>
HWY_INLINE V with_sign_of_power(D d, V result, V x, V y) {
  const auto negative = hn::Lt(x, hn::Zero(d));
  if (hn::AllFalse(d, negative)) return result;
  const V half = hn::Mul(y, hn::Set(d, 0.5));
  const auto whole = hn::Eq(hn::Round(y), y), odd = hn::Ne(hn::Round(half), half);
  const V signed_result = hn::IfThenElse(odd, hn::Neg(result), result);
  const V nan = hn::Set(d, std::numeric_limits<double>::quiet_NaN());
  return hn::IfThenElse(negative, hn::IfThenElse(whole, signed_result, nan), result);
}

/// Powers of zeros, infinities and NaN follow special rules, which the C library implements.
struct PowerDomain {
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V x, V y) {
    const V infinity = hn::Set(d, kInfinity), size = hn::Abs(x);
    return hn::And(hn::And(hn::Gt(size, hn::Zero(d)), hn::Lt(size, infinity)), hn::Lt(hn::Abs(y), infinity));
  }
  static double scalar(double x, double y) { return std::pow(x, y); }
};

/// For float32 results: a single double is precise enough for the logarithm.
struct PowerFloat : PowerDomain {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x, V y) {
    const auto common = inside(d, x, y);
    const V exponent =
        hn::Mul(hn::IfThenElseZero(common, y), hn::Log(d, hn::IfThenElse(common, hn::Abs(x), hn::Set(d, 1))));
    // Beyond these limits the result is 0 or infinity as a float.
    const V result = hn::Exp(d, at_least(hn::Set(d, -700), at_most(hn::Set(d, 700), exponent)));
    return with_sign_of_power(d, result, x, y);
  }
};

/// For float64. Needs fused multiply-add.
struct Power : PowerDomain {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x, V y) {
    const auto common = inside(d, x, y);
    V high, low;
    log_pair(d, hn::IfThenElse(common, hn::Abs(x), hn::Set(d, 1)), high, low);
    const V exponent = hn::Mul(y, high);
    const V rest = hn::MulAdd(y, low, hn::MulSub(y, high, exponent));
    // If the product overflows, its remainder is NaN.
    const auto moderate = hn::Lt(hn::Abs(exponent), hn::Set(d, 760));
    return with_sign_of_power(d, exp_pair(d, exponent, hn::IfThenElseZero(moderate, rest)), x, y);
  }
};

/// From 1 / cbrt(m), by a polynomial and an iteration of third order; the last step uses the exact residual.
struct CubeRoot {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    const hn::RebindToUnsigned<D> du;
    const V size = hn::Abs(x), one = hn::Set(d, 1);
    const auto tiny = hn::Lt(size, hn::Set(d, 0x1p-1022));
    const auto bits = hn::BitCast(du, hn::IfThenElse(tiny, hn::Mul(size, hn::Set(d, 0x1p54)), size));
    const V e = hn::Sub(from_small(d, hn::ShiftRight<52>(bits)), hn::Set(d, 1023));
    const V m = hn::BitCast(d, hn::Or(hn::And(bits, hn::Set(du, 0x000fffffffffffffu)), hn::BitCast(du, one)));
    const V q = hn::Floor(hn::Mul(hn::Add(e, hn::Set(d, 0.5)), hn::Set(d, 1. / 3)));
    const V rest = hn::NegMulAdd(hn::Set(d, 3), q, e);  // 0, 1 or 2
    const auto some = hn::Gt(rest, hn::Zero(d)), two = hn::Gt(rest, one);
    const V a = hn::Mul(m, hn::IfThenElse(two, hn::Set(d, 4), hn::IfThenElse(some, hn::Set(d, 2), one)));
    constexpr double c[] = {0.010066718649569128, -0.10750263607045218, 0.49117031566066663,
                            -1.2521242275997845,  1.9538182209261571,   -1.9720591905396233,
                            1.8766297241212761};
    V r =
        hn::Mul(horner(d, m, c), hn::IfThenElse(two, hn::Set(d, 0.62996052494743658),
                                                hn::IfThenElse(some, hn::Set(d, 0.79370052598409974), one)));
    const V t = hn::NegMulAdd(hn::Mul(a, r), hn::Mul(r, r), one);
    r = hn::MulAdd(hn::Mul(r, t), hn::MulAdd(t, hn::Set(d, 2. / 9), hn::Set(d, 1. / 3)), r);
    const V square_r = hn::Mul(r, r);
    V y = hn::Mul(a, square_r);
    const V square = hn::Mul(y, y), square_low = hn::MulSub(y, y, square);
    const V residual = hn::NegMulAdd(y, square_low, hn::NegMulAdd(y, square, a));
    y = hn::MulAdd(hn::Mul(residual, square_r), hn::Set(d, 1. / 3), y);
    y = hn::Mul(y, two_to(d, hn::Sub(q, hn::IfThenElseZero(tiny, hn::Set(d, 18)))));
    const auto common = hn::And(hn::Gt(size, hn::Zero(d)), hn::Lt(size, hn::Set(d, kInfinity)));
    return hn::IfThenElse(common, hn::CopySign(y, x), x);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V) {
    return all_inside(d);
  }
  static double scalar(double x) { return std::cbrt(x); }
};

/// The angle of the point (x, y): the arc tangent of a number of at most tan(pi/8), plus a multiple of pi/4.
struct ArcTangent2 {
  template <class D, class V>
  static HWY_INLINE V of(D d, V y, V x) {
    const V zero = hn::Zero(d), one = hn::Set(d, 1);
    V up = hn::Abs(y), along = hn::Abs(x);
    const auto steep = hn::Gt(up, along);
    V small = hn::IfThenElse(steep, along, up), large = hn::IfThenElse(steep, up, along);
    // Scaled down, so that their sum does not overflow and their quotient is not NaN.
    const auto huge = hn::Gt(large, hn::Set(d, 1e300));
    small = hn::IfThenElse(huge, hn::Mul(small, hn::Set(d, 0.25)), small);
    large = hn::IfThenElse(huge, hn::Mul(large, hn::Set(d, 0.25)), large);
    const auto same = hn::Eq(small, large);  // includes infinities and zeros
    const V numerator = hn::IfThenElse(hn::And(same, hn::Gt(large, zero)), one, small);
    const V denominator = hn::IfThenElse(same, one, large);
    const auto far = hn::Gt(numerator, hn::Mul(denominator, hn::Set(d, 0.41421356237309503)));
    const V z = hn::Div(hn::IfThenElse(far, hn::Sub(numerator, denominator), numerator),
                        hn::IfThenElse(far, hn::Add(numerator, denominator), denominator));
    constexpr double c[] = {0.016285183029865668,  -0.034570044186095537, 0.045515730866641905,
                            -0.052304498567092407, 0.058789283985172323,  -0.066664248336135524,
                            0.076922963721299638,  -0.090909087534004996, 0.11111111105153429,
                            -0.14285714285659807,  0.19999999999999804,   -0.33333333333333333};
    const V square = hn::Mul(z, z);
    const V angle = hn::MulAdd(hn::Mul(z, square), horner(d, square, c), z);
    // The multiple of pi / 4, which is exact in 48 bits, and whether the angle is subtracted from it.
    V quarters = hn::IfThenElseZero(far, one);
    quarters = hn::IfThenElse(steep, hn::Sub(hn::Set(d, 2), quarters), quarters);
    const auto behind = hn::Lt(hn::CopySign(one, x), zero);
    quarters = hn::IfThenElse(behind, hn::Sub(hn::Set(d, 4), quarters), quarters);
    const V turned = hn::IfThenElse(hn::Xor(steep, behind), hn::Neg(angle), angle);
    const V low = hn::MulAdd(quarters, hn::Set(d, -0x1.ee59d9cceba40p-51), turned);
    const V result = hn::MulAdd(quarters, hn::Set(d, 0x1.921fb54442d20p-1), low);
    // With 0 quarters the sum would lose the sign of -0; CopySign restores the sign of y.
    return hn::IfThenElse(hn::Or(hn::IsNaN(x), hn::IsNaN(y)), hn::Add(x, y), hn::CopySign(result, y));
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V, V) {
    return all_inside(d);
  }
  static double scalar(double y, double x) { return std::atan2(y, x); }
};

struct Hypotenuse {
  template <class D, class V>
  static HWY_INLINE V of(D d, V a, V b) {
    const V x = hn::Abs(a), y = hn::Abs(b), infinity = hn::Set(d, kInfinity);
    const V large = hn::Max(x, y), small = hn::Min(x, y);
    // Scaled so that the squares are normal numbers.
    const auto huge = hn::Gt(large, hn::Set(d, 0x1p500)), tiny = hn::Lt(large, hn::Set(d, 0x1p-450));
    const V one = hn::Set(d, 1), up = hn::Set(d, 0x1p600), down = hn::Set(d, 0x1p-600);
    const V scale = hn::IfThenElse(huge, down, hn::IfThenElse(tiny, up, one));
    const V back = hn::IfThenElse(huge, up, hn::IfThenElse(tiny, down, one));
    const V p = hn::Mul(large, scale), q = hn::Mul(small, scale);
    const V root = hn::Mul(hn::Sqrt(hn::MulAdd(p, p, hn::Mul(q, q))), back);
    const V with_nan = hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::IsNaN(b)), hn::Add(a, b), root);
    return hn::IfThenElse(hn::Or(hn::Eq(x, infinity), hn::Eq(y, infinity)), infinity, with_nan);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V, V) {
    return all_inside(d);
  }
  static double scalar(double a, double b) { return std::hypot(a, b); }
};

struct LogAddExp {
  template <class D, class V>
  static HWY_INLINE V of(D d, V a, V b) {
    const V high = hn::Max(a, b), low = hn::Min(a, b);
    const V way = hn::IfThenElseZero(hn::Ne(a, b), hn::Sub(low, high));
    const V sum = hn::Add(high, hn::Log1p(d, hn::Exp(d, at_least(hn::Set(d, -700), way))));
    return hn::IfThenElse(hn::Or(hn::IsNaN(a), hn::IsNaN(b)), hn::Add(a, b), sum);
  }
  /// If the smaller term is subnormal, it only matters for numbers near 0.
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V a, V b) {
    const V high = hn::Max(a, b), low = hn::Min(a, b);
    return hn::Or(hn::Gt(hn::Abs(high), hn::Set(d, 1)), hn::Gt(hn::Sub(low, high), hn::Set(d, -700)));
  }
  static double scalar(double a, double b) { return formulas::log_add_exp(a, b); }
};

/// The largest quotients for which the remainder is exact. For floats, computed as doubles, the product of
/// quotient and divisor is exact; for doubles, a fused multiply-add computes product and difference without
/// rounding between.
constexpr double kFloatQuotients = 0x1p28, kDoubleQuotients = 0x1p52;

/// Computes |a| = quotient * |b| + rest, with an integer quotient and 0 <= rest < |b|.
template <class D, class V>
HWY_INLINE void divide(D d, V a, V b, V& quotient, V& rest) {
  const V size = hn::Abs(b), zero = hn::Zero(d);
  rest = hn::Abs(a);
  quotient = hn::Floor(hn::Div(rest, size));
  rest = hn::IfThenElse(hn::Eq(quotient, zero), rest, hn::NegMulAdd(quotient, size, rest));
  // The division may have been rounded up to the next integer.
  const auto over = hn::Lt(rest, zero);
  rest = hn::IfThenElse(over, hn::Add(rest, size), rest);
  quotient = hn::IfThenElse(over, hn::Sub(quotient, hn::Set(d, 1)), quotient);
}

/// Returns the lanes in which exactly one of a and b is negative.
template <class D, class V>
HWY_INLINE hn::Mask<D> opposite(D d, V a, V b) {
  return hn::Xor(hn::Lt(a, hn::Zero(d)), hn::Lt(b, hn::Zero(d)));
}

/// The remainder with the sign of a.
template <bool kSingle>
struct TruncatedRest {
  template <class D, class V>
  static HWY_INLINE V of(D d, V a, V b) {
    V quotient, rest;
    divide(d, a, b, quotient, rest);
    return hn::CopySign(rest, a);
  }
  /// False for a NaN result: of NaN operands, of 0 / 0, of two infinities.
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V a, V b) {
    return hn::Lt(hn::Abs(hn::Div(a, b)), hn::Set(d, kSingle ? kFloatQuotients : kDoubleQuotients));
  }
  static double scalar(double a, double b) { return std::fmod(a, b); }
};

/// The remainder with the sign of b.
template <bool kSingle>
struct FlooredRest : TruncatedRest<kSingle> {
  template <class D, class V>
  static HWY_INLINE V of(D d, V a, V b) {
    const V rest = TruncatedRest<kSingle>::of(d, a, b), zero = hn::Zero(d);
    const V moved = hn::IfThenElse(opposite(d, rest, b), hn::Add(rest, b), rest);
    return hn::IfThenElse(hn::Eq(rest, zero), hn::CopySign(zero, b), moved);
  }
  static double scalar(double a, double b) { return formulas::floored_rest(a, b); }
};

template <bool kSingle>
struct FlooredQuotient : TruncatedRest<kSingle> {
  template <class D, class V>
  static HWY_INLINE V of(D d, V a, V b) {
    V quotient, rest;
    divide(d, a, b, quotient, rest);
    const auto up = hn::And(hn::Ne(rest, hn::Zero(d)), opposite(d, a, b));
    const V size = hn::IfThenElse(up, hn::Add(quotient, hn::Set(d, 1)), quotient);
    return hn::CopySign(size, hn::Div(a, b));
  }
  static double scalar(double a, double b) { return formulas::floored_quotient(a, b); }
};

struct Exp2Pair {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    // The fraction times ln 2 is the low part of the pair.
    const V at = at_least(hn::Set(d, -1090), at_most(hn::Set(d, 1090), x));
    const V n = hn::Round(at), f = hn::Sub(at, n), ln2 = hn::Set(d, 0.69314718055994531);
    return scaled(d, exp_pair(d, hn::Mul(f, ln2), hn::Zero(d)), n);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V x) {
    return within(d, x, kInfinity);
  }
  static double scalar(double x) { return std::exp2(x); }
};

/// lgamma(a) for a > 0. Below 1: from lgamma(a + 1) and log a. Up to 3: (a - 1)(a - 2) times a polynomial,
/// which has both zeros exactly. Up to 8: reduced to the range from 2 to 3, plus the logarithm of a product.
/// Beyond: Stirling's series.
template <class D, class V>
HWY_INLINE V log_gamma_positive(D d, V a) {
  const V one = hn::Set(d, 1), three = hn::Set(d, 3), eight = hn::Set(d, 8);
  const auto below = hn::Lt(a, one), beyond = hn::Ge(a, eight);
  const auto middle = hn::And(hn::Ge(a, three), hn::Lt(a, eight));
  // The product (a - 1) ... (a - j), with the j for which a - j is from 2 to 3.
  V product = one, b = a;
  if (!hn::AllFalse(d, middle)) {
    for (int i = 0; i < 5; ++i) {
      const auto more = hn::And(middle, hn::Ge(b, three));
      b = hn::IfThenElse(more, hn::Sub(b, one), b);
      product = hn::IfThenElse(more, hn::Mul(product, b), product);
    }
  }
  b = hn::IfThenElse(beyond, three, b);
  // lgamma(1 + b) = b (b - 1) H(b - 1).
  b = hn::IfThenElse(below, a, hn::Sub(b, one));
  const V t = hn::Sub(b, one);
  constexpr double h[] = {
      1.7250184555330771e-9, -3.0450831046164058e-9, -5.3538232360455183e-9, 7.5469821060442157e-9,
      1.9403737654369938e-8, -2.9689377236178223e-8, 1.0970303969156592e-10, -1.9155798912805916e-8,
      1.1102539282526081e-7, -2.1160209415295268e-7, 3.9042243575677631e-7,  -8.4178781855662071e-7,
      1.8144435964234528e-6, -3.8516280245686347e-6, 8.2200485375766157e-6,  -1.7660549436859963e-5,
      3.816939247900922e-5,  -8.3095320514340095e-5, 0.00018255255959379247, -0.00040570737671834024,
      0.0009153769302041063, -0.0021081308352055113, 0.0049986411642421742,  -0.012384192193336402,
      0.032965000621168138,  -0.10031730167435421,   0.42278433509846704};
  // Adding 0 turns -0 into +0.
  const V near = hn::MulAdd(hn::Mul(b, t), horner(d, t, h), hn::Zero(d));
  const auto plain = hn::AndNot(hn::Or(hn::Or(below, beyond), middle), hn::Eq(a, a));
  if (hn::AllTrue(d, plain)) return near;
  // For zeros and infinities the logarithms give the right results.
  const V log = hn::Log(d, hn::IfThenElse(middle, product, hn::IfThenElse(plain, one, a)));
  const V inverse = hn::Div(one, a);
  constexpr double s[] = {0.0050659053601561324,   -0.001890382993887715,  0.00084147008525031473,
                          -0.00059523658450570487, 0.00079365078975240582, -0.0027777777777739882,
                          0.083333333333333333};
  const V series = hn::Mul(inverse, horner(d, hn::Mul(inverse, inverse), s));
  const V far = hn::MulAdd(hn::Sub(a, hn::Set(d, 0.5)), hn::Sub(log, one),
                           hn::Add(hn::Set(d, 0.41893853320467274), series));
  V y = hn::IfThenElse(below, hn::Sub(near, log), hn::IfThenElse(middle, hn::Add(near, log), near));
  return hn::IfThenElse(beyond, far, y);
}

/// For float64, without fused multiply-add. The C library computes the values for negative numbers, which
/// have zeros near the poles.
struct LogGamma {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    return log_gamma_positive(d, x);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V x) {
    return hn::And(hn::Gt(x, hn::Set(d, 1e-300)), hn::Lt(x, hn::Set(d, 1e305)));
  }
  static double scalar(double x) { return log_gamma(x); }
};

/// For float32 results: lgamma(-a) = log(pi / (a |sin(pi a)|)) - lgamma(a), which is accurate enough in
/// double.
struct LogGammaFloat : LogGamma {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    const V a = hn::Abs(x), y = log_gamma_positive(d, a);
    const auto negative = hn::Lt(x, hn::Zero(d));
    if (hn::AllFalse(d, negative)) return y;
    const V f = hn::Abs(hn::Sub(a, hn::Round(a)));
    constexpr double c[] = {7.6978267682241906e-7,  -2.1903497074626017e-5, 0.00046629981618983938,
                            -0.0073704305059169434, 0.082145886573102895,   -0.59926452931894468,
                            2.5501640398773005,     -5.1677127800499696,    3.1415926535897932};
    const V sine = hn::Mul(f, horner(d, hn::Mul(f, f), c));
    const V turned = hn::Sub(hn::Log(d, hn::Div(hn::Set(d, 3.1415926535897932), hn::Mul(a, sine))), y);
    return hn::IfThenElse(negative, turned, y);
  }
  /// Integers that are not positive are poles.
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V x) {
    const auto whole = hn::Eq(hn::Round(x), x), positive = hn::Gt(x, hn::Zero(d));
    return hn::And(hn::Lt(hn::Abs(x), hn::Set(d, kInfinity)), hn::Or(positive, hn::Not(whole)));
  }
};

/// Applies F to two vectors. Elements outside F's domain are computed by the C library.
template <class F, class D, class V>
HWY_INLINE V patched(D d, V a, V b) {
  const V y = F::of(d, a, b);
  const auto inside = F::inside(d, a, b);
  if (HWY_LIKELY(hn::AllTrue(d, inside))) return y;
  HWY_ALIGN double as[hn::MaxLanes(d)], bs[hn::MaxLanes(d)], ys[hn::MaxLanes(d)], keep[hn::MaxLanes(d)];
  hn::Store(a, d, as);
  hn::Store(b, d, bs);
  hn::Store(y, d, ys);
  hn::Store(hn::IfThenElseZero(inside, hn::Set(d, 1)), d, keep);
  for (size_t i = 0; i < hn::Lanes(d); ++i)
    if (keep[i] == 0) ys[i] = F::scalar(as[i], bs[i]);
  return hn::Load(d, ys);
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
