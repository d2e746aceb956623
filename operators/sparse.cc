#include "operators/sparse.h"

#include <algorithm>

#include "engine/base/check.h"
#include "operators/cuda_kernels.h"
#include "operators/indexing.h"
#include "operators/kernels/sparse.h"
#include "operators/sparse_attrs.h"

namespace mx {
namespace {

using detail::CsrAttrs;

constexpr int64_t kDirectElements = 1024;

/// Checks columns, input `first`, and pointers, the next one. Returns the number of rows.
int64_t check_pattern(const InferContext& c, size_t first) {
  const Shape &columns = c.shape(first), &pointers = c.shape(first + 1);
  detail::check_index_type(c, first);
  detail::check_index_type(c, first + 1);
  MX_CHECK(columns.rank() == 1 && pointers.rank() == 1 && pointers[0] >= 1, InvalidArgument, "[", c.name(),
           "] expected columns (entries,) and pointers (rows + 1,), got shapes ", columns, " and ", pointers);
  return pointers[0] - 1;
}

void infer_matmul(InferContext& c) {
  const auto& attrs = c.attr<CsrAttrs>();
  const int64_t rows = check_pattern(c, 1);
  const Shape &values = c.shape(0), &dense = c.shape(3);
  MX_CHECK(is_floating(c.dtype(0)) && c.dtype(3) == c.dtype(0), InvalidArgument, "[", c.name(),
           "] expected values and a dense matrix of one floating-point type, got ", c.dtype(0), " and ",
           c.dtype(3));
  MX_CHECK(values == c.shape(1), InvalidArgument, "[", c.name(), "] expected a value for each of ",
           c.shape(1)[0], " columns, got values of shape ", values);
  MX_CHECK(attrs.width >= 0, InvalidArgument, "[", c.name(), "] expected a width of 0 or more, got ",
           attrs.width);
  MX_CHECK(
      dense.rank() == 2 && (!attrs.transposed || dense[0] == rows), InvalidArgument, "[", c.name(),
      "] expected a dense matrix of rank 2, or a vector",
      attrs.transposed ? detail::concat(", with ", rows, " rows, one for each row of the sparse matrix") : "",
      ", got shape ", dense);
  c.output({attrs.transposed ? attrs.width : rows, dense[1]}, c.dtype(0));
}

void run_matmul(const KernelArgs& args) {
  const auto& attrs = args.attr<CsrAttrs>();
  const Tensor& dense = args.in[3];
  if (attrs.transposed)
    kernels::csr_matmul_transposed(args, args.out[0], args.in[0], {args.in[1], args.in[2], attrs.width},
                                   dense);
  else
    kernels::csr_matmul(args, args.out[0], args.in[0], {args.in[1], args.in[2], dense.shape[0]}, dense);
}

int64_t work_matmul(const InferContext& c) {
  return c.shape(0).numel() * (c.shape(3)[1] + 1) + c.output_shape(0).numel() + c.shape(2).numel();
}

NDArray multiply(const Arg& values, const NDArray& columns, const NDArray& pointers, const NDArray& dense,
                 const CsrAttrs& attrs);

void gradient_matmul(GradientContext& g) {
  const auto& attrs = g.attr<CsrAttrs>();
  const NDArray &columns = g.input(1), &pointers = g.input(2), &head = g.head();
  if (g.wanted(0)) {
    const NDArray& dense = g.input(3);
    g.set(0, attrs.transposed ? csr_sample(dense, head, columns, pointers)
                              : csr_sample(head, dense, columns, pointers));
  }
  if (g.wanted(3))
    g.set(3, multiply(g.input(0), columns, pointers, head,
                      {!attrs.transposed, attrs.transposed ? 0 : g.input_shape(3)[0]}));
}

void infer_sample(InferContext& c) {
  const int64_t rows = check_pattern(c, 2);
  const Shape &left = c.shape(0), &right = c.shape(1);
  MX_CHECK(is_floating(c.dtype(0)) && c.dtype(1) == c.dtype(0), InvalidArgument, "[", c.name(),
           "] expected matrices of one floating-point type, got ", c.dtype(0), " and ", c.dtype(1));
  MX_CHECK(left.rank() == 2 && right.rank() == 2 && left[0] == rows && left[1] == right[1], InvalidArgument,
           "[", c.name(), "] expected left (", rows, ", n) and right (columns, n), got shapes ", left,
           " and ", right);
  c.output(c.shape(2), c.dtype(0));
}

void run_sample(const KernelArgs& args) {
  kernels::csr_sample(args, args.out[0], args.in[0], args.in[1],
                      {args.in[2], args.in[3], args.in[1].shape[0]});
}

int64_t work_sample(const InferContext& c) {
  return c.shape(2).numel() * (c.shape(0)[1] + 1) + c.shape(3).numel();
}

void gradient_sample(GradientContext& g) {
  const NDArray &columns = g.input(2), &pointers = g.input(3), &head = g.head();
  if (g.wanted(0)) g.set(0, multiply(head, columns, pointers, g.input(1), {}));
  if (g.wanted(1)) g.set(1, multiply(head, columns, pointers, g.input(0), {true, g.input_shape(1)[0]}));
}

constexpr detail::RecordList<DType, kDTypes> kFloating = {f32, f64, f16, bf16};

constexpr Operator kMatmul = {
    .kernel = {"csr_matmul", run_matmul, cuda::csr_matmul, kDirectElements},
    .doc = "Product of a matrix in compressed sparse rows, or of its transpose, and a dense matrix.",
    .family = "sparse",
    .inputs = {"values", "columns", "pointers", "dense"},
    .attrs = &kAttrType<CsrAttrs>,
    .infer = infer_matmul,
    .gradient = gradient_matmul,
    .gradient_uses = {.inputs = bit_set(0, 1, 2, 3), .crosswise = true},
    .dtypes = kFloating,
    .work = work_matmul,
    .sized_by_values = true,
};

constexpr Operator kSample = {
    .kernel = {"csr_sample", run_sample, cuda::csr_sample, kDirectElements},
    .doc =
        "Elements of left right' at the places of the entries of a matrix in compressed sparse rows: the dot "
        "product of a row of `left` and a row of `right` for each entry.",
    .family = "sparse",
    .inputs = {"left", "right", "columns", "pointers"},
    .attrs = nullptr,
    .infer = infer_sample,
    .gradient = gradient_sample,
    .gradient_uses = {.inputs = bit_set(0, 1, 2, 3), .crosswise = true},
    .dtypes = kFloating,
    .work = work_sample,
    .sized_by_values = true,
};

NDArray multiply(const Arg& values, const NDArray& columns, const NDArray& pointers, const NDArray& dense,
                 const CsrAttrs& attrs) {
  const NDArray inputs[] = {values.array, detail::as_indices(columns, "csr_matmul", values.where),
                            detail::as_indices(pointers, "csr_matmul", values.where), dense};
  return call(kMatmul, attrs, inputs, values.where)[0];
}

/// The product with a vector is that with a matrix of one column.
NDArray multiply_any(const Arg& values, const NDArray& columns, const NDArray& pointers, const NDArray& dense,
                     const CsrAttrs& attrs) {
  if (dense.rank() != 1) return multiply(values, columns, pointers, dense, attrs);
  return multiply(values, columns, pointers, dense.expand_dims(1), attrs).squeeze(1);
}

}  // namespace

namespace detail {
OperatorFamily family_sparse() { return {&kMatmul, &kSample}; }
}  // namespace detail

NDArray csr_matmul(const Arg& values, const NDArray& columns, const NDArray& pointers, const NDArray& dense) {
  return multiply_any(values, columns, pointers, dense, {});
}

NDArray csr_matmul_transposed(const Arg& values, const NDArray& columns, const NDArray& pointers,
                              const NDArray& dense, IntArg width) {
  return multiply_any(values, columns, pointers, dense, {true, width});
}

NDArray csr_sample(const Arg& left, const NDArray& right, const NDArray& columns, const NDArray& pointers) {
  const NDArray inputs[] = {left.array, right, detail::as_indices(columns, "csr_sample", left.where),
                            detail::as_indices(pointers, "csr_sample", left.where)};
  return call(kSample, {}, inputs, left.where)[0];
}

}  // namespace mx
