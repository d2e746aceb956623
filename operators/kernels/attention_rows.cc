#include "operators/kernels/attention_rows.h"

#include <algorithm>
#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/attention_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "operators/kernels/reduce_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

/// Calls f(vector) for all vectors of a row and stores what it returns. The last vector may be partial; its
/// other lanes are `fill`.
template <class T, class F>
HWY_INLINE void map_row(T* x, int64_t n, T fill, const F& f) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(f(hn::LoadU(d, x + i), i, lanes), d, x + i);
  if (i < n) store_tail(d, f(load_tail(d, x + i, n - i, fill), i, n - i), x + i, n - i);
}

template <class T>
T next_piece_of(T* scores, int64_t n, RunningSoftmax<T>& row) {
  const hn::ScalableTag<T> d;
  const T infinity = std::numeric_limits<T>::infinity();
  const T top = exp_shift_of_row(d, scores, n);
  const T before = row.top, now = top > before || std::isnan(top) ? top : before;
  const auto shift = hn::Set(d, now == -infinity ? T{0} : now);
  auto total = hn::Zero(d);
  map_row(scores, n, -infinity, [&](auto v, int64_t, int64_t) HWY_ATTR {
    const auto e = exp_below(d, hn::Sub(v, shift));
    total = hn::Add(total, e);
    return e;
  });
  const T factor = before == now || before == -infinity ? T{1} : std::exp(before - now);
  row.sum = row.sum * factor + hn::GetLane(hn::SumOfLanes(d, total));
  row.top = now;
  return factor;
}

template <class T>
void scale_row_of(T* x, int64_t n, T factor) {
  const auto f = hn::Set(hn::ScalableTag<T>(), factor);
  map_row(x, n, T{0}, [&](auto v, int64_t, int64_t) HWY_ATTR { return hn::Mul(v, f); });
}

template <class T>
void weights_of_row_of(T* scores, int64_t n, T sum) {
  const hn::ScalableTag<T> d;
  if (sum == -std::numeric_limits<T>::infinity()) return static_cast<void>(std::fill_n(scores, n, T{0}));
  const auto shift = hn::Set(d, sum);
  map_row(scores, n, T{0}, [&](auto v, int64_t, int64_t) HWY_ATTR { return exp_of(d, hn::Sub(v, shift)); });
}

template <class T>
void score_gradients_of_row_of(const T* weights, T* gradients, int64_t n, T delta, T scale) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto less = hn::Set(d, delta), times = hn::Set(d, scale);
  map_row(gradients, n, T{0}, [&](auto v, int64_t i, int64_t here) HWY_ATTR {
    const auto w = here == lanes ? hn::LoadU(d, weights + i) : load_tail(d, weights + i, here, T{0});
    return hn::Mul(hn::Mul(w, hn::Sub(v, less)), times);
  });
}

float next_piece_f32(float* x, int64_t n, RunningSoftmax<float>& row) { return next_piece_of(x, n, row); }
double next_piece_f64(double* x, int64_t n, RunningSoftmax<double>& row) { return next_piece_of(x, n, row); }
void scale_row_f32(float* x, int64_t n, float factor) { scale_row_of(x, n, factor); }
void scale_row_f64(double* x, int64_t n, double factor) { scale_row_of(x, n, factor); }
void weights_of_row_f32(float* x, int64_t n, float sum) { weights_of_row_of(x, n, sum); }
void weights_of_row_f64(double* x, int64_t n, double sum) { weights_of_row_of(x, n, sum); }
void score_gradients_f32(const float* w, float* g, int64_t n, float delta, float scale) {
  score_gradients_of_row_of(w, g, n, delta, scale);
}
void score_gradients_f64(const double* w, double* g, int64_t n, double delta, double scale) {
  score_gradients_of_row_of(w, g, n, delta, scale);
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(next_piece_f32);
HWY_EXPORT(next_piece_f64);
HWY_EXPORT(scale_row_f32);
HWY_EXPORT(scale_row_f64);
HWY_EXPORT(weights_of_row_f32);
HWY_EXPORT(weights_of_row_f64);
HWY_EXPORT(score_gradients_f32);
HWY_EXPORT(score_gradients_f64);

float next_piece(float* scores, int64_t n, RunningSoftmax<float>& row) {
  return HWY_DYNAMIC_DISPATCH(next_piece_f32)(scores, n, row);
}
double next_piece(double* scores, int64_t n, RunningSoftmax<double>& row) {
  return HWY_DYNAMIC_DISPATCH(next_piece_f64)(scores, n, row);
}
void scale_row(float* x, int64_t n, float factor) { HWY_DYNAMIC_DISPATCH(scale_row_f32)(x, n, factor); }
void scale_row(double* x, int64_t n, double factor) { HWY_DYNAMIC_DISPATCH(scale_row_f64)(x, n, factor); }
void weights_of_row(float* scores, int64_t n, float sum) {
  HWY_DYNAMIC_DISPATCH(weights_of_row_f32)(scores, n, sum);
}
void weights_of_row(double* scores, int64_t n, double sum) {
  HWY_DYNAMIC_DISPATCH(weights_of_row_f64)(scores, n, sum);
}
void score_gradients_of_row(const float* weights, float* gradients, int64_t n, float delta, float scale) {
  HWY_DYNAMIC_DISPATCH(score_gradients_f32)(weights, gradients, n, delta, scale);
}
void score_gradients_of_row(const double* weights, double* gradients, int64_t n, double delta, double scale) {
  HWY_DYNAMIC_DISPATCH(score_gradients_f64)(weights, gradients, n, delta, scale);
}

}  // namespace mx::kernels
#endif
