// Elementary functions of float64 on vectors.
#include "operators/kernels/tables.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/unary_f64.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "operators/kernels/math_f64-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

template <class F>
void row_f64(void* out, const void* const* in, int64_t n) {
  const hn::ScalableTag<double> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  double* const to = static_cast<double*>(out);
  const double* const x = static_cast<const double*>(in[0]);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(patched<F>(d, hn::LoadU(d, x + i)), d, to + i);
  if (i == n) return;
  // The remainder goes through the same instructions.
  HWY_ALIGN double rest[hn::MaxLanes(d)];
  for (int64_t k = 0; k < lanes; ++k) rest[k] = i + k < n ? x[i + k] : 1.0;
  hn::Store(patched<F>(d, hn::Load(d, rest)), d, rest);
  for (int64_t k = 0; i + k < n; ++k) to[i + k] = rest[k];
}

/// Functions that need fused multiply-add; otherwise null, and the C library computes them.
Row find_fused([[maybe_unused]] UnaryOp op) {
#if HWY_NATIVE_FMA
  switch (op) {
    case UnaryOp::tan:
      return row_f64<Tangent>;
    case UnaryOp::erf:
      return row_f64<ErrorFunction>;
    case UnaryOp::erfc:
      return row_f64<ErrorComplement>;
    case UnaryOp::lgamma:
      return row_f64<LogGammaOfAny>;
    case UnaryOp::softplus:
      return row_f64<LogOfOnePlusExp>;
    case UnaryOp::gelu:
      return row_f64<NormalGelu>;
    default:
      break;
  }
#endif
  return nullptr;
}

Row find_f64(UnaryOp op) {
  if (const Row row = find_fused(op)) return row;
  switch (op) {
    case UnaryOp::exp:
      return row_f64<Exp>;
    case UnaryOp::exp2:
      return row_f64<Exp2Pair>;
    case UnaryOp::cbrt:
      return row_f64<CubeRoot>;
    case UnaryOp::lgamma:
      return row_f64<LogGamma>;
    case UnaryOp::expm1:
      return row_f64<Expm1>;
    case UnaryOp::log:
      return row_f64<Log>;
    case UnaryOp::log2:
      return row_f64<Log2>;
    case UnaryOp::log10:
      return row_f64<Log10>;
    case UnaryOp::log1p:
      return row_f64<Log1p>;
    case UnaryOp::sin:
      return row_f64<Sin>;
    case UnaryOp::cos:
      return row_f64<Cos>;
    case UnaryOp::asin:
      return row_f64<Asin>;
    case UnaryOp::acos:
      return row_f64<Acos>;
    case UnaryOp::atan:
      return row_f64<Atan>;
    case UnaryOp::sinh:
      return row_f64<Sinh>;
    case UnaryOp::cosh:
      return row_f64<Cosh>;
    case UnaryOp::tanh:
      return row_f64<Tanh>;
    case UnaryOp::asinh:
      return row_f64<Asinh>;
    case UnaryOp::acosh:
      return row_f64<Acosh>;
    case UnaryOp::atanh:
      return row_f64<Atanh>;
    case UnaryOp::sigmoid:
      return row_f64<Sigmoid>;
    case UnaryOp::silu:
      return row_f64<Silu>;
    case UnaryOp::gelu_tanh:
      return row_f64<GeluTanh>;
    default:
      return nullptr;  // see unary_library_row
  }
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(find_f64);
Row unary_f64_row(UnaryOp op) { return HWY_DYNAMIC_DISPATCH(find_f64)(op); }
}  // namespace mx::kernels
#endif
