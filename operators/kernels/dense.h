// Factorisations of one dense matrix and solutions with triangular ones, on the CPU.
//
// The algorithms are recursive: a matrix is halved until a block is small, and everything else is a product
// of blocks, computed by gemm (Toledo, "Locality of Reference in LU Decomposition with Partial Pivoting",
// SIAM J. Matrix Anal. Appl. 18:4, 1997; Gustavson, "Recursion leads to automatic variable blocking for dense
// linear-algebra algorithms", IBM J. Res. Dev. 41:6, 1997). So they are as fast as gemm, use the same
// threads, and give the same bits at any number of them.
//
// Matrices may have any strides; rows that are contiguous are the fast case. A NaN in the input gives NaNs in
// the result, never an error. T is float or double. Thread-safety: any thread may call, for different
// matrices.
#pragma once

#include <cstdint>

namespace mx::kernels {

/// A view of a matrix: element (i, j) is at data[i * row_stride + j * column_stride].
template <class T>
struct MatrixBlock {
  T* data = nullptr;
  int64_t rows = 0, columns = 0;
  int64_t row_stride = 0, column_stride = 1;

  T& operator()(int64_t i, int64_t j) const { return data[i * row_stride + j * column_stride]; }
  MatrixBlock part(int64_t row, int64_t column, int64_t height, int64_t width) const {
    return {data + row * row_stride + column * column_stride, height, width, row_stride, column_stride};
  }
  MatrixBlock transposed() const { return {data, columns, rows, column_stride, row_stride}; }
  /// The same elements, counted from the last row and the last column.
  MatrixBlock reversed() const {
    if (rows == 0 || columns == 0) return *this;
    return {&(*this)(rows - 1, columns - 1), rows, columns, -row_stride, -column_stride};
  }
  MatrixBlock rows_reversed() const {
    if (rows == 0) return *this;
    return {&(*this)(rows - 1, 0), rows, columns, -row_stride, column_stride};
  }
};

/// Replaces a (m, n) by its factors: below the diagonal L, whose diagonal is 1, and from the diagonal on U,
/// so that the product of L and U is the matrix with rows exchanged. pivots[k], for k < min(m, n), is the row
/// with which row k was exchanged, one exchange after the other. Returns the index of the first pivot that is
/// 0, or -1. The factors are valid also if a pivot is 0.
template <class T>
int64_t lu_factor(const MatrixBlock<T>& a, int64_t* pivots);

/// Exchanges the rows of b as lu_factor() did.
template <class T>
void exchange_rows(const MatrixBlock<T>& b, const int64_t* pivots, int64_t count);

/// Replaces the lower triangle of a (n, n) by L with L L' = a. Reads and writes nothing above the diagonal.
/// Returns the index of the first pivot that is not positive, or -1. If there is one, a is undefined.
template <class T>
int64_t cholesky(const MatrixBlock<T>& a);

/// Replaces b by the solution x of l x = b, for a lower triangle l; with `unit` its diagonal is taken as 1.
/// Reads nothing above the diagonal of l. A 0 on the diagonal gives infinities or NaNs.
template <class T>
void solve_lower(const MatrixBlock<const T>& l, const MatrixBlock<T>& b, bool unit);
/// The same for an upper triangle.
template <class T>
void solve_upper(const MatrixBlock<const T>& u, const MatrixBlock<T>& b, bool unit) {
  solve_lower<T>(u.reversed(), b.rows_reversed(), unit);
}

/// c -= a b, or c = a b if `set`.
template <class T>
void product(const MatrixBlock<const T>& a, const MatrixBlock<const T>& b, const MatrixBlock<T>& c,
             bool set = false);

template <class T>
MatrixBlock<const T> constant(const MatrixBlock<T>& a) {
  return {a.data, a.rows, a.columns, a.row_stride, a.column_stride};
}

}  // namespace mx::kernels
