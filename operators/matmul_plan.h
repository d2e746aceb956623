// The product of two tensors as products of matrices, for the kernels of every device. Internal.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "ndarray/shape.h"
#include "ndarray/tensor.h"
#include "operators/kernels/gemm.h"

namespace mx::detail {

/// The sizes of a product: batch x (m, k) x (k, n).
struct ProductParts {
  Shape batch;  ///< the batch dimensions of both, broadcast
  int64_t m = 1, k = 0, n = 1;
  bool row = false, column = false;  ///< row: a is a vector; column: b is a vector

  Shape result() const {
    Shape shape = batch;
    if (!row) shape.push_back(m);
    if (!column) shape.push_back(n);
    return shape;
  }
};

/// Throws InvalidArgument, naming `op`, for shapes that cannot be multiplied.
ProductParts product_parts(const Shape& a, const Shape& b, const char* op);

/// The products that compute one tensor from two: C (m, n) = A (m, k) B (k, n) for every index of `batch`.
struct ProductPlan {
  int64_t m = 1, k = 0, n = 1;
  kernels::Matrix a, b;
  void* c = nullptr;
  int64_t c_row_stride = 0, c_col_stride = 1;
  std::array<kernels::BatchDim, kMaxRank> dims{};
  size_t dim_count = 0;

  std::span<const kernels::BatchDim> batch() const { return {dims.data(), dim_count}; }
};

/// Returns the products for tensors of one type. If a stack of matrices lies in memory like one matrix and is
/// multiplied by one matrix, the stack becomes one larger matrix. Precondition: `out` has the result's shape.
ProductPlan plan_product(const Tensor& out, const Tensor& a, const Tensor& b);

}  // namespace mx::detail
