#include "operators/kernels/resample_rows.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/resample_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "operators/kernels/reduce_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {
using detail::kTapLanes;
using detail::RowTaps;

template <bool kFull, class C>
HWY_INLINE void gather_row(const RowTaps<C>& taps, const C* from, C* to) {
  const hn::CappedTag<C, kTapLanes> d;
  const hn::RebindToSigned<decltype(d)> di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  for (int64_t i = 0; i < taps.n; i += lanes) {
    const int64_t block = i / kTapLanes, lane = i % kTapLanes;
    auto sum = hn::Zero(d);
    for (int64_t k = taps.starts[block]; k < taps.starts[block + 1]; ++k) {
      const auto place = hn::LoadU(di, taps.places + k * kTapLanes + lane);
      const auto weight = hn::LoadU(d, taps.weights + k * kTapLanes + lane);
      if constexpr (kFull) {
        sum = hn::MulAdd(weight, hn::GatherIndex(d, from, place), sum);
      } else {
        // A missing tap counts as 0, whatever the element at place 0 is.
        const auto zero = hn::Zero(di);
        const auto there = hn::RebindMask(d, hn::Gt(place, hn::Set(di, -1)));
        const auto x = hn::IfThenElseZero(there, hn::GatherIndex(d, from, hn::Max(place, zero)));
        sum = hn::MulAdd(weight, x, sum);
      }
    }
    if (taps.n - i >= lanes)
      hn::StoreU(sum, d, to + i);
    else
      store_tail(d, sum, to + i, taps.n - i);
  }
}

template <class C>
HWY_INLINE void either_row(const RowTaps<C>& taps, const C* from, C* to) {
  taps.full ? gather_row<true>(taps, from, to) : gather_row<false>(taps, from, to);
}

/// Columns i to i + kVectors * lanes - 1 of a weighted sum of rows.
template <int kVectors, class C>
HWY_INLINE void weigh_columns(const C* const* rows, const C* weights, int64_t count, int64_t i, bool adds,
                              C* to) {
  const hn::ScalableTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  hn::Vec<decltype(d)> sums[kVectors];
  for (int v = 0; v < kVectors; ++v) sums[v] = adds ? hn::LoadU(d, to + i + v * lanes) : hn::Zero(d);
  for (int64_t k = 0; k < count; ++k) {
    const auto weight = hn::Set(d, weights[k]);
    for (int v = 0; v < kVectors; ++v)
      sums[v] = hn::MulAdd(weight, hn::LoadU(d, rows[k] + i + v * lanes), sums[v]);
  }
  for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[v], d, to + i + v * lanes);
}

template <class C>
HWY_INLINE void weigh(const C* const* rows, const C* weights, int64_t count, int64_t n, bool adds, C* to) {
  const hn::ScalableTag<C> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) weigh_columns<4>(rows, weights, count, i, adds, to);
  for (; i + lanes <= n; i += lanes) weigh_columns<1>(rows, weights, count, i, adds, to);
  if (i == n) return;
  auto sum = adds ? load_tail(d, to + i, n - i, C{0}) : hn::Zero(d);
  for (int64_t k = 0; k < count; ++k)
    sum = hn::MulAdd(hn::Set(d, weights[k]), load_tail(d, rows[k] + i, n - i, C{0}), sum);
  store_tail(d, sum, to + i, n - i);
}

// Highway exports no templates.
void row_f32(const RowTaps<float>& taps, const float* from, float* to) { either_row(taps, from, to); }
void row_f64(const RowTaps<double>& taps, const double* from, double* to) { either_row(taps, from, to); }
void weigh_f32(const float* const* rows, const float* weights, int64_t count, int64_t n, bool adds,
               float* to) {
  weigh(rows, weights, count, n, adds, to);
}
void weigh_f64(const double* const* rows, const double* weights, int64_t count, int64_t n, bool adds,
               double* to) {
  weigh(rows, weights, count, n, adds, to);
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels::detail {
HWY_EXPORT(row_f32);
HWY_EXPORT(row_f64);
HWY_EXPORT(weigh_f32);
HWY_EXPORT(weigh_f64);

void resample_row(const RowTaps<float>& taps, const float* from, float* to) {
  HWY_DYNAMIC_DISPATCH(row_f32)(taps, from, to);
}
void resample_row(const RowTaps<double>& taps, const double* from, double* to) {
  HWY_DYNAMIC_DISPATCH(row_f64)(taps, from, to);
}
void weigh_rows(const float* const* rows, const float* weights, int64_t count, int64_t n, bool adds,
                float* to) {
  HWY_DYNAMIC_DISPATCH(weigh_f32)(rows, weights, count, n, adds, to);
}
void weigh_rows(const double* const* rows, const double* weights, int64_t count, int64_t n, bool adds,
                double* to) {
  HWY_DYNAMIC_DISPATCH(weigh_f64)(rows, weights, count, n, adds, to);
}

}  // namespace mx::kernels::detail
#endif
