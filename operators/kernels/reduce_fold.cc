#include "operators/kernels/reduce_fold.h"

#include <cmath>
#include <limits>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/reduce_fold.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "operators/kernels/reduce_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {
using detail::ColumnStates;
using detail::Fold;
using detail::FoldState;

template <class T>
struct SquareStep : SumStep<T> {
  template <class D, class V>
  HWY_INLINE V step(D, V acc, V x) const {
    return hn::MulAdd(x, x, acc);
  }
};

template <class T>
struct AbsStep : SumStep<T> {
  template <class D, class V>
  HWY_INLINE V step(D, V acc, V x) const {
    return hn::Add(acc, hn::Abs(x));
  }
};

template <class T>
struct ProdStep {
  T neutral() const { return 1; }
  template <class D, class V>
  HWY_INLINE V step(D, V acc, V x) const {
    return hn::Mul(acc, x);
  }
  template <class D, class V>
  HWY_INLINE V merge(D, V a, V b) const {
    return hn::Mul(a, b);
  }
};

template <class T>
struct MinStep {
  T neutral() const { return std::numeric_limits<T>::infinity(); }
  template <class D, class V>
  HWY_INLINE V step(D d, V acc, V x) const {
    return min_or_nan(d, acc, x);
  }
  template <class D, class V>
  HWY_INLINE V merge(D d, V a, V b) const {
    return min_or_nan(d, a, b);
  }
};

template <class T>
struct MaxAbsStep : MaxStep<T> {
  T neutral() const { return 0; }
  template <class D, class V>
  HWY_INLINE V step(D d, V acc, V x) const {
    return max_or_nan(d, acc, hn::Abs(x));
  }
};

/// Sum of exp(x - shift).
template <class T>
struct ExpStep : SumStep<T> {
  T shift;
  explicit ExpStep(T value) : shift(value) {}
  T neutral() const { return -std::numeric_limits<T>::infinity(); }
  template <class D, class V>
  HWY_INLINE V step(D d, V acc, V x) const {
    return hn::Add(acc, exp_of(d, hn::Sub(x, hn::Set(d, shift))));
  }
};

/// Sum of squared distances from the mean.
template <class T>
struct DistanceStep : SumStep<T> {
  T mean;
  explicit DistanceStep(T value) : mean(value) {}
  T neutral() const { return mean; }
  template <class D, class V>
  HWY_INLINE V step(D d, V acc, V x) const {
    const V distance = hn::Sub(x, hn::Set(d, mean));
    return hn::MulAdd(distance, distance, acc);
  }
};

template <class T, class Op>
HWY_INLINE T sum_with(const Op& op, const T* x, int64_t n) {
  const hn::ScalableTag<T> d;
  return hn::GetLane(hn::SumOfLanes(d, fold_row(d, op, x, n, hn::Zero(d))));
}

template <class T>
T min_row(const T* x, int64_t n) {
  const hn::ScalableTag<T> d;
  const MinStep<T> op;
  const auto v = fold_row(d, op, x, n, hn::Set(d, op.neutral()));
  if (!hn::AllFalse(d, hn::IsNaN(v))) return std::numeric_limits<T>::quiet_NaN();
  return hn::GetLane(hn::MinOfLanes(d, v));
}

template <class T>
T prod_row(const T* x, int64_t n) {
  const hn::ScalableTag<T> d;
  HWY_ALIGN T lanes[HWY_MAX_BYTES / sizeof(T)];
  hn::Store(fold_row(d, ProdStep<T>{}, x, n, hn::Set(d, T{1})), d, lanes);
  T result = lanes[0];
  for (size_t i = 1; i < hn::Lanes(d); ++i) result *= lanes[i];
  return result;
}

template <class T>
int64_t count_row(const T* x, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t count = 0, i = 0;
  for (; i + lanes <= n; i += lanes)
    count += static_cast<int64_t>(hn::CountTrue(d, hn::Ne(hn::LoadU(d, x + i), hn::Zero(d))));
  for (; i < n; ++i) count += x[i] != 0;
  return count;
}

/// Where `value`, which is there, is first; a NaN is where any NaN is.
template <class T>
int64_t find_row(const T* x, int64_t n, T value) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const bool nan = value != value;
  const auto wanted = hn::Set(d, value);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    const auto found = nan ? hn::IsNaN(v) : hn::Eq(v, wanted);
    const intptr_t at = hn::FindFirstTrue(d, found);
    if (at >= 0) return i + at;
  }
  for (; i < n - 1; ++i)
    if (nan ? x[i] != x[i] : x[i] == value) break;
  return i;
}

template <class T>
FoldState<T> fold_one(Fold fold, const T* HWY_RESTRICT x, int64_t n, int64_t first) {
  const hn::ScalableTag<T> d;
  switch (fold) {
    case Fold::sum:
      return {sum_row(d, x, n), 0, 0};
    case Fold::sum_squares:
      return {sum_with(SquareStep<T>{}, x, n), 0, 0};
    case Fold::sum_abs:
      return {sum_with(AbsStep<T>{}, x, n), 0, 0};
    case Fold::prod:
      return {prod_row(x, n), 0, 0};
    case Fold::max:
      return {max_row(d, x, n), 0, 0};
    case Fold::min:
      return {min_row(x, n), 0, 0};
    case Fold::max_abs:
      return {max_of_lanes(d, fold_row(d, MaxAbsStep<T>{}, x, n, hn::Zero(d))), 0, 0};
    case Fold::count_nonzero:
      return {0, 0, count_row(x, n)};
    case Fold::argmax: {
      const T best = max_row(d, x, n);
      return {best, 0, first + find_row(x, n, best)};
    }
    case Fold::argmin: {
      const T best = min_row(x, n);
      return {best, 0, first + find_row(x, n, best)};
    }
    case Fold::logsumexp: {
      const T top = max_row(d, x, n);
      if (!std::isfinite(top)) return {top, 0, 0};
      return {top, sum_with(ExpStep<T>(top), x, n), 0};
    }
    case Fold::moments:
      break;
  }
  const T mean = sum_row(d, x, n) / static_cast<T>(n);
  return {mean, sum_with(DistanceStep<T>(mean), x, n), n};
}

// Integers: plain loops; sums and products wrap, which is exact modulo 2^64.
FoldState<int64_t> fold_one(Fold fold, const int64_t* HWY_RESTRICT x, int64_t n, int64_t first) {
  uint64_t total = fold == Fold::prod ? 1 : 0;
  int64_t best = x[0], index = 0;
  switch (fold) {
    case Fold::sum:
      for (int64_t i = 0; i < n; ++i) total += static_cast<uint64_t>(x[i]);
      break;
    case Fold::sum_squares:
      for (int64_t i = 0; i < n; ++i) total += static_cast<uint64_t>(x[i]) * static_cast<uint64_t>(x[i]);
      break;
    case Fold::sum_abs:
      for (int64_t i = 0; i < n; ++i)
        total += x[i] < 0 ? 0 - static_cast<uint64_t>(x[i]) : static_cast<uint64_t>(x[i]);
      break;
    case Fold::prod:
      for (int64_t i = 0; i < n; ++i) total *= static_cast<uint64_t>(x[i]);
      break;
    case Fold::max_abs:
      for (int64_t i = 0; i < n; ++i) {
        const uint64_t size = x[i] < 0 ? 0 - static_cast<uint64_t>(x[i]) : static_cast<uint64_t>(x[i]);
        total = size > total ? size : total;
      }
      break;
    case Fold::count_nonzero:
      for (int64_t i = 0; i < n; ++i) index += x[i] != 0;
      return {0, 0, index};
    case Fold::max:
    case Fold::argmax:
      for (int64_t i = 0; i < n; ++i) best = x[i] > best ? x[i] : best;
      if (fold == Fold::max) return {best, 0, 0};
      while (x[index] != best) ++index;
      return {best, 0, first + index};
    default:
      for (int64_t i = 0; i < n; ++i) best = x[i] < best ? x[i] : best;
      if (fold == Fold::min) return {best, 0, 0};
      while (x[index] != best) ++index;
      return {best, 0, first + index};
  }
  return {static_cast<int64_t>(total), 0, 0};
}

template <class A>
void rows_of(Fold fold, const A* x, int64_t rows, int64_t stride, int64_t n, int64_t first, int64_t step,
             FoldState<A>* out) {
  for (int64_t r = 0; r < rows; ++r) out[r] = fold_one(fold, x + r * stride, n, first + r * step);
}

// Column folds are elementwise over the columns, so that the compiler vectorises them as they stand.

template <class A>
struct Plus {
  HWY_INLINE A operator()(A a, A b) const {
    if constexpr (std::is_integral_v<A>)
      return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
    else
      return a + b;
  }
};
template <class A>
struct Times {
  HWY_INLINE A operator()(A a, A b) const {
    if constexpr (std::is_integral_v<A>)
      return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
    else
      return a * b;
  }
};
template <class A>
struct Larger {
  HWY_INLINE A operator()(A a, A b) const { return (b > a) | (b != b) ? b : a; }
};
template <class A>
struct Smaller {
  HWY_INLINE A operator()(A a, A b) const { return (b < a) | (b != b) ? b : a; }
};
template <class A>
struct Same {
  HWY_INLINE A operator()(A x) const { return x; }
};
template <class A>
struct Square {
  HWY_INLINE A operator()(A x) const { return Times<A>()(x, x); }
};
template <class A>
struct Size {
  HWY_INLINE A operator()(A x) const {
    if constexpr (std::is_integral_v<A>)
      return static_cast<A>(x < 0 ? 0 - static_cast<uint64_t>(x) : static_cast<uint64_t>(x));
    else
      return std::fabs(x);
  }
};

/// out[c] = the rows' map(x) joined as a tree of eight and eight.
template <class A, class Join, class Map>
HWY_NOINLINE void columns_with(const A* const* rows, int64_t n, int64_t columns, A* HWY_RESTRICT out) {
  const Join join;
  const Map map;
  for (int64_t c = 0; c < columns; ++c) out[c] = map(rows[0][c]);
  int64_t r = 1;
  for (; r + 8 <= n; r += 8) {
    const A *HWY_RESTRICT p0 = rows[r], *HWY_RESTRICT p1 = rows[r + 1], *HWY_RESTRICT p2 = rows[r + 2],
                          *HWY_RESTRICT p3 = rows[r + 3], *HWY_RESTRICT p4 = rows[r + 4],
                          *HWY_RESTRICT p5 = rows[r + 5], *HWY_RESTRICT p6 = rows[r + 6],
                          *HWY_RESTRICT p7 = rows[r + 7];
    for (int64_t c = 0; c < columns; ++c) {
      const A low = join(join(map(p0[c]), map(p1[c])), join(map(p2[c]), map(p3[c])));
      const A high = join(join(map(p4[c]), map(p5[c])), join(map(p6[c]), map(p7[c])));
      out[c] = join(out[c], join(low, high));
    }
  }
  for (; r < n; ++r) {
    const A* HWY_RESTRICT p = rows[r];
    for (int64_t c = 0; c < columns; ++c) out[c] = join(out[c], map(p[c]));
  }
}

template <class A, bool kMax>
HWY_NOINLINE void columns_best(const A* const* rows, int64_t n, int64_t columns, int64_t first,
                               const ColumnStates<A>& out) {
  A* HWY_RESTRICT best = out.a;
  int64_t* HWY_RESTRICT index = out.i;
  for (int64_t c = 0; c < columns; ++c) {
    best[c] = rows[0][c];
    index[c] = first;
  }
  for (int64_t r = 1; r < n; ++r) {
    const A* HWY_RESTRICT p = rows[r];
    for (int64_t c = 0; c < columns; ++c) {
      const bool better = (kMax ? p[c] > best[c] : p[c] < best[c]) | ((p[c] != p[c]) & (best[c] == best[c]));
      best[c] = better ? p[c] : best[c];
      index[c] = better ? first + r : index[c];
    }
  }
}

template <class A>
HWY_NOINLINE void columns_logsumexp(const A* const* rows, int64_t n, int64_t columns,
                                    const ColumnStates<A>& out) {
  columns_with<A, Larger<A>, Same<A>>(rows, n, columns, out.a);
  for (int64_t c = 0; c < columns; ++c) out.b[c] = 0;
  const hn::ScalableTag<A> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto infinity = hn::Set(d, std::numeric_limits<A>::infinity());
  for (int64_t c = 0; c < columns; c += lanes) {
    const int64_t here = columns - c < lanes ? columns - c : lanes;
    const auto load = [&](const A* p) {
      return here == lanes ? hn::LoadU(d, p + c) : load_tail(d, p + c, here, A{0});
    };
    // Where the maximum is infinite only it decides; the sum just must not become NaN.
    const auto top = load(out.a);
    const auto shift = hn::IfThenElse(hn::Eq(hn::Abs(top), infinity), hn::Zero(d), top);
    auto total = hn::Zero(d);
    for (int64_t r = 0; r < n; ++r) total = hn::Add(total, exp_of(d, hn::Sub(load(rows[r]), shift)));
    if (here == lanes) {
      hn::StoreU(total, d, out.b + c);
    } else {
      store_tail(d, total, out.b + c, here);
    }
  }
}

template <class A>
HWY_NOINLINE void columns_moments(const A* const* rows, int64_t n, int64_t columns,
                                  const ColumnStates<A>& out) {
  columns_with<A, Plus<A>, Same<A>>(rows, n, columns, out.a);
  A* HWY_RESTRICT mean = out.a;
  A* HWY_RESTRICT spread = out.b;
  for (int64_t c = 0; c < columns; ++c) {
    mean[c] /= static_cast<A>(n);
    spread[c] = 0;
    out.i[c] = n;
  }
  for (int64_t r = 0; r < n; ++r) {
    const A* HWY_RESTRICT p = rows[r];
    for (int64_t c = 0; c < columns; ++c) spread[c] += (p[c] - mean[c]) * (p[c] - mean[c]);
  }
}

template <class A>
HWY_NOINLINE void columns_count(const A* const* rows, int64_t n, int64_t columns, int64_t* HWY_RESTRICT out) {
  for (int64_t c = 0; c < columns; ++c) out[c] = 0;
  for (int64_t r = 0; r < n; ++r) {
    const A* HWY_RESTRICT p = rows[r];
    for (int64_t c = 0; c < columns; ++c) out[c] += p[c] != 0;
  }
}

template <class A>
void columns_of(Fold fold, const A* const* rows, int64_t n, int64_t columns, int64_t first,
                const ColumnStates<A>& out) {
  switch (fold) {
    case Fold::sum:
      return columns_with<A, Plus<A>, Same<A>>(rows, n, columns, out.a);
    case Fold::sum_squares:
      return columns_with<A, Plus<A>, Square<A>>(rows, n, columns, out.a);
    case Fold::sum_abs:
      return columns_with<A, Plus<A>, Size<A>>(rows, n, columns, out.a);
    case Fold::prod:
      return columns_with<A, Times<A>, Same<A>>(rows, n, columns, out.a);
    case Fold::max:
      return columns_with<A, Larger<A>, Same<A>>(rows, n, columns, out.a);
    case Fold::min:
      return columns_with<A, Smaller<A>, Same<A>>(rows, n, columns, out.a);
    case Fold::max_abs:
      return columns_with<A, Larger<A>, Size<A>>(rows, n, columns, out.a);
    case Fold::count_nonzero:
      return columns_count(rows, n, columns, out.i);
    case Fold::argmax:
      return columns_best<A, true>(rows, n, columns, first, out);
    case Fold::argmin:
      return columns_best<A, false>(rows, n, columns, first, out);
    case Fold::logsumexp:
      if constexpr (std::is_floating_point_v<A>) columns_logsumexp(rows, n, columns, out);
      return;
    case Fold::moments:
      if constexpr (std::is_floating_point_v<A>) columns_moments(rows, n, columns, out);
      return;
  }
}

void rows_f32(Fold fold, const float* x, int64_t rows, int64_t stride, int64_t n, int64_t first, int64_t step,
              FoldState<float>* out) {
  rows_of<float>(fold, x, rows, stride, n, first, step, out);
}
void columns_f32(Fold fold, const float* const* rows, int64_t n, int64_t columns, int64_t first,
                 const ColumnStates<float>& out) {
  columns_of<float>(fold, rows, n, columns, first, out);
}
void rows_f64(Fold fold, const double* x, int64_t rows, int64_t stride, int64_t n, int64_t first,
              int64_t step, FoldState<double>* out) {
  rows_of<double>(fold, x, rows, stride, n, first, step, out);
}
void columns_f64(Fold fold, const double* const* rows, int64_t n, int64_t columns, int64_t first,
                 const ColumnStates<double>& out) {
  columns_of<double>(fold, rows, n, columns, first, out);
}
void rows_i64(Fold fold, const int64_t* x, int64_t rows, int64_t stride, int64_t n, int64_t first,
              int64_t step, FoldState<int64_t>* out) {
  rows_of<int64_t>(fold, x, rows, stride, n, first, step, out);
}
void columns_i64(Fold fold, const int64_t* const* rows, int64_t n, int64_t columns, int64_t first,
                 const ColumnStates<int64_t>& out) {
  columns_of<int64_t>(fold, rows, n, columns, first, out);
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(rows_f32);
HWY_EXPORT(rows_f64);
HWY_EXPORT(rows_i64);
HWY_EXPORT(columns_f32);
HWY_EXPORT(columns_f64);
HWY_EXPORT(columns_i64);

namespace detail {

template <class A>
void fold_rows(Fold fold, const A* x, int64_t rows, int64_t stride, int64_t n, int64_t first_index,
               int64_t index_step, FoldState<A>* out) {
  if constexpr (std::is_same_v<A, float>)
    HWY_DYNAMIC_DISPATCH(rows_f32)(fold, x, rows, stride, n, first_index, index_step, out);
  else if constexpr (std::is_same_v<A, double>)
    HWY_DYNAMIC_DISPATCH(rows_f64)(fold, x, rows, stride, n, first_index, index_step, out);
  else
    HWY_DYNAMIC_DISPATCH(rows_i64)(fold, x, rows, stride, n, first_index, index_step, out);
}

template <class A>
void fold_columns(Fold fold, const A* const* rows, int64_t n, int64_t columns, int64_t first_index,
                  const ColumnStates<A>& out) {
  if constexpr (std::is_same_v<A, float>)
    HWY_DYNAMIC_DISPATCH(columns_f32)(fold, rows, n, columns, first_index, out);
  else if constexpr (std::is_same_v<A, double>)
    HWY_DYNAMIC_DISPATCH(columns_f64)(fold, rows, n, columns, first_index, out);
  else
    HWY_DYNAMIC_DISPATCH(columns_i64)(fold, rows, n, columns, first_index, out);
}

namespace {

template <class A>
A wrapping_sum(A a, A b) {
  if constexpr (std::is_integral_v<A>)
    return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  return a + b;
}
template <class A>
A wrapping_product(A a, A b) {
  if constexpr (std::is_integral_v<A>)
    return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  return a * b;
}

}  // namespace

template <class A>
void combine(Fold fold, FoldState<A>& l, const FoldState<A>& r) {
  switch (fold) {
    case Fold::sum:
    case Fold::sum_squares:
    case Fold::sum_abs:
      l.a = wrapping_sum(l.a, r.a);
      return;
    case Fold::prod:
      l.a = wrapping_product(l.a, r.a);
      return;
    case Fold::max:
    case Fold::max_abs:
      if (r.a > l.a || r.a != r.a) l.a = r.a;
      return;
    case Fold::min:
      if (r.a < l.a || r.a != r.a) l.a = r.a;
      return;
    case Fold::count_nonzero:
      l.i += r.i;
      return;
    case Fold::argmax:
      if (r.a > l.a || (r.a != r.a && l.a == l.a)) l = r;
      return;
    case Fold::argmin:
      if (r.a < l.a || (r.a != r.a && l.a == l.a)) l = r;
      return;
    case Fold::logsumexp:
      if constexpr (std::is_floating_point_v<A>) {
        // NaN and infinity carry over as they are; -inf has nothing to add.
        if (l.a != l.a || r.a == -std::numeric_limits<A>::infinity()) return;
        if (r.a != r.a || l.a == -std::numeric_limits<A>::infinity()) {
          l = r;
        } else if (std::isinf(l.a) || std::isinf(r.a)) {
          l.a = std::numeric_limits<A>::infinity();
        } else if (r.a > l.a) {
          l.b = l.b * std::exp(l.a - r.a) + r.b;
          l.a = r.a;
        } else {
          l.b += r.b * std::exp(r.a - l.a);
        }
      }
      return;
    case Fold::moments:
      // Chan, Golub, LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances",
      // 1979.
      if constexpr (std::is_floating_point_v<A>) {
        const double n = static_cast<double>(l.i + r.i),
                     distance = static_cast<double>(r.a) - static_cast<double>(l.a);
        const double share = static_cast<double>(r.i) / n;
        l.a = static_cast<A>(static_cast<double>(l.a) + distance * share);
        l.b = static_cast<A>(static_cast<double>(l.b) + static_cast<double>(r.b) +
                             distance * distance * static_cast<double>(l.i) * share);
        l.i += r.i;
      }
      return;
  }
}

template <class A>
void combine_columns(Fold fold, const ColumnStates<A>& l, const ColumnStates<A>& r, int64_t columns) {
  if (fold == Fold::sum || fold == Fold::sum_squares || fold == Fold::sum_abs) {
    for (int64_t c = 0; c < columns; ++c) l.a[c] = wrapping_sum(l.a[c], r.a[c]);
    return;
  }
  for (int64_t c = 0; c < columns; ++c) {
    FoldState<A> left{l.a[c], l.b[c], l.i[c]};
    combine(fold, left, FoldState<A>{r.a[c], r.b[c], r.i[c]});
    l.a[c] = left.a, l.b[c] = left.b, l.i[c] = left.i;
  }
}

template void fold_rows(Fold, const float*, int64_t, int64_t, int64_t, int64_t, int64_t, FoldState<float>*);
template void fold_rows(Fold, const double*, int64_t, int64_t, int64_t, int64_t, int64_t, FoldState<double>*);
template void fold_rows(Fold, const int64_t*, int64_t, int64_t, int64_t, int64_t, int64_t,
                        FoldState<int64_t>*);
template void fold_columns(Fold, const float* const*, int64_t, int64_t, int64_t, const ColumnStates<float>&);
template void fold_columns(Fold, const double* const*, int64_t, int64_t, int64_t,
                           const ColumnStates<double>&);
template void fold_columns(Fold, const int64_t* const*, int64_t, int64_t, int64_t,
                           const ColumnStates<int64_t>&);
template void combine(Fold, FoldState<float>&, const FoldState<float>&);
template void combine(Fold, FoldState<double>&, const FoldState<double>&);
template void combine(Fold, FoldState<int64_t>&, const FoldState<int64_t>&);
template void combine_columns(Fold, const ColumnStates<float>&, const ColumnStates<float>&, int64_t);
template void combine_columns(Fold, const ColumnStates<double>&, const ColumnStates<double>&, int64_t);
template void combine_columns(Fold, const ColumnStates<int64_t>&, const ColumnStates<int64_t>&, int64_t);

}  // namespace detail
}  // namespace mx::kernels
#endif
