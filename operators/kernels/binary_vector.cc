// Functions of two operands with explicit vectors: powers, angles, remainders, derivatives of activations,
// and a loss.
#include "operators/kernels/tables.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/binary_vector.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "operators/kernels/math_f32-inl.h"
#include "operators/kernels/math_f64-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

template <class D>
inline constexpr bool kIsFloat = sizeof(hn::TFromD<D>) == sizeof(float);

/// Limits x to [-limit, limit]; NaN stays NaN.
template <class D, class V>
HWY_INLINE V limited(D d, V x, double limit) {
  using T = hn::TFromD<D>;
  return at_least(hn::Set(d, static_cast<T>(-limit)), at_most(hn::Set(d, static_cast<T>(limit)), x));
}

/// Computes 1 / (1 + exp(-x)) and 1 minus that, each to full precision, for x of moderate size.
template <class D, class V>
HWY_INLINE void sigmoids(D d, V x, V& sigmoid, V& rest) {
  const V one = hn::Set(d, 1);
  V e, larger;
  if constexpr (kIsFloat<D>) {
    e = ExpFloat::of(d, hn::Neg(hn::Abs(x)));
    larger = inverse_of(d, hn::Add(one, e));
  } else {
    e = hn::Exp(d, hn::Neg(hn::Abs(x)));
    larger = hn::Div(one, hn::Add(one, e));
  }
  const V smaller = hn::Mul(e, larger);
  const auto below = hn::Lt(x, hn::Zero(d));
  sigmoid = hn::IfThenElse(below, smaller, larger);
  rest = hn::IfThenElse(below, larger, smaller);
}

// Each is head times the derivative at x. Beyond the limits the derivative is that at the limit.

/// s (1 + x (1 - s)), s = sigmoid(x).
struct SiluBackward {
  template <class D, class V>
  static HWY_INLINE V of(D d, V head, V x) {
    const V at = limited(d, x, kIsFloat<D> ? 100 : 700);
    V s, rest;
    sigmoids(d, at, s, rest);
    return hn::Mul(head, hn::Mul(s, hn::MulAdd(at, rest, hn::Set(d, 1))));
  }
};

/// s (1 + x (1 - s) z'), s = sigmoid(z), z = 2 sqrt(2 / pi) (x + 0.044715 x^3).
struct GeluTanhBackward {
  template <class D, class V>
  static HWY_INLINE V of(D d, V head, V x) {
    using T = hn::TFromD<D>;
    const V one = hn::Set(d, 1), root = hn::Set(d, static_cast<T>(GeluTanh::kTwiceRoot));
    const V at = limited(d, x, 20);
    const V cubic = hn::Mul(hn::Set(d, static_cast<T>(GeluTanh::kCubic)), hn::Mul(at, at));
    V s, rest;
    sigmoids(d, hn::Mul(root, hn::MulAdd(cubic, at, at)), s, rest);
    const V slope = hn::Mul(root, hn::MulAdd(hn::Set(d, 3), cubic, one));
    return hn::Mul(head, hn::Mul(s, hn::MulAdd(hn::Mul(at, slope), rest, one)));
  }
};

/// The normal distribution function at x, plus x times its density.
struct GeluBackward {
  template <class D, class V>
  static HWY_INLINE V of(D d, V head, V x) {
    const V at = limited(d, x, 20);
    V bell;
    const V integral = NormalFloat::integral(d, at, bell);
    return hn::Mul(head, hn::MulAdd(at, hn::Mul(bell, hn::Set(d, 0.39894228040143268f)), integral));
  }
};

/// Computed in double. For an x that is not a probability the C library's logarithm gives NaN.
struct BinaryCrossEntropy {
  template <class D, class V>
  static HWY_INLINE V of(D d, V x, V target) {
    const V one = hn::Set(d, 1), least = hn::Set(d, -100);
    // 0 and 1 are frequent, but outside the domain of the vector functions. So 0 is replaced by a number
    // whose logarithm is also below -100, and for 1 the result is the limit itself.
    const auto never = hn::Eq(x, hn::Zero(d)), always = hn::Eq(x, one);
    const V yes = at_least(least, patched<Log>(d, hn::IfThenElse(never, hn::Set(d, 1e-50), x)));
    const V rest = at_least(least, patched<Log1p>(d, hn::Neg(hn::IfThenElse(always, hn::Zero(d), x))));
    const V no = hn::IfThenElse(always, least, rest);
    return hn::NegMulAdd(target, yes, hn::Mul(hn::Sub(target, one), no));
  }
};

/// F of math_pair-inl.h; elements outside its domain by the C library.
template <class F>
struct Patched {
  template <class D, class V>
  static HWY_INLINE V of(D d, V a, V b) {
    return patched<F>(d, a, b);
  }
};

/// F on vectors of T.
template <class F, class T>
struct Direct {
  using Element = T;
  using D = hn::ScalableTag<T>;
  static HWY_INLINE hn::Vec<D> of(D d, hn::Vec<D> a, hn::Vec<D> b) { return F::of(d, a, b); }
};

/// F in double, for vectors of float; rounded once.
template <class F>
struct Widened {
  using Element = float;
  using Wide = hn::ScalableTag<double>;
  using D = hn::Rebind<float, Wide>;
  static HWY_INLINE hn::Vec<D> of(D d, hn::Vec<D> a, hn::Vec<D> b) {
    const Wide wide;
    return rounded(d, wide, F::of(wide, hn::PromoteTo(wide, a), hn::PromoteTo(wide, b)));
  }
};

template <class F>
void row(void* out, const void* const* in, int64_t n) {
  using T = typename F::Element;
  const typename F::D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  T* const to = static_cast<T*>(out);
  const T* const a = static_cast<const T*>(in[0]);
  const T* const b = static_cast<const T*>(in[1]);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes)
    hn::StoreU(F::of(d, hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, to + i);
  if (i == n) return;
  // The remainder goes through the same instructions.
  HWY_ALIGN T rest_a[hn::MaxLanes(d)], rest_b[hn::MaxLanes(d)];
  for (int64_t k = 0; k < lanes; ++k) {
    rest_a[k] = i + k < n ? a[i + k] : T(0.5);
    rest_b[k] = i + k < n ? b[i + k] : T(0.5);
  }
  hn::Store(F::of(d, hn::Load(d, rest_a), hn::Load(d, rest_b)), d, rest_a);
  for (int64_t k = 0; i + k < n; ++k) to[i + k] = rest_a[k];
}

/// F computed in double for both types.
template <class F>
Row row_in_double(bool single) {
  return single ? row<Widened<Patched<F>>> : row<Direct<Patched<F>, double>>;
}

/// F computed in double. For float64 only with fused multiply-add; otherwise null, and the C library computes
/// it (binary_library_row).
template <class Single, class Double>
Row fused_row(bool single) {
#if HWY_NATIVE_FMA
  return single ? row<Widened<Patched<Single>>> : row<Direct<Patched<Double>, double>>;
#else
  return single ? row<Widened<Patched<Single>>> : nullptr;
#endif
}

Row find_row(BinaryOp op, DType computing) {
  const bool single = computing == DType::f32;
  if (!single && computing != DType::f64) return nullptr;
  switch (op) {
    case BinaryOp::pow:
      return fused_row<PowerFloat, Power>(single);
    case BinaryOp::fmod:
      return fused_row<TruncatedRest<true>, TruncatedRest<false>>(single);
    case BinaryOp::mod:
      return fused_row<FlooredRest<true>, FlooredRest<false>>(single);
    case BinaryOp::floor_div:
      return fused_row<FlooredQuotient<true>, FlooredQuotient<false>>(single);
    case BinaryOp::atan2:
      return row_in_double<ArcTangent2>(single);
    case BinaryOp::hypot:
      return row_in_double<Hypotenuse>(single);
    case BinaryOp::logaddexp:
      return row_in_double<LogAddExp>(single);
    case BinaryOp::silu_backward:
      return single ? row<Direct<SiluBackward, float>> : row<Direct<SiluBackward, double>>;
    case BinaryOp::gelu_backward:
#if HWY_NATIVE_FMA
      return single ? row<Direct<GeluBackward, float>> : row<Direct<NormalGeluBackward, double>>;
#else
      return single ? row<Direct<GeluBackward, float>> : nullptr;  // float64: see binary_library_row
#endif
    case BinaryOp::gelu_tanh_backward:
      return single ? row<Direct<GeluTanhBackward, float>> : row<Direct<GeluTanhBackward, double>>;
    case BinaryOp::binary_cross_entropy:
      return single ? row<Widened<BinaryCrossEntropy>> : row<Direct<BinaryCrossEntropy, double>>;
    default:
      return nullptr;
  }
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(find_row);
Row binary_vector_row(BinaryOp op, DType computing) { return HWY_DYNAMIC_DISPATCH(find_row)(op, computing); }
}  // namespace mx::kernels
#endif
