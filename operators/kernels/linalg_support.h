// What the kernels of linear algebra share. Internal.
#pragma once

#include <cstdint>
#include <vector>

#include "operators/kernels/bad_values.h"
#include "operators/kernels/lapack.h"
#include "operators/kernels/matrix_stack.h"

namespace mx::kernels::detail {

/// Throws NumericError if an item failed: its iteration did not converge.
void refuse_divergent(const FirstFailure& failure, const Shape& batch, const char* op);

template <class T>
void assign(const MatrixBlock<T>& to, const MatrixBlock<const T>& from) {
  for (int64_t i = 0; i < to.rows; ++i)
    for (int64_t j = 0; j < to.columns; ++j) to(i, j) = from(i, j);
}

/// Returns a matrix of contiguous rows in `memory`, which must not grow afterwards.
template <class T>
MatrixBlock<T> contiguous(std::vector<T>& memory, int64_t rows, int64_t columns) {
  memory.resize(static_cast<size_t>(rows * columns));
  return {memory.data(), rows, columns, columns, 1};
}

}  // namespace mx::kernels::detail
