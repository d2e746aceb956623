#include "operators/kernels/reduce_fold.h"

#include <cmath>
#include <limits>
#include <type_traits>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/reduce_fold_columns.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "operators/kernels/reduce_math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {
using detail::ColumnStates;
using detail::Fold;

// Column folds of integers, elementwise over the columns, in loops that the compiler vectorises.

template <class A>
struct Plus {
  HWY_INLINE A operator()(A a, A b) const {
    return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  }
};
template <class A>
struct Times {
  HWY_INLINE A operator()(A a, A b) const {
    return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
  }
};
template <class A>
struct Larger {
  HWY_INLINE A operator()(A a, A b) const { return b > a ? b : a; }
};
template <class A>
struct Smaller {
  HWY_INLINE A operator()(A a, A b) const { return b < a ? b : a; }
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
    return static_cast<A>(x < 0 ? 0 - static_cast<uint64_t>(x) : static_cast<uint64_t>(x));
  }
};

/// out[c] = the fold of map(x) over the rows, eight rows at a time as a tree.
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

// Floating point uses explicit vectors, because the compiler does not vectorise the comparisons with NaN.

struct JoinSum {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Add(a, b);
  }
};
struct JoinProd {
  template <class D, class V>
  HWY_INLINE V operator()(D, V a, V b) const {
    return hn::Mul(a, b);
  }
};
struct JoinMax {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    return max_or_nan(d, a, b);
  }
};
struct JoinMin {
  template <class D, class V>
  HWY_INLINE V operator()(D d, V a, V b) const {
    return min_or_nan(d, a, b);
  }
};
struct MapSame {
  template <class V>
  HWY_INLINE V operator()(V x) const {
    return x;
  }
};
struct MapSquare {
  template <class V>
  HWY_INLINE V operator()(V x) const {
    return hn::Mul(x, x);
  }
};
struct MapSize {
  template <class V>
  HWY_INLINE V operator()(V x) const {
    return hn::Abs(x);
  }
};

/// Returns `out` joined with the tree of eight rows.
template <class D, class Join, class Map, class Load, class V = hn::Vec<D>>
HWY_INLINE V join_eight(D d, const Join& join, const Map& map, const Load& load, V out) {
  const V low = join(d, join(d, map(load(0)), map(load(1))), join(d, map(load(2)), map(load(3))));
  const V high = join(d, join(d, map(load(4)), map(load(5))), join(d, map(load(6)), map(load(7))));
  return join(d, out, join(d, low, high));
}

/// columns_with() for float and double.
template <class A, class Join, class Map>
HWY_NOINLINE void vector_columns(const A* const* rows, int64_t n, int64_t columns, A* HWY_RESTRICT out) {
  const Join join;
  const Map map;
  const hn::ScalableTag<A> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), whole = columns / lanes * lanes,
                rest = columns - whole;
  for (int64_t c = 0; c < whole; c += lanes) hn::StoreU(map(hn::LoadU(d, rows[0] + c)), d, out + c);
  auto tail = map(load_tail(d, rows[0] + whole, rest, A{0}));
  int64_t r = 1;
  for (; r + 8 <= n; r += 8) {
    const A* const* p = rows + r;
    for (int64_t c = 0; c < whole; c += lanes) {
      const auto load = [&](int k) { return hn::LoadU(d, p[k] + c); };
      hn::StoreU(join_eight(d, join, map, load, hn::LoadU(d, out + c)), d, out + c);
    }
    if (rest > 0)
      tail = join_eight(
          d, join, map, [&](int k) { return load_tail(d, p[k] + whole, rest, A{0}); }, tail);
  }
  for (; r < n; ++r) {
    for (int64_t c = 0; c < whole; c += lanes)
      hn::StoreU(join(d, hn::LoadU(d, out + c), map(hn::LoadU(d, rows[r] + c))), d, out + c);
    if (rest > 0) tail = join(d, tail, map(load_tail(d, rows[r] + whole, rest, A{0})));
  }
  if (rest > 0) store_tail(d, tail, out + whole, rest);
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
      const bool better = kMax ? p[c] > best[c] : p[c] < best[c];
      best[c] = better ? p[c] : best[c];
      index[c] = better ? first + r : index[c];
    }
  }
}

/// The same for float and double; A can represent the row numbers exactly.
template <class A, bool kMax>
HWY_NOINLINE void vector_columns_best(const A* const* rows, int64_t n, int64_t columns, int64_t first,
                                      const ColumnStates<A>& out) {
  const hn::ScalableTag<A> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  constexpr int64_t kWidth = 256;
  HWY_ALIGN A where[kWidth + HWY_MAX_BYTES / sizeof(A)], best[kWidth + HWY_MAX_BYTES / sizeof(A)];
  for (int64_t from = 0; from < columns; from += kWidth) {
    const int64_t width = columns - from < kWidth ? columns - from : kWidth;
    const auto load = [&](int64_t r, int64_t c) {
      return c + lanes <= width ? hn::LoadU(d, rows[r] + from + c)
                                : load_tail(d, rows[r] + from + c, width - c, A{0});
    };
    for (int64_t c = 0; c < width; c += lanes) {
      hn::Store(load(0, c), d, best + c);
      hn::Store(hn::Zero(d), d, where + c);
    }
    for (int64_t r = 1; r < n; ++r) {
      const auto row = hn::Set(d, static_cast<A>(r));
      for (int64_t c = 0; c < width; c += lanes) {
        const auto x = load(r, c), old = hn::Load(d, best + c);
        const auto better =
            hn::Or(kMax ? hn::Gt(x, old) : hn::Lt(x, old), hn::AndNot(hn::IsNaN(old), hn::IsNaN(x)));
        hn::Store(hn::IfThenElse(better, x, old), d, best + c);
        hn::Store(hn::IfThenElse(better, row, hn::Load(d, where + c)), d, where + c);
      }
    }
    for (int64_t c = 0; c < width; ++c) {
      out.a[from + c] = best[c];
      out.i[from + c] = first + static_cast<int64_t>(where[c]);
    }
  }
}

template <class A>
HWY_NOINLINE void columns_logsumexp(const A* const* rows, int64_t n, int64_t columns,
                                    const ColumnStates<A>& out) {
  vector_columns<A, JoinMax, MapSame>(rows, n, columns, out.a);
  for (int64_t c = 0; c < columns; ++c) out.b[c] = 0;
  const hn::ScalableTag<A> d;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d)), whole = columns / lanes * lanes,
                rest = columns - whole;
  const auto infinity = hn::Set(d, std::numeric_limits<A>::infinity());
  // If the maximum is infinite, it alone determines the result, but the sum must not become NaN.
  const auto term = [&](auto x, auto top) {
    return exp_of(d, hn::Sub(x, hn::IfThenElse(hn::Eq(hn::Abs(top), infinity), hn::Zero(d), top)));
  };
  for (int64_t r = 0; r < n; ++r) {
    for (int64_t c = 0; c < whole; c += lanes)
      hn::StoreU(hn::Add(hn::LoadU(d, out.b + c), term(hn::LoadU(d, rows[r] + c), hn::LoadU(d, out.a + c))),
                 d, out.b + c);
    if (rest == 0) continue;
    const auto x = load_tail(d, rows[r] + whole, rest, A{0}), top = load_tail(d, out.a + whole, rest, A{0});
    store_tail(d, hn::Add(load_tail(d, out.b + whole, rest, A{0}), term(x, top)), out.b + whole, rest);
  }
}

/// Sums the distances, and the squared distances, of rows from `origin`, for kVectors adjacent vectors of
/// columns. load(r, k) returns vector k of row r.
template <size_t kVectors, class D, class Load, class V = hn::Vec<D>>
HWY_INLINE void column_distances(D d, int64_t n, const Load& load, const V* origin, V* sums, V* squares) {
  for (size_t k = 0; k < kVectors; ++k) sums[k] = squares[k] = hn::Zero(d);
  for (int64_t r = 0; r < n; ++r) {
    for (size_t k = 0; k < kVectors; ++k) {
      const V distance = hn::Sub(load(r, k), origin[k]);
      sums[k] = hn::Add(sums[k], distance);
      squares[k] = hn::MulAdd(distance, distance, squares[k]);
    }
  }
}

/// The column form of moments_of_row() in reduce_fold.cc, for kVectors adjacent vectors; `store(k, column,
/// state)` takes the results.
template <size_t kVectors, class D, class Load, class Store>
HWY_INLINE void moments_of_columns(D d, int64_t n, const Load& load, const Store& store) {
  using A = hn::TFromD<D>;
  using V = hn::Vec<D>;
  const V quarter = hn::Set(d, A{0.25});
  V origin[kVectors], sums[kVectors], squares[kVectors];
  for (size_t k = 0; k < kVectors; ++k) {
    const V early = hn::Add(load(0, k), load(n / 4, k)),
            late = hn::Add(load(n / 2, k), load(n - 1 - n / 4, k));
    origin[k] = hn::Add(hn::Mul(early, quarter), hn::Mul(late, quarter));
  }
  HWY_ALIGN A from[HWY_MAX_BYTES / sizeof(A)], sum[HWY_MAX_BYTES / sizeof(A)],
      square[HWY_MAX_BYTES / sizeof(A)];
  column_distances<kVectors>(d, n, load, origin, sums, squares);
  // far_from_mean(), for all columns at once.
  const V share = hn::Set(d, A{1} / static_cast<A>(n)), half = hn::Set(d, A{0.5});
  bool again = false;
  for (size_t k = 0; k < kVectors; ++k) {
    const V moved = hn::Mul(hn::Mul(sums[k], sums[k]), share);
    again = again || !hn::AllTrue(d, hn::Le(moved, hn::Mul(squares[k], half)));
  }
  if (again) {
    for (size_t k = 0; k < kVectors; ++k) origin[k] = hn::MulAdd(sums[k], share, origin[k]);
    column_distances<kVectors>(d, n, load, origin, sums, squares);
  }
  for (size_t k = 0; k < kVectors; ++k) {
    hn::Store(origin[k], d, from);
    hn::Store(sums[k], d, sum);
    hn::Store(squares[k], d, square);
    for (size_t c = 0; c < hn::Lanes(d); ++c)
      store(k, static_cast<int64_t>(c), detail::moments_about(from[c], sum[c], square[c], n));
  }
}

template <class A>
HWY_NOINLINE void columns_moments(const A* const* rows, int64_t n, int64_t columns,
                                  const ColumnStates<A>& out) {
  const hn::ScalableTag<A> d;
  constexpr int64_t kVectors = 8;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto put = [&](int64_t c, const detail::FoldState<A>& s) {
    out.a[c] = s.a, out.b[c] = s.b, out.i[c] = n, out.c[c] = s.c;
  };
  int64_t at = 0;
  for (; at + kVectors * lanes <= columns; at += kVectors * lanes)
    moments_of_columns<kVectors>(
        d, n,
        [&](int64_t r, size_t k) { return hn::LoadU(d, rows[r] + at + static_cast<int64_t>(k) * lanes); },
        [&](size_t k, int64_t c, const auto& s) { put(at + static_cast<int64_t>(k) * lanes + c, s); });
  for (; at + lanes <= columns; at += lanes)
    moments_of_columns<1>(
        d, n, [&](int64_t r, size_t) { return hn::LoadU(d, rows[r] + at); },
        [&](size_t, int64_t c, const auto& s) { put(at + c, s); });
  const int64_t rest = columns - at;
  if (rest > 0)
    moments_of_columns<1>(
        d, n, [&](int64_t r, size_t) { return load_tail(d, rows[r] + at, rest, A{0}); },
        [&](size_t, int64_t c, const auto& s) {
          if (c < rest) put(at + c, s);
        });
  for (int64_t c = 0; c < columns; ++c)
    if (!std::isfinite(out.b[c])) put(c, detail::wide_moments<A>(n, [&](int64_t r) { return rows[r][c]; }));
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
  if constexpr (std::is_floating_point_v<A>) {
    switch (fold) {
      case Fold::sum:
        return vector_columns<A, JoinSum, MapSame>(rows, n, columns, out.a);
      case Fold::sum_squares:
        return vector_columns<A, JoinSum, MapSquare>(rows, n, columns, out.a);
      case Fold::sum_abs:
        return vector_columns<A, JoinSum, MapSize>(rows, n, columns, out.a);
      case Fold::prod:
        return vector_columns<A, JoinProd, MapSame>(rows, n, columns, out.a);
      case Fold::max:
        return vector_columns<A, JoinMax, MapSame>(rows, n, columns, out.a);
      case Fold::min:
        return vector_columns<A, JoinMin, MapSame>(rows, n, columns, out.a);
      case Fold::max_abs:
        return vector_columns<A, JoinMax, MapSize>(rows, n, columns, out.a);
      case Fold::argmax:
        return vector_columns_best<A, true>(rows, n, columns, first, out);
      case Fold::argmin:
        return vector_columns_best<A, false>(rows, n, columns, first, out);
      case Fold::logsumexp:
        return columns_logsumexp(rows, n, columns, out);
      case Fold::moments:
        return columns_moments(rows, n, columns, out);
      case Fold::count_nonzero:
        return columns_count(rows, n, columns, out.i);
    }
  } else {
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
      default:
        return;
    }
  }
}

void columns_f32(Fold fold, const float* const* rows, int64_t n, int64_t columns, int64_t first,
                 const ColumnStates<float>& out) {
  columns_of<float>(fold, rows, n, columns, first, out);
}
void columns_f64(Fold fold, const double* const* rows, int64_t n, int64_t columns, int64_t first,
                 const ColumnStates<double>& out) {
  columns_of<double>(fold, rows, n, columns, first, out);
}
void columns_i64(Fold fold, const int64_t* const* rows, int64_t n, int64_t columns, int64_t first,
                 const ColumnStates<int64_t>& out) {
  columns_of<int64_t>(fold, rows, n, columns, first, out);
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(columns_f32);
HWY_EXPORT(columns_f64);
HWY_EXPORT(columns_i64);

namespace detail {

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
A sum_of(A a, A b) {
  if constexpr (std::is_integral_v<A>)
    return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
  else
    return a + b;
}

}  // namespace

template <class A>
void combine_columns(Fold fold, const ColumnStates<A>& l, const ColumnStates<A>& r, int64_t columns) {
  if (fold == Fold::sum || fold == Fold::sum_squares || fold == Fold::sum_abs) {
    for (int64_t c = 0; c < columns; ++c) l.a[c] = sum_of(l.a[c], r.a[c]);
    return;
  }
  for (int64_t c = 0; c < columns; ++c) {
    FoldState<A> left{l.a[c], l.b[c], l.i[c], l.c[c]};
    combine(fold, left, FoldState<A>{r.a[c], r.b[c], r.i[c], r.c[c]});
    l.a[c] = left.a, l.b[c] = left.b, l.i[c] = left.i, l.c[c] = left.c;
  }
}

template void fold_columns(Fold, const float* const*, int64_t, int64_t, int64_t, const ColumnStates<float>&);
template void fold_columns(Fold, const double* const*, int64_t, int64_t, int64_t,
                           const ColumnStates<double>&);
template void fold_columns(Fold, const int64_t* const*, int64_t, int64_t, int64_t,
                           const ColumnStates<int64_t>&);
template void combine_columns(Fold, const ColumnStates<float>&, const ColumnStates<float>&, int64_t);
template void combine_columns(Fold, const ColumnStates<double>&, const ColumnStates<double>&, int64_t);
template void combine_columns(Fold, const ColumnStates<int64_t>&, const ColumnStates<int64_t>&, int64_t);

}  // namespace detail
}  // namespace mx::kernels
#endif
