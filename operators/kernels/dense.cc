#include "operators/kernels/dense.h"

#include <algorithm>
#include <cmath>
#include <type_traits>
#include <utility>

#include "operators/kernels/gemm.h"

namespace mx::kernels {
namespace {

// The sizes up to which plain loops are faster than another halving.
constexpr int64_t kFactoredColumns = 16;
constexpr int64_t kTriangle = 32;
constexpr int64_t kSquare = 64;

template <class T>
void exchange(const MatrixBlock<T>& a, int64_t i, int64_t j) {
  if (i == j) return;
  for (int64_t k = 0; k < a.columns; ++k) std::swap(a(i, k), a(j, k));
}

/// LU of a panel of few columns, column by column.
template <class T>
int64_t factor_panel(const MatrixBlock<T>& a, int64_t* pivots) {
  int64_t zero = -1;
  for (int64_t k = 0; k < std::min(a.rows, a.columns); ++k) {
    int64_t best = k;
    T largest = std::abs(a(k, k));
    for (int64_t i = k + 1; i < a.rows && !std::isnan(largest); ++i) {
      const T size = std::abs(a(i, k));
      if (size > largest || std::isnan(size)) {
        largest = size;
        best = i;
      }
    }
    pivots[k] = best;
    exchange(a, k, best);
    const T pivot = a(k, k);
    if (pivot == 0) {
      // The whole rest of the column is 0, and so are the multipliers.
      if (zero < 0) zero = k;
      continue;
    }
    for (int64_t i = k + 1; i < a.rows; ++i) {
      const T factor = a(i, k) / pivot;
      a(i, k) = factor;
      for (int64_t j = k + 1; j < a.columns; ++j) a(i, j) -= factor * a(k, j);
    }
  }
  return zero;
}

template <class T>
int64_t cholesky_block(const MatrixBlock<T>& a) {
  for (int64_t j = 0; j < a.rows; ++j) {
    T pivot = a(j, j);
    for (int64_t k = 0; k < j; ++k) pivot -= a(j, k) * a(j, k);
    if (pivot <= 0) return j;
    const T root = std::sqrt(pivot);
    a(j, j) = root;
    for (int64_t i = j + 1; i < a.rows; ++i) {
      T sum = a(i, j);
      for (int64_t k = 0; k < j; ++k) sum -= a(i, k) * a(j, k);
      a(i, j) = sum / root;
    }
  }
  return -1;
}

template <class T>
void solve_lower_block(const MatrixBlock<const T>& l, const MatrixBlock<T>& b, bool unit) {
  const int64_t n = l.rows;
  if (b.column_stride != 1 && b.columns > 0) {
    for (int64_t j = 0; j < b.columns; ++j)
      for (int64_t i = 0; i < n; ++i) {
        T sum = b(i, j);
        for (int64_t k = 0; k < i; ++k) sum -= l(i, k) * b(k, j);
        b(i, j) = unit ? sum : sum / l(i, i);
      }
    return;
  }
  for (int64_t i = 0; i < n; ++i) {
    T* const row = b.data + i * b.row_stride;
    for (int64_t k = 0; k < i; ++k) {
      const T factor = l(i, k);
      const T* const other = b.data + k * b.row_stride;
      for (int64_t j = 0; j < b.columns; ++j) row[j] -= factor * other[j];
    }
    if (unit) continue;
    const T pivot = l(i, i);
    for (int64_t j = 0; j < b.columns; ++j) row[j] /= pivot;
  }
}

/// c -= a a', only from the diagonal of c down.
template <class T>
void subtract_square(const MatrixBlock<const T>& a, const MatrixBlock<T>& c) {
  const int64_t n = c.rows;
  if (n <= kSquare) {
    T square[kSquare * kSquare];
    const MatrixBlock<T> whole{square, n, n, n, 1};
    product<T>(a, a.transposed(), whole, true);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t j = 0; j <= i; ++j) c(i, j) -= whole(i, j);
    return;
  }
  const int64_t half = n / 2, rest = n - half;
  const MatrixBlock<const T> top = a.part(0, 0, half, a.columns), bottom = a.part(half, 0, rest, a.columns);
  subtract_square(top, c.part(0, 0, half, half));
  product<T>(bottom, top.transposed(), c.part(half, 0, rest, half));
  subtract_square(bottom, c.part(half, half, rest, rest));
}

}  // namespace

template <class T>
void product(const MatrixBlock<const T>& a, const MatrixBlock<const T>& b, const MatrixBlock<T>& c,
             bool set) {
  if (c.rows == 0 || c.columns == 0) return;
  constexpr DType kType = std::is_same_v<T, float> ? DType::f32 : DType::f64;
  gemm(kType, c.rows, c.columns, a.columns, {a.data, a.row_stride, a.column_stride},
       {b.data, b.row_stride, b.column_stride}, c.data, c.row_stride, c.column_stride,
       {.alpha = set ? 1. : -1., .beta = set ? 0. : 1.});
}

template <class T>
void exchange_rows(const MatrixBlock<T>& b, const int64_t* pivots, int64_t count) {
  for (int64_t k = 0; k < count; ++k) exchange(b, k, pivots[k]);
}

template <class T>
int64_t lu_factor(const MatrixBlock<T>& a, int64_t* pivots) {
  const int64_t m = a.rows, n = a.columns, steps = std::min(m, n);
  if (n <= kFactoredColumns || m <= 1) return factor_panel(a, pivots);
  const int64_t left = steps / 2 > 0 ? steps / 2 : 1, right = n - left;
  int64_t zero = lu_factor(a.part(0, 0, m, left), pivots);
  const MatrixBlock<T> top = a.part(0, left, left, right), rest = a.part(left, left, m - left, right);
  exchange_rows(a.part(0, left, m, right), pivots, left);
  solve_lower<T>(constant(a.part(0, 0, left, left)), top, true);
  product<T>(constant(a.part(left, 0, m - left, left)), constant(top), rest);
  const int64_t later = lu_factor(rest, pivots + left);
  exchange_rows(a.part(left, 0, m - left, left), pivots + left, steps - left);
  for (int64_t k = left; k < steps; ++k) pivots[k] += left;
  if (zero < 0 && later >= 0) zero = later + left;
  return zero;
}

template <class T>
int64_t cholesky(const MatrixBlock<T>& a) {
  const int64_t n = a.rows;
  if (n <= kTriangle) return cholesky_block(a);
  const int64_t half = n / 2, rest = n - half;
  int64_t bad = cholesky(a.part(0, 0, half, half));
  if (bad >= 0) return bad;
  const MatrixBlock<T> below = a.part(half, 0, rest, half);
  solve_lower<T>(constant(a.part(0, 0, half, half)), below.transposed(), false);
  subtract_square(constant(below), a.part(half, half, rest, rest));
  bad = cholesky(a.part(half, half, rest, rest));
  return bad < 0 ? bad : bad + half;
}

template <class T>
void solve_lower(const MatrixBlock<const T>& l, const MatrixBlock<T>& b, bool unit) {
  const int64_t n = l.rows;
  if (n <= kTriangle) return solve_lower_block(l, b, unit);
  const int64_t half = n / 2, rest = n - half;
  const MatrixBlock<T> first = b.part(0, 0, half, b.columns), second = b.part(half, 0, rest, b.columns);
  solve_lower(l.part(0, 0, half, half), first, unit);
  product<T>(l.part(half, 0, rest, half), constant(first), second);
  solve_lower(l.part(half, half, rest, rest), second, unit);
}

template int64_t lu_factor(const MatrixBlock<float>&, int64_t*);
template int64_t lu_factor(const MatrixBlock<double>&, int64_t*);
template void exchange_rows(const MatrixBlock<float>&, const int64_t*, int64_t);
template void exchange_rows(const MatrixBlock<double>&, const int64_t*, int64_t);
template int64_t cholesky(const MatrixBlock<float>&);
template int64_t cholesky(const MatrixBlock<double>&);
template void solve_lower(const MatrixBlock<const float>&, const MatrixBlock<float>&, bool);
template void solve_lower(const MatrixBlock<const double>&, const MatrixBlock<double>&, bool);
template void product(const MatrixBlock<const float>&, const MatrixBlock<const float>&,
                      const MatrixBlock<float>&, bool);
template void product(const MatrixBlock<const double>&, const MatrixBlock<const double>&,
                      const MatrixBlock<double>&, bool);

}  // namespace mx::kernels
