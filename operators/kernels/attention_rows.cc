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
void next_pieces_of(T* scores, int64_t count, int64_t n, RunningSoftmax<T>* rows, T* factors) {
  for (int64_t r = 0; r < count; ++r) factors[r] = next_piece_of(scores + r * n, n, rows[r]);
}

template <class T>
void scale_row_of(T* x, int64_t n, T factor) {
  const auto f = hn::Set(hn::ScalableTag<T>(), factor);
  map_row(x, n, T{0}, [&](auto v, int64_t, int64_t) HWY_ATTR { return hn::Mul(v, f); });
}

/// to = f(from) for n elements.
template <class T, class F>
HWY_INLINE void map_to(T* HWY_RESTRICT to, const T* HWY_RESTRICT from, int64_t n, const F& f) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) hn::StoreU(f(hn::LoadU(d, from + i)), d, to + i);
  if (i < n) store_tail(d, f(load_tail(d, from + i, n - i, T{0})), to + i, n - i);
}

template <class T>
void copy_rows_of(T* to, int64_t pitch, const T* from, int64_t count, int64_t n, const T* factors) {
  for (int64_t r = 0; r < count; ++r) {
    const auto f = hn::Set(hn::ScalableTag<T>(), factors == nullptr ? T{1} : factors[r]);
    map_to(to + r * pitch, from + r * n, n, [&](auto v) HWY_ATTR { return hn::Mul(v, f); });
  }
}

template <class T>
void gather_rows_of(T* to, const T* from, int64_t pitch, int64_t count, int64_t n) {
  for (int64_t r = 0; r < count; ++r)
    map_to(to + r * n, from + r * pitch, n, [&](auto v) HWY_ATTR { return v; });
}

template <class T>
void weights_of_rows_of(T* scores, int64_t count, int64_t n, const T* sums) {
  const hn::ScalableTag<T> d;
  for (int64_t r = 0; r < count; ++r) {
    T* const row = scores + r * n;
    if (sums[r] == -std::numeric_limits<T>::infinity()) {
      std::fill_n(row, n, T{0});
      continue;
    }
    const auto shift = hn::Set(d, sums[r]);
    map_row(row, n, T{0}, [&](auto v, int64_t, int64_t) HWY_ATTR { return exp_of(d, hn::Sub(v, shift)); });
  }
}

template <class T>
void score_gradients_of_rows_of(const T* weights, T* gradients, int64_t count, int64_t n, const T* delta,
                                T scale) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto times = hn::Set(d, scale);
  for (int64_t r = 0; r < count; ++r) {
    const T* const row = weights + r * n;
    const auto less = hn::Set(d, delta[r]);
    map_row(gradients + r * n, n, T{0}, [&](auto v, int64_t i, int64_t here) HWY_ATTR {
      const auto w = here == lanes ? hn::LoadU(d, row + i) : load_tail(d, row + i, here, T{0});
      return hn::Mul(hn::Mul(w, hn::Sub(v, less)), times);
    });
  }
}

template <class T>
void products_of_rows_of(T* to, const T* a, const T* b, int64_t count, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t r = 0; r < count; ++r, a += n, b += n) {
    auto total = hn::Zero(d);
    int64_t i = 0;
    for (; i + lanes <= n; i += lanes) total = hn::MulAdd(hn::LoadU(d, a + i), hn::LoadU(d, b + i), total);
    if (i < n) total = hn::MulAdd(load_tail(d, a + i, n - i, T{0}), load_tail(d, b + i, n - i, T{0}), total);
    to[r] = hn::GetLane(hn::SumOfLanes(d, total));
  }
}

void next_pieces_f32(float* scores, int64_t count, int64_t n, RunningSoftmax<float>* rows, float* factors) {
  next_pieces_of(scores, count, n, rows, factors);
}
void next_pieces_f64(double* scores, int64_t count, int64_t n, RunningSoftmax<double>* rows,
                     double* factors) {
  next_pieces_of(scores, count, n, rows, factors);
}
void scale_row_f32(float* x, int64_t n, float factor) { scale_row_of(x, n, factor); }
void scale_row_f64(double* x, int64_t n, double factor) { scale_row_of(x, n, factor); }
void copy_rows_f32(float* to, int64_t pitch, const float* from, int64_t count, int64_t n,
                   const float* factors) {
  copy_rows_of(to, pitch, from, count, n, factors);
}
void copy_rows_f64(double* to, int64_t pitch, const double* from, int64_t count, int64_t n,
                   const double* factors) {
  copy_rows_of(to, pitch, from, count, n, factors);
}
void gather_rows_f32(float* to, const float* from, int64_t pitch, int64_t count, int64_t n) {
  gather_rows_of(to, from, pitch, count, n);
}
void gather_rows_f64(double* to, const double* from, int64_t pitch, int64_t count, int64_t n) {
  gather_rows_of(to, from, pitch, count, n);
}
void weights_of_rows_f32(float* scores, int64_t count, int64_t n, const float* sums) {
  weights_of_rows_of(scores, count, n, sums);
}
void weights_of_rows_f64(double* scores, int64_t count, int64_t n, const double* sums) {
  weights_of_rows_of(scores, count, n, sums);
}
void score_gradients_of_rows_f32(const float* weights, float* gradients, int64_t count, int64_t n,
                                 const float* delta, float scale) {
  score_gradients_of_rows_of(weights, gradients, count, n, delta, scale);
}
void score_gradients_of_rows_f64(const double* weights, double* gradients, int64_t count, int64_t n,
                                 const double* delta, double scale) {
  score_gradients_of_rows_of(weights, gradients, count, n, delta, scale);
}
void products_of_rows_f32(float* to, const float* a, const float* b, int64_t count, int64_t n) {
  products_of_rows_of(to, a, b, count, n);
}
void products_of_rows_f64(double* to, const double* a, const double* b, int64_t count, int64_t n) {
  products_of_rows_of(to, a, b, count, n);
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(next_pieces_f32);
HWY_EXPORT(next_pieces_f64);
HWY_EXPORT(scale_row_f32);
HWY_EXPORT(scale_row_f64);
HWY_EXPORT(copy_rows_f32);
HWY_EXPORT(copy_rows_f64);
HWY_EXPORT(gather_rows_f32);
HWY_EXPORT(gather_rows_f64);
HWY_EXPORT(weights_of_rows_f32);
HWY_EXPORT(weights_of_rows_f64);
HWY_EXPORT(score_gradients_of_rows_f32);
HWY_EXPORT(score_gradients_of_rows_f64);
HWY_EXPORT(products_of_rows_f32);
HWY_EXPORT(products_of_rows_f64);

void next_pieces(float* scores, int64_t count, int64_t n, RunningSoftmax<float>* rows, float* factors) {
  HWY_DYNAMIC_DISPATCH(next_pieces_f32)(scores, count, n, rows, factors);
}
void next_pieces(double* scores, int64_t count, int64_t n, RunningSoftmax<double>* rows, double* factors) {
  HWY_DYNAMIC_DISPATCH(next_pieces_f64)(scores, count, n, rows, factors);
}
void scale_row(float* x, int64_t n, float factor) { HWY_DYNAMIC_DISPATCH(scale_row_f32)(x, n, factor); }
void scale_row(double* x, int64_t n, double factor) { HWY_DYNAMIC_DISPATCH(scale_row_f64)(x, n, factor); }
void copy_rows(float* to, int64_t pitch, const float* from, int64_t count, int64_t n, const float* factors) {
  HWY_DYNAMIC_DISPATCH(copy_rows_f32)(to, pitch, from, count, n, factors);
}
void copy_rows(double* to, int64_t pitch, const double* from, int64_t count, int64_t n,
               const double* factors) {
  HWY_DYNAMIC_DISPATCH(copy_rows_f64)(to, pitch, from, count, n, factors);
}
void gather_rows(float* to, const float* from, int64_t pitch, int64_t count, int64_t n) {
  HWY_DYNAMIC_DISPATCH(gather_rows_f32)(to, from, pitch, count, n);
}
void gather_rows(double* to, const double* from, int64_t pitch, int64_t count, int64_t n) {
  HWY_DYNAMIC_DISPATCH(gather_rows_f64)(to, from, pitch, count, n);
}
void weights_of_rows(float* scores, int64_t count, int64_t n, const float* sums) {
  HWY_DYNAMIC_DISPATCH(weights_of_rows_f32)(scores, count, n, sums);
}
void weights_of_rows(double* scores, int64_t count, int64_t n, const double* sums) {
  HWY_DYNAMIC_DISPATCH(weights_of_rows_f64)(scores, count, n, sums);
}
void score_gradients_of_rows(const float* weights, float* gradients, int64_t count, int64_t n,
                             const float* delta, float scale) {
  HWY_DYNAMIC_DISPATCH(score_gradients_of_rows_f32)(weights, gradients, count, n, delta, scale);
}
void score_gradients_of_rows(const double* weights, double* gradients, int64_t count, int64_t n,
                             const double* delta, double scale) {
  HWY_DYNAMIC_DISPATCH(score_gradients_of_rows_f64)(weights, gradients, count, n, delta, scale);
}
void products_of_rows(float* to, const float* a, const float* b, int64_t count, int64_t n) {
  HWY_DYNAMIC_DISPATCH(products_of_rows_f32)(to, a, b, count, n);
}
void products_of_rows(double* to, const double* a, const double* b, int64_t count, int64_t n) {
  HWY_DYNAMIC_DISPATCH(products_of_rows_f64)(to, a, b, count, n);
}

}  // namespace mx::kernels
#endif
