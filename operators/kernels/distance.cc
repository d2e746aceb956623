#include "operators/kernels/distance.h"

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "ndarray/kernels/strided_loop.h"
#include "operators/distance_attrs.h"
#include "operators/kernels/distance_power.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/distance.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "operators/kernels/reduce_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {
using detail::DistanceBlock;
using detail::kBlockRows;
using detail::kDepth;
using mx::detail::distance_kind;
using mx::detail::DistanceKind;

/// Rows of `a` that are computed together; a panel has two vectors of rows of `b`.
constexpr int kTileRows = 4;

struct CountTerm {
  template <class D, class V>
  static HWY_INLINE V step(D d, V difference, V sum) {
    return hn::Add(sum, hn::IfThenElse(hn::Eq(difference, hn::Zero(d)), hn::Zero(d), hn::Set(d, 1)));
  }
  template <class D, class V>
  static HWY_INLINE V join(D, V a, V b) {
    return hn::Add(a, b);
  }
};
struct SumTerm : CountTerm {
  template <class D, class V>
  static HWY_INLINE V step(D, V difference, V sum) {
    return hn::Add(sum, hn::Abs(difference));
  }
};
struct SquareTerm : CountTerm {
  template <class D, class V>
  static HWY_INLINE V step(D, V difference, V sum) {
    return hn::MulAdd(difference, difference, sum);
  }
};
struct MostTerm {
  template <class D, class V>
  static HWY_INLINE V step(D d, V difference, V most) {
    return max_or_nan(d, most, hn::Abs(difference));
  }
  template <class D, class V>
  static HWY_INLINE V join(D d, V a, V b) {
    return max_or_nan(d, a, b);
  }
};

/// Adds the terms of kTileRows rows, whose coordinates are at[r][p * step], and of the panel.
template <class Term, class T, class D = hn::ScalableTag<T>>
HWY_INLINE void add_terms(const T* const (&at)[kTileRows], int64_t step, const T* panel, int64_t depth,
                          T* sums) {
  const D d;
  using V = hn::Vec<D>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  V left[kTileRows], right[kTileRows];
  for (int r = 0; r < kTileRows; ++r) left[r] = right[r] = hn::Zero(d);
  for (int64_t p = 0; p < depth; ++p) {
    const V b0 = hn::Load(d, panel + p * 2 * lanes), b1 = hn::Load(d, panel + p * 2 * lanes + lanes);
    for (int r = 0; r < kTileRows; ++r) {
      const V x = hn::Set(d, at[r][p * step]);
      left[r] = Term::step(d, hn::Sub(x, b0), left[r]);
      right[r] = Term::step(d, hn::Sub(x, b1), right[r]);
    }
  }
  for (int r = 0; r < kTileRows; ++r) {
    T* const sum = sums + r * 2 * lanes;
    hn::Store(Term::join(d, hn::Load(d, sum), left[r]), d, sum);
    hn::Store(Term::join(d, hn::Load(d, sum + lanes), right[r]), d, sum + lanes);
  }
}

/// Adds the powers of the differences of kTileRows rows and of the panel.
template <class T, class D = hn::ScalableTag<T>>
HWY_INLINE void add_powers(const T* const (&at)[kTileRows], int64_t step, const T* panel, int64_t depth,
                           const PowerRow<T>& power, T* sums) {
  const D d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d)), width = 2 * lanes;
  HWY_ALIGN T sizes[static_cast<size_t>(kDepth) * 2 * hn::MaxLanes(d)];
  for (int r = 0; r < kTileRows; ++r) {
    for (int64_t p = 0; p < depth; ++p) {
      const auto x = hn::Set(d, at[r][p * step]);
      for (int64_t j = p * width; j < (p + 1) * width; j += lanes)
        hn::Store(hn::Abs(hn::Sub(x, hn::Load(d, panel + j))), d, sizes + j);
    }
    power(sizes, depth * width);
    for (int64_t j = 0; j < width; j += lanes) {
      auto sum = hn::Zero(d);
      for (int64_t p = 0; p < depth; ++p) sum = hn::Add(sum, hn::Load(d, sizes + p * width + j));
      T* const to = sums + r * width + j;
      hn::Store(hn::Add(hn::Load(d, to), sum), d, to);
    }
  }
}

/// Computes the distances of a block. terms.add(at, step, panel, depth, sums) adds the terms of some rows,
/// and terms.finish(sums, n) turns sums into distances.
template <class T, class Kind>
void compute_with(const DistanceBlock& block, const Kind& terms) {
  const hn::ScalableTag<T> d;
  constexpr size_t kMost = hn::MaxLanes(d);
  const auto width = static_cast<int64_t>(2 * hn::Lanes(d));
  HWY_ALIGN T panel[static_cast<size_t>(kDepth) * 2 * kMost];
  HWY_ALIGN T sums[static_cast<size_t>(kBlockRows) * 2 * kMost];
  std::fill_n(sums, kBlockRows * width, T{0});
  const T* const a = block.a.as<const T>() + block.first_row * block.a.strides[0];
  const T* const b = block.b.as<const T>() + block.first_column * block.b.strides[0];
  const int64_t k = block.a.shape[1], a_step = block.a.strides[1], b_step = block.b.strides[1];
  for (int64_t first = 0; first < k; first += kDepth) {
    const int64_t depth = std::min(kDepth, k - first);
    for (int64_t j = 0; j < width; ++j) {
      // Lanes beyond the last row repeat it; their results are not stored.
      const T* const from = b + std::min(j, block.columns - 1) * block.b.strides[0] + first * b_step;
      for (int64_t p = 0; p < depth; ++p) panel[p * width + j] = from[p * b_step];
    }
    for (int64_t i = 0; i < block.rows; i += kTileRows) {
      const T* at[kTileRows];
      for (int64_t r = 0; r < kTileRows; ++r)
        at[r] = a + std::min(i + r, block.rows - 1) * block.a.strides[0] + first * a_step;
      terms.add(at, a_step, panel, depth, sums + i * width);
    }
  }
  terms.finish(sums, block.rows * width);
  for (int64_t i = 0; i < block.rows; ++i) {
    const T* const row = sums + i * width;
    T* const to = block.target.as<T>() + (block.first_row + i) * block.target.strides[0] +
                  block.first_column * block.target.strides[1];
    for (int64_t j = 0; j < block.columns; ++j) to[j * block.target.strides[1]] = row[j];
  }
}

/// How a block adds terms and makes distances of their sums. Functions of a class, because lambdas are not
/// always inlined.
template <class T, class Term>
struct Terms {
  HWY_INLINE void add(const T* const (&at)[kTileRows], int64_t step, const T* panel, int64_t depth,
                      T* sums) const {
    add_terms<Term, T>(at, step, panel, depth, sums);
  }
  HWY_INLINE void finish(T* sums, int64_t n) const {
    if constexpr (std::is_same_v<Term, SquareTerm>) {
      const hn::ScalableTag<T> d;
      for (int64_t i = 0; i < n; i += static_cast<int64_t>(hn::Lanes(d)))
        hn::Store(hn::Sqrt(hn::Load(d, sums + i)), d, sums + i);
    }
  }
};

template <class T>
struct Powers {
  PowerRow<T> power, root;
  explicit Powers(double p) : power(p), root(1 / p) {}
  HWY_INLINE void add(const T* const (&at)[kTileRows], int64_t step, const T* panel, int64_t depth,
                      T* sums) const {
    add_powers<T>(at, step, panel, depth, power, sums);
  }
  HWY_INLINE void finish(T* sums, int64_t n) const { root(sums, n); }
};

template <class T>
void compute_block(const DistanceBlock& block) {
  switch (distance_kind(block.p)) {
    case DistanceKind::count:
      return compute_with<T>(block, Terms<T, CountTerm>());
    case DistanceKind::sum:
      return compute_with<T>(block, Terms<T, SumTerm>());
    case DistanceKind::squares:
      return compute_with<T>(block, Terms<T, SquareTerm>());
    case DistanceKind::most:
      return compute_with<T>(block, Terms<T, MostTerm>());
    case DistanceKind::power:
      return compute_with<T>(block, Powers<T>(block.p));
  }
}

void block_f32(const DistanceBlock& block) { compute_block<float>(block); }
void block_f64(const DistanceBlock& block) { compute_block<double>(block); }
int64_t panel_width(bool single) {
  return static_cast<int64_t>(
      2 * (single ? hn::Lanes(hn::ScalableTag<float>()) : hn::Lanes(hn::ScalableTag<double>())));
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(block_f32);
HWY_EXPORT(block_f64);
HWY_EXPORT(panel_width);
using detail::DistanceBlock;
using detail::kBlockRows;

void distances(const Tensor& target, const Tensor& a, const Tensor& b, double p) {
  const bool single = target.dtype == DType::f32;
  const int64_t m = a.shape[0], n = b.shape[0], width = HWY_DYNAMIC_DISPATCH(panel_width)(single);
  if (m == 0 || n == 0) return;
  const int64_t row_blocks = (m + kBlockRows - 1) / kBlockRows, panels = (n + width - 1) / width;
  const int64_t work = kBlockRows * std::max<int64_t>(a.shape[1], 8);  // vector operations of a block
  parallel_for(row_blocks * panels, std::max<int64_t>(1, kLoopGrain / work), [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const int64_t row = i % row_blocks * kBlockRows, column = i / row_blocks * width;
      const DistanceBlock block{
          target, a, b, p, row, std::min(kBlockRows, m - row), column, std::min(width, n - column)};
      if (single) {
        HWY_DYNAMIC_DISPATCH(block_f32)(block);
      } else {
        HWY_DYNAMIC_DISPATCH(block_f64)(block);
      }
    }
  });
}

}  // namespace mx::kernels
#endif
