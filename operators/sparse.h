// Products of a sparse matrix in compressed sparse rows with a dense one. SparseCSR (operators/sparse_csr.h)
// holds the arrays of such a matrix; these functions take them one by one.
//
// Row i of the matrix A consists of the entries k from pointers[i] to pointers[i + 1] - 1, with the values
// values[k] in the columns columns[k]. The columns of a row may come in any order; repeated ones add up.
// `pointers` has one element more than A has rows. Both are i32 or i64.
//
// The functions throw InvalidArgument for shapes and types that do not fit. Wrong pointers or columns are
// found when the operation runs: waiting for the result then throws InvalidArgument, which names the first
// wrong number and its position. f16 and bf16 are computed in f32. Gradients flow to the values and to the
// dense operands.
#pragma once

#include <cstdint>

#include "operators/operator.h"

namespace mx {

/// Returns A dense (rows, n) for dense (width, n), or (rows,) for (width,).
NDArray csr_matmul(const Arg& values, const NDArray& columns, const NDArray& pointers, const NDArray& dense);
/// Returns A' dense (width, n) for dense (rows, n), where A has `width` columns; or (width,) for (rows,).
NDArray csr_matmul_transposed(const Arg& values, const NDArray& columns, const NDArray& pointers,
                              const NDArray& dense, IntArg width);
/// Returns the elements of left right' at the places of A's entries, (entries,): y[k] is the dot product of
/// the row of `left` (rows, n) and the row of `right` (width, n) that entry k belongs to.
NDArray csr_sample(const Arg& left, const NDArray& right, const NDArray& columns, const NDArray& pointers);

}  // namespace mx
