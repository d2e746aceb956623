// Elementary functions of float32 on vectors.
#include "operators/kernels/tables.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/unary_f32.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "operators/kernels/math_f32-inl.h"
#include "operators/kernels/math_pair-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

/// F of math_f32-inl.h, in float.
template <class F>
struct Single {
  using D = hn::ScalableTag<float>;
  static HWY_INLINE hn::Vec<D> of(D d, hn::Vec<D> x) { return patched<F>(d, x); }
};

/// F of math-inl.h, in double, rounded once.
template <class F>
struct Doubled {
  using Wide = hn::ScalableTag<double>;
  using D = hn::Rebind<float, Wide>;
  static HWY_INLINE hn::Vec<D> of(D d, hn::Vec<D> x) {
    const Wide wide;
    return rounded(d, wide, patched<F>(wide, hn::PromoteTo(wide, x)));
  }
};

template <class F>
void row_f32(void* out, const void* const* in, int64_t n) {
  const typename F::D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  float* const to = static_cast<float*>(out);
  const float* const x = static_cast<const float*>(in[0]);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(F::of(d, hn::LoadU(d, x + i)), d, to + i);
  if (i == n) return;
  // The remainder goes through the same instructions.
  HWY_ALIGN float rest[hn::MaxLanes(d)];
  for (int64_t k = 0; k < lanes; ++k) rest[k] = i + k < n ? x[i + k] : 1.f;
  hn::Store(F::of(d, hn::Load(d, rest)), d, rest);
  for (int64_t k = 0; i + k < n; ++k) to[i + k] = rest[k];
}

template <class F>
void stream_f32(void* out, const void* const* in, int64_t n) {
  const typename F::D d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  float* const to = static_cast<float*>(out);
  const float* const x = static_cast<const float*>(in[0]);
  for (int64_t i = 0; i < n; i += lanes) {
    prefetch_ahead(x + i);
    hn::Stream(F::of(d, hn::LoadU(d, x + i)), d, to + i);
  }
}

// Functions for which storing the results takes about as long as computing them.
Row find_f32_stream(UnaryOp op) {
  switch (op) {
    case UnaryOp::exp:
      return stream_f32<Single<ExpFloat>>;
    case UnaryOp::log:
      return stream_f32<Single<LogFloat>>;
    case UnaryOp::tanh:
      return stream_f32<Single<TanhFloat>>;
    case UnaryOp::sigmoid:
      return stream_f32<Single<SigmoidFloat>>;
    case UnaryOp::softplus:
      return stream_f32<Single<SoftplusFloat>>;
    case UnaryOp::silu:
      return stream_f32<Single<SiluFloat>>;
    case UnaryOp::gelu:
      return stream_f32<Single<GeluFloat>>;
    default:
      return nullptr;
  }
}

Row find_f32(UnaryOp op) {
  switch (op) {
    case UnaryOp::exp:
      return row_f32<Single<ExpFloat>>;
    case UnaryOp::exp2:
      return row_f32<Doubled<Exp2>>;
    case UnaryOp::expm1:
      return row_f32<Doubled<Expm1>>;
    case UnaryOp::log:
      return row_f32<Single<LogFloat>>;
    case UnaryOp::log2:
      return row_f32<Doubled<Log2>>;
    case UnaryOp::log10:
      return row_f32<Doubled<Log10>>;
    case UnaryOp::log1p:
      return row_f32<Doubled<Log1p>>;
    case UnaryOp::cbrt:
      return row_f32<Doubled<CubeRoot>>;
    case UnaryOp::lgamma:
      return row_f32<Doubled<LogGammaFloat>>;
    case UnaryOp::sin:
      return row_f32<Doubled<Sin>>;
    case UnaryOp::cos:
      return row_f32<Doubled<Cos>>;
    case UnaryOp::tan:
      return row_f32<Doubled<Tan>>;
    case UnaryOp::asin:
      return row_f32<Doubled<Asin>>;
    case UnaryOp::acos:
      return row_f32<Doubled<Acos>>;
    case UnaryOp::atan:
      return row_f32<Doubled<Atan>>;
    case UnaryOp::sinh:
      return row_f32<Doubled<Sinh>>;
    case UnaryOp::cosh:
      return row_f32<Doubled<Cosh>>;
    case UnaryOp::tanh:
      return row_f32<Single<TanhFloat>>;
    case UnaryOp::asinh:
      return row_f32<Doubled<Asinh>>;
    case UnaryOp::acosh:
      return row_f32<Doubled<Acosh>>;
    case UnaryOp::atanh:
      return row_f32<Doubled<Atanh>>;
    case UnaryOp::erf:
      return row_f32<Doubled<Erf>>;
    case UnaryOp::erfc:
      return row_f32<Doubled<Erfc>>;
    case UnaryOp::sigmoid:
      return row_f32<Single<SigmoidFloat>>;
    case UnaryOp::silu:
      return row_f32<Single<SiluFloat>>;
    case UnaryOp::softplus:
      return row_f32<Single<SoftplusFloat>>;
    case UnaryOp::gelu:
      return row_f32<Single<GeluFloat>>;
    case UnaryOp::gelu_tanh:
      return row_f32<Doubled<GeluTanh>>;
    default:
      return nullptr;  // see unary_library_row
  }
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(find_f32);
HWY_EXPORT(find_f32_stream);
Row unary_f32_row(UnaryOp op) { return HWY_DYNAMIC_DISPATCH(find_f32)(op); }
Row unary_stream_row(UnaryOp op, DType computing) {
  return computing == DType::f32 ? HWY_DYNAMIC_DISPATCH(find_f32_stream)(op) : nullptr;
}
}  // namespace mx::kernels
#endif
