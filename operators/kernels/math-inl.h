// Elementary functions on vectors, for the files that are compiled once per instruction set.
//
// Each function here is a type with
//   of(d, x)      the vector function, accurate within its domain,
//   inside(d, x)  the mask of the elements that are in the domain; or inside(d, x, y), with the result of
//   `of`, scalar(x)     the C library's result for the others: NaN, infinities, values out of range,
// on vectors of double; math_f32-inl.h has some functions on vectors of float. A function of float32 that is
// not among those is computed in double and rounded once.
//
// Some are built on Highway's contrib/math, the others by range reduction and polynomials fitted at Chebyshev
// points.
#if defined(MX_OPERATORS_MATH_INL_H_) == defined(HWY_TARGET_TOGGLE)
#  ifdef MX_OPERATORS_MATH_INL_H_
#    undef MX_OPERATORS_MATH_INL_H_
#  else
#    define MX_OPERATORS_MATH_INL_H_
#  endif

#  include <hwy/contrib/math/math-inl.h>
#  include <hwy/highway.h>

#  include <cmath>
#  include <limits>

#  include "operators/kernels/min_max-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr double kInfinity = std::numeric_limits<double>::infinity();

template <class D, class V>
HWY_INLINE hn::Mask<D> within(D d, V x, double limit) {
  return hn::Le(hn::Abs(x), hn::Set(d, limit));
}

/// Rounds doubles to float. What is beyond the range of float becomes infinity. DemoteTo() of Highway's
/// emulated instruction set returns the largest number instead.
template <class D, class Wide, class V>
HWY_INLINE hn::Vec<D> rounded(D d, Wide wide, V x) {
#  if HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
  HWY_ALIGN double from[hn::MaxLanes(wide)];
  HWY_ALIGN float to[hn::MaxLanes(d)];
  hn::Store(x, wide, from);
  for (size_t i = 0; i < hn::Lanes(d); ++i) to[i] = static_cast<float>(from[i]);
  return hn::Load(d, to);
#  else
  (void)wide;
  return hn::DemoteTo(d, x);
#  endif
}

/// Evaluates the polynomial with these coefficients, highest power first.
template <class D, class V, size_t N>
HWY_INLINE V horner(D d, V x, const double (&c)[N]) {
  V sum = hn::Set(d, static_cast<hn::TFromD<D>>(c[0]));
  for (size_t i = 1; i < N; ++i) sum = hn::MulAdd(sum, x, hn::Set(d, static_cast<hn::TFromD<D>>(c[i])));
  return sum;
}

// Beyond these limits Highway's exp underflows or overflows.
constexpr double kExpLimit = 700;

struct Exp {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    return hn::Exp(d, x);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V x) {
    return within(d, x, kExpLimit);
  }
  static double scalar(double x) { return std::exp(x); }
};

struct Expm1 : Exp {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    return hn::CopySign(hn::Expm1(d, x), x);
  }
  static double scalar(double x) { return std::expm1(x); }
};

struct Log {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    return hn::Log(d, x);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V x) {
    return hn::And(hn::Gt(x, hn::Zero(d)), hn::Lt(x, hn::Set(d, kInfinity)));
  }
  static double scalar(double x) { return std::log(x); }
};
struct Log2 : Log {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    return hn::Log2(d, x);
  }
  static double scalar(double x) { return std::log2(x); }
};
struct Log10 : Log {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    return hn::Log10(d, x);
  }
  static double scalar(double x) { return std::log10(x); }
};
struct Log1p {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    return hn::CopySign(hn::Log1p(d, x), x);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V x) {
    return hn::And(hn::Gt(x, hn::Set(d, -1)), hn::Lt(x, hn::Set(d, kInfinity)));
  }
  static double scalar(double x) { return std::log1p(x); }
};

struct Sin {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    return hn::IfThenElse(hn::Eq(x, hn::Zero(d)), x, hn::Sin(d, x));
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V x) {
    return within(d, x, 39000);
  }
  static double scalar(double x) { return std::sin(x); }
};
struct Cos : Sin {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    return hn::Cos(d, x);
  }
  static double scalar(double x) { return std::cos(x); }
};
struct Tan : Sin {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    return hn::Div(Sin::of(d, x), Cos::of(d, x));
  }
  static double scalar(double x) { return std::tan(x); }
};

struct Asin {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    return hn::CopySign(hn::Asin(d, x), x);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V x) {
    return within(d, x, 1);
  }
  static double scalar(double x) { return std::asin(x); }
};
struct Acos : Asin {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    return hn::Acos(d, x);
  }
  static double scalar(double x) { return std::acos(x); }
};
struct Atan {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    return hn::CopySign(hn::Atan(d, x), x);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V x) {
    return within(d, x, 1e300);
  }
  static double scalar(double x) { return std::atan(x); }
};

struct Sinh : Exp {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    return hn::CopySign(hn::Sinh(d, x), x);
  }
  static double scalar(double x) { return std::sinh(x); }
};
struct Cosh : Exp {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    const V e = hn::Exp(d, hn::Abs(x)), half = hn::Set(d, 0.5);
    return hn::MulAdd(e, half, hn::Div(half, e));
  }
  static double scalar(double x) { return std::cosh(x); }
};
struct Tanh : Exp {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    return hn::CopySign(hn::Tanh(d, at_most(hn::Set(d, 30), hn::Abs(x))), x);
  }
  static double scalar(double x) { return std::tanh(x); }
};

struct Asinh {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    return hn::CopySign(hn::Asinh(d, x), x);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V x) {
    return within(d, x, 1e300);
  }
  static double scalar(double x) { return std::asinh(x); }
};
struct Acosh {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    return hn::Acosh(d, x);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V x) {
    return hn::And(hn::Ge(x, hn::Set(d, 1)), hn::Lt(x, hn::Set(d, 1e300)));
  }
  static double scalar(double x) { return std::acosh(x); }
};
struct Atanh {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    return hn::CopySign(hn::Atanh(d, x), x);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V x) {
    return hn::Lt(hn::Abs(x), hn::Set(d, 1));
  }
  static double scalar(double x) { return std::atanh(x); }
};

/// factor / (1 + exp(-x)), written so that exp never overflows and small results keep their digits.
template <class D, class V>
HWY_INLINE V logistic(D d, V x, V factor) {
  const V one = hn::Set(d, 1), e = hn::Exp(d, hn::Neg(hn::Abs(x)));
  const V above = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Mul(e, factor), factor);
  return hn::Div(above, hn::Add(one, e));
}

inline double scalar_logistic(double x, double factor) {
  // Squares exp(-|x| / 2), because exp(-|x|) may be subnormal, with few digits.
  const double half = std::exp(-0.5 * std::fabs(x));
  if (x < 0) return half == 0 ? std::copysign(0.0, factor) : half * factor * half / (1 + half * half);
  return factor / (1 + half * half);
}

struct Sigmoid : Exp {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    return logistic(d, x, hn::Set(d, 1));
  }
  static double scalar(double x) { return scalar_logistic(x, 1); }
};
struct Silu : Exp {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    return logistic(d, x, x);
  }
  static double scalar(double x) { return scalar_logistic(x, x); }
};
struct GeluTanh {
  static constexpr double kTwiceRoot = 1.5957691216057308;  // 2 sqrt(2 / pi)
  static constexpr double kCubic = 0.044715;
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    const V square = hn::Mul(x, x);
    const V inner = hn::MulAdd(hn::Mul(hn::Set(d, kCubic), square), x, x);
    return logistic(d, hn::Mul(hn::Set(d, kTwiceRoot), inner), x);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V x) {
    return within(d, x, 20);
  }
  static double scalar(double x) { return scalar_logistic(kTwiceRoot * (x + kCubic * x * x * x), x); }
};
struct Softplus : Exp {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    return hn::Add(at_least(hn::Zero(d), x), hn::Log1p(d, hn::Exp(d, hn::Neg(hn::Abs(x)))));
  }
  static double scalar(double x) { return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x)); }
};

// For float32 results only: accurate to about 1e-11.

struct Exp2 : Exp {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    return hn::Exp(d, hn::Mul(x, hn::Set(d, 0.693147180559945309)));
  }
  static double scalar(double x) { return std::exp2(x); }
};

/// erfc(z) for 0 <= z <= 11: exp(-z^2) P(t) / (1 + 2 z), t = (z - 2) / (z + 2).
template <class D, class V>
HWY_INLINE V erfc_positive(D d, V z) {
  constexpr double c[] = {-7.8410551595754681e-6, -2.8272573313670722e-5, -3.2743283991727965e-6,
                          0.000144987828820433,   0.0002060713783563163,  -0.00045206487518263533,
                          -0.0014565381513507179, 0.0012708670353627123,  0.008722601981769829,
                          -0.0080339624216985633, -0.054219998020657539,  0.16405127730293459,
                          -0.16603039760976169,   -0.092763826543223881,  1.2769783815516156};
  const V two = hn::Set(d, 2), one = hn::Set(d, 1);
  const V t = hn::Div(hn::Sub(z, two), hn::Add(z, two));
  return hn::Div(hn::Mul(hn::Exp(d, hn::Neg(hn::Mul(z, z))), horner(d, t, c)), hn::MulAdd(two, z, one));
}

/// erf(x) / x for |x| <= 1, as a function of x^2.
template <class D, class V>
HWY_INLINE V erf_slope(D d, V square) {
  constexpr double c[] = {1.0589380641075019e-6,   -1.3909340021874599e-5, 0.0001195656256820733,
                          -0.00085426379970872296, 0.0052237834771892481,  -0.026866133235095592,
                          0.11283791308604581,     -0.37612638889635307,   1.1283791670946767};
  return horner(d, square, c);
}

struct Erf {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    const V z = at_most(hn::Set(d, 6), hn::Abs(x));
    const V far = hn::CopySign(hn::Sub(hn::Set(d, 1), erfc_positive(d, z)), x);
    return hn::IfThenElse(within(d, x, 1), hn::Mul(x, erf_slope(d, hn::Mul(x, x))), far);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V x) {
    return within(d, x, kInfinity);
  }
  static double scalar(double x) { return std::erf(x); }
};
struct Erfc {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    const V far = erfc_positive(d, hn::Abs(x));
    const V one = hn::Set(d, 1);
    const V near = hn::Sub(one, hn::Mul(x, erf_slope(d, hn::Mul(x, x))));
    const auto small = hn::Lt(x, hn::Set(d, 0.5));
    const auto close = hn::And(small, within(d, x, 1));
    return hn::IfThenElse(close, near,
                          hn::IfThenElse(hn::Lt(x, hn::Zero(d)), hn::Sub(hn::Set(d, 2), far), far));
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V x) {
    return within(d, x, 11);
  }
  static double scalar(double x) { return std::erfc(x); }
};
struct Gelu {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x) {
    const V tail = Erfc::of(d, hn::Mul(x, hn::Set(d, -0.70710678118654752440)));
    return hn::Mul(hn::Mul(hn::Set(d, 0.5), x), tail);
  }
  template <class D, class V>
  static HWY_INLINE hn::Mask<D> inside(D d, V x) {
    return within(d, x, 15);
  }
  static double scalar(double x) {
    if (x < -40) return -0.0;
    return x * (0.5 * std::erfc(x * -0.70710678118654752440));
  }
};

/// The elements of the result y that are right: those in F's domain, which some functions know only
/// afterwards.
template <class F, class D, class V>
HWY_INLINE hn::Mask<D> settled(D d, V x, [[maybe_unused]] V y) {
  if constexpr (requires { F::inside(d, x, y); }) {
    return F::inside(d, x, y);
  } else {
    return F::inside(d, x);
  }
}

/// Applies F to a vector. Elements outside F's domain are computed by the C library.
template <class F, class D, class V>
HWY_INLINE V patched(D d, V x) {
  const V y = F::of(d, x);
  const auto inside = settled<F>(d, x, y);
  if (HWY_LIKELY(hn::AllTrue(d, inside))) return y;
  using T = hn::TFromD<D>;
  HWY_ALIGN T xs[hn::MaxLanes(d)], ys[hn::MaxLanes(d)], keep[hn::MaxLanes(d)];
  hn::Store(x, d, xs);
  hn::Store(y, d, ys);
  hn::Store(hn::IfThenElseZero(inside, hn::Set(d, 1)), d, keep);
  for (size_t i = 0; i < hn::Lanes(d); ++i)
    if (keep[i] == 0) ys[i] = F::scalar(xs[i]);
  return hn::Load(d, ys);
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif
