#include "operators/kernels/sparse_rows.h"

#include <cmath>
#include <limits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/sparse_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "operators/kernels/reduce_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {
using detail::SparseRow;

/// Loads or stores the first n elements, at most a whole vector.
template <class D, class T = hn::TFromD<D>>
HWY_INLINE hn::Vec<D> load_some(D d, const T* x, int64_t n) {
  return n == static_cast<int64_t>(hn::Lanes(d)) ? hn::LoadU(d, x) : load_tail(d, x, n, T{0});
}
template <class D, class T = hn::TFromD<D>>
HWY_INLINE void store_some(D d, hn::Vec<D> v, T* to, int64_t n) {
  if (n == static_cast<int64_t>(hn::Lanes(d)))
    hn::StoreU(v, d, to);
  else
    store_tail(d, v, to, n);
}

/// Columns j .. j + kVectors * lanes - 1 of the product; `last` is the number of elements of the last vector.
template <int kVectors, class T, class I>
HWY_INLINE void product_block(const SparseRow<T, I>& row, int64_t j, int64_t last, T* out) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = hn::Zero(d);
  for (int64_t k = 0; k < row.count; ++k) {
    const auto value = hn::Set(d, row.values[k]);
    const T* const from = row.from + static_cast<int64_t>(row.columns[k]) * row.pitch + j;
    for (int v = 0; v + 1 < kVectors; ++v)
      sums[v] = hn::MulAdd(value, hn::LoadU(d, from + v * lanes), sums[v]);
    const T* const tail = from + (kVectors - 1) * lanes;
    sums[kVectors - 1] = hn::MulAdd(value, load_some(d, tail, last), sums[kVectors - 1]);
  }
  for (int v = 0; v + 1 < kVectors; ++v) hn::StoreU(sums[v], d, out + j + v * lanes);
  store_some(d, sums[kVectors - 1], out + j + (kVectors - 1) * lanes, last);
}

template <class T, class I>
void product_of_row(const SparseRow<T, I>& row, T* out) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t j = 0;
  for (; row.n - j >= 4 * lanes; j += 4 * lanes) product_block<4>(row, j, lanes, out);
  if (j == row.n) return;
  const int64_t left = (row.n - j + lanes - 1) / lanes;
  const int64_t last = row.n - j - (left - 1) * lanes;
  if (left == 1) return product_block<1>(row, j, last, out);
  if (left == 2) return product_block<2>(row, j, last, out);
  if (left == 3) return product_block<3>(row, j, last, out);
  product_block<4>(row, j, last, out);
}

template <class T>
HWY_INLINE void add_scaled_row(T value, const T* from, T* out, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto factor = hn::Set(d, value);
  int64_t j = 0;
  for (; j + lanes <= n; j += lanes)
    hn::StoreU(hn::MulAdd(factor, hn::LoadU(d, from + j), hn::LoadU(d, out + j)), d, out + j);
  if (j == n) return;
  const int64_t rest = n - j;
  store_some(d, hn::MulAdd(factor, load_some(d, from + j, rest), load_some(d, out + j, rest)), out + j, rest);
}

template <class T>
HWY_INLINE T dot_of(const T* a, const T* b, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  auto even = hn::Zero(d), odd = hn::Zero(d);
  int64_t j = 0;
  for (; j + 2 * lanes <= n; j += 2 * lanes) {
    even = hn::MulAdd(hn::LoadU(d, a + j), hn::LoadU(d, b + j), even);
    odd = hn::MulAdd(hn::LoadU(d, a + j + lanes), hn::LoadU(d, b + j + lanes), odd);
  }
  for (; j < n; j += lanes) {
    const int64_t rest = n - j < lanes ? n - j : lanes;
    even = hn::MulAdd(load_some(d, a + j, rest), load_some(d, b + j, rest), even);
  }
  return hn::GetLane(hn::SumOfLanes(d, hn::Add(even, odd)));
}

template <class T, class I>
void scatter_of_row(const SparseRow<T, I>& row, T* out) {
  for (int64_t k = 0; k < row.count; ++k)
    add_scaled_row(row.values[k], row.from, out + static_cast<int64_t>(row.columns[k]) * row.pitch, row.n);
}

template <class T, class I>
void sample_of_row(const SparseRow<T, I>& row, T* out) {
  for (int64_t k = 0; k < row.count; ++k)
    out[k] = dot_of(row.values, row.from + static_cast<int64_t>(row.columns[k]) * row.pitch, row.n);
}

template <SegmentReduce kHow, class V, class D>
HWY_INLINE V combine_rows(D d, V a, V x) {
  (void)d;
  if constexpr (kHow == SegmentReduce::max) {
    return max_or_nan(d, a, x);
  } else if constexpr (kHow == SegmentReduce::min) {
    return min_or_nan(d, a, x);
  } else {
    return hn::Add(a, x);
  }
}

template <SegmentReduce kHow, class T>
void reduce_columns(const T* x, int64_t count, int64_t n, T* out) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto divisor = hn::Set(d, static_cast<T>(count));
  for (int64_t j = 0; j < n; j += lanes) {
    const int64_t here = n - j < lanes ? n - j : lanes;
    const T* from = x + j;
    auto total = load_some(d, from, here);
    for (int64_t i = 1; i < count; ++i) {
      from += n;
      total = combine_rows<kHow>(d, total, load_some(d, from, here));
    }
    if constexpr (kHow == SegmentReduce::mean) total = hn::Div(total, divisor);
    store_some(d, total, out + j, here);
  }
}

template <class T>
void reduce_segment_of(SegmentReduce how, const T* x, int64_t count, int64_t n, T* out) {
  switch (how) {
    case SegmentReduce::sum:
      return reduce_columns<SegmentReduce::sum>(x, count, n, out);
    case SegmentReduce::mean:
      return reduce_columns<SegmentReduce::mean>(x, count, n, out);
    case SegmentReduce::max:
      return reduce_columns<SegmentReduce::max>(x, count, n, out);
    case SegmentReduce::min:
      return reduce_columns<SegmentReduce::min>(x, count, n, out);
  }
}

/// Softmax of some columns of all rows; `here` is their number, at most that of a vector's lanes.
template <class T>
HWY_INLINE void softmax_columns(const T* x, int64_t count, int64_t n, int64_t here, T* out) {
  const hn::ScalableTag<T> d;
  auto top = load_some(d, x, here);
  for (int64_t i = 1; i < count; ++i) top = max_or_nan(d, top, load_some(d, x + i * n, here));
  auto total = hn::Zero(d);
  for (int64_t i = 0; i < count; ++i) {
    const auto e = exp_below(d, hn::Sub(load_some(d, x + i * n, here), top));
    store_some(d, e, out + i * n, here);
    total = hn::Add(total, e);
  }
  const auto one = hn::Set(d, T{1}), nan = hn::Set(d, std::numeric_limits<T>::quiet_NaN());
  const auto scale = hn::IfThenElse(hn::IsFinite(top), hn::Div(one, total), nan);
  for (int64_t i = 0; i < count; ++i)
    store_some(d, hn::Mul(load_some(d, out + i * n, here), scale), out + i * n, here);
}

/// The same for rows of fewer elements than a vector has lanes: all rows are one array for the exponentials.
template <class T>
HWY_INLINE void softmax_few_columns(const T* x, int64_t count, int64_t n, T* out) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), size = count * n;
  T tops[HWY_MAX_BYTES / sizeof(T)] = {};
  for (int64_t j = 0; j < n; ++j) {
    T& top = tops[j] = x[j];
    for (int64_t i = j + n; i < size; i += n) top = x[i] > top || std::isnan(x[i]) ? x[i] : top;
    for (int64_t i = j; i < size; i += n) out[i] = x[i] - top;
  }
  for (int64_t i = 0; i < size; i += lanes) {
    const int64_t here = size - i < lanes ? size - i : lanes;
    store_some(d, exp_below(d, load_some(d, out + i, here)), out + i, here);
  }
  for (int64_t j = 0; j < n; ++j) {
    T total{0};
    for (int64_t i = j; i < size; i += n) total += out[i];
    const T scale = std::isfinite(tops[j]) ? T{1} / total : std::numeric_limits<T>::quiet_NaN();
    for (int64_t i = j; i < size; i += n) out[i] *= scale;
  }
}

template <class T>
HWY_INLINE void softmax_of(const T* x, int64_t count, int64_t n, T* out) {
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  if (n < lanes / 2) return softmax_few_columns(x, count, n, out);
  for (int64_t j = 0; j < n; j += lanes)
    softmax_columns(x + j, count, n, n - j < lanes ? n - j : lanes, out + j);
}

void softmax_f32(const float* x, int64_t count, int64_t n, float* out) { softmax_of(x, count, n, out); }
void softmax_f64(const double* x, int64_t count, int64_t n, double* out) { softmax_of(x, count, n, out); }
void product_f32_i32(const SparseRow<float, int32_t>& row, float* out) { product_of_row(row, out); }
void product_f32_i64(const SparseRow<float, int64_t>& row, float* out) { product_of_row(row, out); }
void product_f64_i32(const SparseRow<double, int32_t>& row, double* out) { product_of_row(row, out); }
void product_f64_i64(const SparseRow<double, int64_t>& row, double* out) { product_of_row(row, out); }
void scatter_f32_i32(const SparseRow<float, int32_t>& row, float* out) { scatter_of_row(row, out); }
void scatter_f32_i64(const SparseRow<float, int64_t>& row, float* out) { scatter_of_row(row, out); }
void scatter_f64_i32(const SparseRow<double, int32_t>& row, double* out) { scatter_of_row(row, out); }
void scatter_f64_i64(const SparseRow<double, int64_t>& row, double* out) { scatter_of_row(row, out); }
void sample_f32_i32(const SparseRow<float, int32_t>& row, float* out) { sample_of_row(row, out); }
void sample_f32_i64(const SparseRow<float, int64_t>& row, float* out) { sample_of_row(row, out); }
void sample_f64_i32(const SparseRow<double, int32_t>& row, double* out) { sample_of_row(row, out); }
void sample_f64_i64(const SparseRow<double, int64_t>& row, double* out) { sample_of_row(row, out); }
void add_f32(const float* from, float* out, int64_t n) { add_scaled_row(1.f, from, out, n); }
void add_f64(const double* from, double* out, int64_t n) { add_scaled_row(1., from, out, n); }
void segment_f32(SegmentReduce how, const float* x, int64_t count, int64_t n, float* out) {
  reduce_segment_of(how, x, count, n, out);
}
void segment_f64(SegmentReduce how, const double* x, int64_t count, int64_t n, double* out) {
  reduce_segment_of(how, x, count, n, out);
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(product_f32_i32);
HWY_EXPORT(product_f32_i64);
HWY_EXPORT(product_f64_i32);
HWY_EXPORT(product_f64_i64);
HWY_EXPORT(scatter_f32_i32);
HWY_EXPORT(scatter_f32_i64);
HWY_EXPORT(scatter_f64_i32);
HWY_EXPORT(scatter_f64_i64);
HWY_EXPORT(sample_f32_i32);
HWY_EXPORT(sample_f32_i64);
HWY_EXPORT(sample_f64_i32);
HWY_EXPORT(sample_f64_i64);
HWY_EXPORT(add_f32);
HWY_EXPORT(add_f64);
HWY_EXPORT(segment_f32);
HWY_EXPORT(segment_f64);
HWY_EXPORT(softmax_f32);
HWY_EXPORT(softmax_f64);

namespace detail {

void sparse_row_product(const SparseRow<float, int32_t>& row, float* out) {
  HWY_DYNAMIC_DISPATCH(product_f32_i32)(row, out);
}
void sparse_row_product(const SparseRow<float, int64_t>& row, float* out) {
  HWY_DYNAMIC_DISPATCH(product_f32_i64)(row, out);
}
void sparse_row_product(const SparseRow<double, int32_t>& row, double* out) {
  HWY_DYNAMIC_DISPATCH(product_f64_i32)(row, out);
}
void sparse_row_product(const SparseRow<double, int64_t>& row, double* out) {
  HWY_DYNAMIC_DISPATCH(product_f64_i64)(row, out);
}
void scatter_sparse_row(const SparseRow<float, int32_t>& row, float* out) {
  HWY_DYNAMIC_DISPATCH(scatter_f32_i32)(row, out);
}
void scatter_sparse_row(const SparseRow<float, int64_t>& row, float* out) {
  HWY_DYNAMIC_DISPATCH(scatter_f32_i64)(row, out);
}
void scatter_sparse_row(const SparseRow<double, int32_t>& row, double* out) {
  HWY_DYNAMIC_DISPATCH(scatter_f64_i32)(row, out);
}
void scatter_sparse_row(const SparseRow<double, int64_t>& row, double* out) {
  HWY_DYNAMIC_DISPATCH(scatter_f64_i64)(row, out);
}
void sample_sparse_row(const SparseRow<float, int32_t>& row, float* out) {
  HWY_DYNAMIC_DISPATCH(sample_f32_i32)(row, out);
}
void sample_sparse_row(const SparseRow<float, int64_t>& row, float* out) {
  HWY_DYNAMIC_DISPATCH(sample_f32_i64)(row, out);
}
void sample_sparse_row(const SparseRow<double, int32_t>& row, double* out) {
  HWY_DYNAMIC_DISPATCH(sample_f64_i32)(row, out);
}
void sample_sparse_row(const SparseRow<double, int64_t>& row, double* out) {
  HWY_DYNAMIC_DISPATCH(sample_f64_i64)(row, out);
}
void add_row(const float* from, float* out, int64_t n) { HWY_DYNAMIC_DISPATCH(add_f32)(from, out, n); }
void add_row(const double* from, double* out, int64_t n) { HWY_DYNAMIC_DISPATCH(add_f64)(from, out, n); }
void reduce_segment(SegmentReduce how, const float* x, int64_t count, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(segment_f32)(how, x, count, n, out);
}
void reduce_segment(SegmentReduce how, const double* x, int64_t count, int64_t n, double* out) {
  HWY_DYNAMIC_DISPATCH(segment_f64)(how, x, count, n, out);
}
void softmax_segment(const float* x, int64_t count, int64_t n, float* out) {
  HWY_DYNAMIC_DISPATCH(softmax_f32)(x, count, n, out);
}
void softmax_segment(const double* x, int64_t count, int64_t n, double* out) {
  HWY_DYNAMIC_DISPATCH(softmax_f64)(x, count, n, out);
}

}  // namespace detail
}  // namespace mx::kernels
#endif
