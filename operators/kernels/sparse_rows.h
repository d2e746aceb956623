// Vectorised inner loops of the sparse kernels. Used only by operators/kernels/sparse.cc.
#pragma once

#include <cstdint>

#include "operators/kernels/sparse.h"

namespace mx::kernels::detail {

/// `count` entries with the rows of `from` (`n` elements each, `pitch` apart) that they select.
template <class T, class I>
struct SparseRow {
  const T* values;
  const I* columns;
  int64_t count;
  const T* from;
  int64_t pitch, n;
};

/// out[j] = sum over k of values[k] * from[columns[k] * pitch + j].
void sparse_row_product(const SparseRow<float, int32_t>& row, float* out);
void sparse_row_product(const SparseRow<float, int64_t>& row, float* out);
void sparse_row_product(const SparseRow<double, int32_t>& row, double* out);
void sparse_row_product(const SparseRow<double, int64_t>& row, double* out);

/// out[columns[k] * pitch + j] += values[k] * from[j] for all k; `from` is one row.
void scatter_sparse_row(const SparseRow<float, int32_t>& row, float* out);
void scatter_sparse_row(const SparseRow<float, int64_t>& row, float* out);
void scatter_sparse_row(const SparseRow<double, int32_t>& row, double* out);
void scatter_sparse_row(const SparseRow<double, int64_t>& row, double* out);

/// out[k] = sum of left[j] * from[columns[k] * pitch + j] for all k; `values` is `left`, one row.
void sample_sparse_row(const SparseRow<float, int32_t>& row, float* out);
void sample_sparse_row(const SparseRow<float, int64_t>& row, float* out);
void sample_sparse_row(const SparseRow<double, int32_t>& row, double* out);
void sample_sparse_row(const SparseRow<double, int64_t>& row, double* out);

/// out[j] += from[j].
void add_row(const float* from, float* out, int64_t n);
void add_row(const double* from, double* out, int64_t n);

/// out[j] = reduction of x[i * n + j] over `count` rows i; count > 0.
void reduce_segment(SegmentReduce how, const float* x, int64_t count, int64_t n, float* out);
void reduce_segment(SegmentReduce how, const double* x, int64_t count, int64_t n, double* out);

/// out[i * n + j] = exp(x[i * n + j]) / sum of exp(x[k * n + j]) over `count` rows; count > 0.
void softmax_segment(const float* x, int64_t count, int64_t n, float* out);
void softmax_segment(const double* x, int64_t count, int64_t n, double* out);

}  // namespace mx::kernels::detail
