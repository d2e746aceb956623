// Sums, differences, products and quotients with non-temporal stores.
#include "operators/kernels/tables.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/binary_stream.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

template <BinaryOp kOp, class V>
HWY_INLINE V combine(V a, V b) {
  if constexpr (kOp == BinaryOp::add) return hn::Add(a, b);
  if constexpr (kOp == BinaryOp::sub) return hn::Sub(a, b);
  if constexpr (kOp == BinaryOp::mul) return hn::Mul(a, b);
  if constexpr (kOp == BinaryOp::div) return hn::Div(a, b);
}

template <BinaryOp kOp, class T>
void stream(void* out, const void* const* in, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  T* const to = static_cast<T*>(out);
  const T* const a = static_cast<const T*>(in[0]);
  const T* const b = static_cast<const T*>(in[1]);
  for (int64_t i = 0; i < n; i += lanes) {
    prefetch_ahead(a + i);
    prefetch_ahead(b + i);
    hn::Stream(combine<kOp>(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, to + i);
  }
}

template <BinaryOp kOp>
Row of_type(DType type) {
  return type == DType::f32 ? stream<kOp, float> : type == DType::f64 ? stream<kOp, double> : nullptr;
}

Row find_stream(BinaryOp op, DType computing) {
  switch (op) {
    case BinaryOp::add:
      return of_type<BinaryOp::add>(computing);
    case BinaryOp::sub:
      return of_type<BinaryOp::sub>(computing);
    case BinaryOp::mul:
      return of_type<BinaryOp::mul>(computing);
    case BinaryOp::div:
      return of_type<BinaryOp::div>(computing);
    default:
      return nullptr;
  }
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(find_stream);
Row binary_stream_row(BinaryOp op, DType computing) {
  return HWY_DYNAMIC_DISPATCH(find_stream)(op, computing);
}
}  // namespace mx::kernels
#endif
