// Folds of contiguous pieces: the vectorised inner part of reductions. Used only by reduce.cc.
//
// Each piece is folded into a state; the states of neighbouring pieces are combined, the left one first. A is
// the type in which a reduction is computed: float (f32, f16, bf16), double (f64) or int64_t (integers and
// bool).
#pragma once

#include <cstdint>
#include <limits>

namespace mx::kernels::detail {

enum class Fold {
  sum,
  sum_squares,
  sum_abs,
  prod,
  max,
  min,
  max_abs,
  count_nonzero,
  argmax,
  argmin,
  logsumexp,
  moments,
};

/// The state of a fold. Values are in `a`, counts in `i`. argmax and argmin: the value in `a` and its index
/// in `i`. logsumexp: the maximum in `a` and the sum of exp(x - a) in `b`. moments: the mean is a + c, where
/// `c` is what rounding the mean to A left over, the sum of squared distances from it is in `b`, the number
/// of elements in `i`. Without `c`, the variance of numbers with a large mean would have few correct digits.
template <class A>
struct FoldState {
  A a, b;
  int64_t i;
  A c = 0;
};

/// The states of adjacent columns.
template <class A>
struct ColumnStates {
  A* a;
  A* b;
  int64_t* i;
  A* c;
};

/// Returns the moments of n elements from the sums of their distances, and of their squared distances, from
/// `origin`.
template <class A>
FoldState<A> moments_about(A origin, A distances, A squares, int64_t n) {
  const A rest = distances / static_cast<A>(n);
  const A spread = squares - distances * rest;
  return {origin, spread < 0 ? A{0} : spread, n, rest};
}

/// Returns true if `origin` of moments_about() was more than one standard deviation away from the mean, so
/// that the difference there had fewer correct digits than its terms.
template <class A>
bool far_from_mean(const FoldState<A>& s) {
  return s.c * s.c * static_cast<A>(s.i) > s.b;
}

/// Returns the moments of `load(0)`, ..., `load(n - 1)`, computed in double, for elements of which sums in A
/// overflow.
template <class A, class Load>
FoldState<A> wide_moments(int64_t n, const Load& load) {
  double sum = 0, squares = 0;
  for (int64_t i = 0; i < n; ++i) sum += static_cast<double>(load(i));
  const double mean = sum / static_cast<double>(n);
  for (int64_t i = 0; i < n; ++i) {
    const double distance = static_cast<double>(load(i)) - mean;
    squares += distance * distance;
  }
  return {static_cast<A>(mean), static_cast<A>(squares), n, 0};
}

/// Numbers of elements of a row, and of rows of a column, that are folded at once.
inline constexpr int64_t kFoldElements = 1024;
inline constexpr int64_t kFoldRows = 64;

/// out[r] is the fold of x[r * stride .. r * stride + n), n > 0, for each r below `rows`. The first element
/// of row r has the index first_index + r * index_step. logsumexp and moments are not available for int64_t.
template <class A>
void fold_rows(Fold fold, const A* x, int64_t rows, int64_t stride, int64_t n, int64_t first_index,
               int64_t index_step, FoldState<A>* out);

/// out[c] is the fold of rows[0][c], ..., rows[n - 1][c]; indices count from first_index. n > 0.
template <class A>
void fold_columns(Fold fold, const A* const* rows, int64_t n, int64_t columns, int64_t first_index,
                  const ColumnStates<A>& out);

/// Combines the states: `left` becomes the fold of left's elements followed by right's.
template <class A>
void combine(Fold fold, FoldState<A>& left, const FoldState<A>& right);
template <class A>
void combine_columns(Fold fold, const ColumnStates<A>& left, const ColumnStates<A>& right, int64_t columns);

}  // namespace mx::kernels::detail
