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
    return hn::Add(acc, exp_below(d, hn::Sub(x, hn::Set(d, shift))));
  }
};

template <class T, class Op>
HWY_INLINE T sum_with(const Op& op, const T* x, int64_t n) {
  const hn::ScalableTag<T> d;
  return hn::GetLane(hn::SumOfLanes(d, fold_row(d, op, x, n, hn::Zero(d))));
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

/// The number of elements that are not zero. The zeros are counted, because hn::Ne is false for NaN on some
/// instruction sets, and a NaN is not zero.
template <class T>
int64_t count_row(const T* x, int64_t n) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t count = 0, i = 0;
  for (; i + lanes <= n; i += lanes)
    count += lanes - static_cast<int64_t>(hn::CountTrue(d, hn::Eq(hn::LoadU(d, x + i), hn::Zero(d))));
  for (; i < n; ++i) count += x[i] != 0;
  return count;
}

/// Returns the index of the first element equal to `value`, which must occur; for NaN, that of the first NaN.
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

/// Moments from the sums of the distances from `origin`, in one pass.
template <class T>
HWY_INLINE FoldState<T> moments_from(const T* HWY_RESTRICT x, int64_t n, T origin) {
  const hn::ScalableTag<T> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto from = hn::Set(d, origin);
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0, q0 = s0, q1 = s0, q2 = s0, q3 = s0;
  const auto take = [&](auto& s, auto& q, auto v) {
    const auto distance = hn::Sub(v, from);
    s = hn::Add(s, distance);
    q = hn::MulAdd(distance, distance, q);
  };
  int64_t i = 0;
  for (; i + 4 * lanes <= n; i += 4 * lanes) {
    take(s0, q0, hn::LoadU(d, x + i));
    take(s1, q1, hn::LoadU(d, x + i + lanes));
    take(s2, q2, hn::LoadU(d, x + i + 2 * lanes));
    take(s3, q3, hn::LoadU(d, x + i + 3 * lanes));
  }
  for (; i + lanes <= n; i += lanes) {
    take(s0, q0, hn::LoadU(d, x + i));
    std::swap(s0, s1), std::swap(q0, q1);
  }
  if (i < n) take(s2, q2, load_tail(d, x + i, n - i, origin));
  return detail::moments_about(origin,
                               hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3)))),
                               hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(q0, q1), hn::Add(q2, q3)))), n);
}

/// One pass is enough if the average of a few elements is near the mean; otherwise a second one starts from
/// the mean that the first one found.
template <class T>
HWY_INLINE FoldState<T> moments_of_row(const T* HWY_RESTRICT x, int64_t n) {
  const T guess = (x[0] + x[n / 4]) / 4 + (x[n / 2] + x[n - 1 - n / 4]) / 4;
  FoldState<T> state = moments_from(x, n, guess);
  if (HWY_UNLIKELY(detail::far_from_mean(state))) state = moments_from(x, n, state.a + state.c);
  if (HWY_LIKELY(std::isfinite(state.b))) return state;
  return detail::wide_moments<T>(n, [&](int64_t i) { return x[i]; });
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
      return {extreme_of_row<false>(d, x, n), 0, 0};
    case Fold::max_abs:
      return {max_of_lanes(d, fold_row(d, MaxAbsStep<T>{}, x, n, hn::Zero(d))), 0, 0};
    case Fold::count_nonzero:
      return {0, 0, count_row(x, n)};
    case Fold::argmax: {
      const T best = max_row(d, x, n);
      return {best, 0, first + find_row(x, n, best)};
    }
    case Fold::argmin: {
      const T best = extreme_of_row<false>(d, x, n);
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
  return moments_of_row(x, n);
}

// Integers use plain loops; sums and products wrap, so they are exact modulo 2^64.
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

void rows_f32(Fold fold, const float* x, int64_t rows, int64_t stride, int64_t n, int64_t first, int64_t step,
              FoldState<float>* out) {
  rows_of<float>(fold, x, rows, stride, n, first, step, out);
}
void rows_f64(Fold fold, const double* x, int64_t rows, int64_t stride, int64_t n, int64_t first,
              int64_t step, FoldState<double>* out) {
  rows_of<double>(fold, x, rows, stride, n, first, step, out);
}
void rows_i64(Fold fold, const int64_t* x, int64_t rows, int64_t stride, int64_t n, int64_t first,
              int64_t step, FoldState<int64_t>* out) {
  rows_of<int64_t>(fold, x, rows, stride, n, first, step, out);
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(rows_f32);
HWY_EXPORT(rows_f64);
HWY_EXPORT(rows_i64);

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
        // NaN and infinity propagate; a maximum of -inf adds nothing.
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
        const double n = static_cast<double>(l.i + r.i);
        const double distance = (static_cast<double>(r.a) - static_cast<double>(l.a)) +
                                (static_cast<double>(r.c) - static_cast<double>(l.c));
        const double share = static_cast<double>(r.i) / n;
        const double moved = static_cast<double>(l.c) + distance * share, left = static_cast<double>(l.a);
        l.a = static_cast<A>(left + moved);
        l.c = static_cast<A>((left - static_cast<double>(l.a)) + moved);
        l.b = static_cast<A>(static_cast<double>(l.b) + static_cast<double>(r.b) +
                             distance * distance * static_cast<double>(l.i) * share);
        l.i += r.i;
      }
      return;
  }
}

template void fold_rows(Fold, const float*, int64_t, int64_t, int64_t, int64_t, int64_t, FoldState<float>*);
template void fold_rows(Fold, const double*, int64_t, int64_t, int64_t, int64_t, int64_t, FoldState<double>*);
template void fold_rows(Fold, const int64_t*, int64_t, int64_t, int64_t, int64_t, int64_t,
                        FoldState<int64_t>*);
template void combine(Fold, FoldState<float>&, const FoldState<float>&);
template void combine(Fold, FoldState<double>&, const FoldState<double>&);
template void combine(Fold, FoldState<int64_t>&, const FoldState<int64_t>&);

}  // namespace detail
}  // namespace mx::kernels
#endif
