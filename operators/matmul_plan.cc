#include "operators/matmul_plan.h"

#include <algorithm>

#include "engine/base/check.h"

namespace mx::detail {
namespace {

Shape without_matrix(const Shape& shape) {
  Shape result = shape;
  result.resize(std::max(shape.rank() - 2, 0));
  return result;
}

/// Returns the strides of an operand over the batch dimensions.
Strides batch_strides(const Tensor& operand, const Shape& batch) {
  Strides own = operand.strides;
  own.resize(std::max(operand.rank() - 2, 0));
  return broadcast_strides(without_matrix(operand.shape), own, batch);
}

}  // namespace

ProductParts product_parts(const Shape& a, const Shape& b, const char* op) {
  MX_CHECK(a.rank() >= 1 && b.rank() >= 1, InvalidArgument, "[", op,
           "] expected vectors, matrices or stacks of matrices, got shapes ", a, " and ", b);
  ProductParts p;
  p.row = a.rank() == 1;
  p.column = b.rank() == 1;
  p.k = a.back();
  if (!p.row) p.m = a[a.rank() - 2];
  if (!p.column) p.n = b.back();
  const int64_t rows = p.column ? b[0] : b[b.rank() - 2];
  MX_CHECK(p.k == rows, InvalidArgument, "[", op,
           "] expected the last dimension of the left operand to equal the ", p.column ? "" : "second to ",
           "last dimension of the right operand, got shapes ", a, " and ", b, " (sizes ", p.k, " and ", rows,
           ")");
  if (a.rank() > 2 || b.rank() > 2) p.batch = broadcast_shapes(without_matrix(a), without_matrix(b), op);
  return p;
}

ProductPlan plan_product(const Tensor& out, const Tensor& a, const Tensor& b) {
  const ProductParts parts = product_parts(a.shape, b.shape, "matmul");
  const int ra = a.rank(), rb = b.rank();
  ProductPlan p;
  p.m = parts.m;
  p.k = parts.k;
  p.n = parts.n;
  p.a = {a.data, parts.row ? 0 : a.strides[ra - 2], a.strides[ra - 1]};
  p.b = {b.data, parts.column ? b.strides[0] : b.strides[rb - 2], parts.column ? 1 : b.strides[rb - 1]};
  p.c = out.data;
  // The strides of the result's rows and columns; the result has no such dimension for a vector.
  int last = out.rank();
  p.c_col_stride = parts.column ? 1 : out.strides[--last];
  p.c_row_stride = parts.row ? p.n : out.strides[--last];
  if (parts.batch.rank() > 0) {
    const Strides as = batch_strides(a, parts.batch), bs = batch_strides(b, parts.batch);
    for (int i = 0; i < parts.batch.rank(); ++i)
      if (parts.batch[i] != 1) p.dims[p.dim_count++] = {parts.batch[i], as[i], bs[i], out.strides[i]};
  }
  // If the matrices of a stack are contiguous like rows and are multiplied by one matrix, the stack is
  // treated as one larger matrix.
  while (p.dim_count > 0 && !parts.row) {
    const kernels::BatchDim& dim = p.dims[p.dim_count - 1];
    if (p.m == 1) {
      p.a.row_stride = dim.a_stride;
      p.c_row_stride = dim.c_stride;
    }
    const bool follow =
        p.m == 1 || (dim.a_stride == p.m * p.a.row_stride && dim.c_stride == p.m * p.c_row_stride);
    if (dim.b_stride != 0 || !follow) break;
    p.m *= dim.size;
    --p.dim_count;
  }
  return p;
}

}  // namespace mx::detail
