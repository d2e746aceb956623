#include "operators/matmul.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "operators/elementwise_binary.h"
#include "operators/kernels/gemm.h"
#include "operators/matmul_gradient.h"
#include "operators/temporary.h"

namespace mx {
namespace {

using detail::Converted;

// Number of multiplications up to which the calling thread computes a product itself; they take a few
// microseconds with the packing. Handing such a product to a worker and waiting costs a tenth of that, and a
// second thread would not make it faster.
constexpr int64_t kDirectProducts = 1 << 18;

/// The sizes of a product: batch x (m, k) x (k, n).
struct Parts {
  Shape batch;  // the batch dimensions of both, broadcast
  int64_t m = 1, k = 0, n = 1;
  bool row = false, column = false;  // row: a is a vector; column: b is a vector

  Shape result() const {
    Shape shape = batch;
    if (!row) shape.push_back(m);
    if (!column) shape.push_back(n);
    return shape;
  }
};

Shape without_matrix(const Shape& shape) {
  Shape result = shape;
  result.resize(std::max(shape.rank() - 2, 0));
  return result;
}

Parts take_apart(const Shape& a, const Shape& b, const char* op) {
  MX_CHECK(a.rank() >= 1 && b.rank() >= 1, InvalidArgument, "[", op,
           "] expected vectors, matrices or stacks of matrices, got shapes ", a, " and ", b);
  Parts p;
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

// Returns the cost in multiplications. Computed in double, because broadcast operands may have more elements
// than int64_t can count. The factor 8 is for integers, whose kernel is not vectorized.
int64_t products(DType dtype, double batch, int64_t m, int64_t n, int64_t k) {
  const double count = (is_floating(dtype) ? 1. : 8.) * batch * static_cast<double>(m) *
                       static_cast<double>(n) * static_cast<double>(std::max<int64_t>(k, 1));
  return static_cast<int64_t>(std::min(count, 9e18));
}

void infer_matmul(InferContext& c) {
  c.output(take_apart(c.shape(0), c.shape(1), c.name()).result(), promote(c.dtype(0), c.dtype(1)));
}

int64_t work_matmul(const InferContext& c) {
  const Parts p = take_apart(c.shape(0), c.shape(1), c.name());
  return products(c.output_dtype(0), static_cast<double>(p.batch.numel()), p.m, p.n, p.k);
}

/// Returns the strides of an operand over the batch dimensions.
Strides batch_strides(const Tensor& operand, const Shape& batch) {
  Strides own = operand.strides;
  own.resize(std::max(operand.rank() - 2, 0));
  return broadcast_strides(without_matrix(operand.shape), own, batch);
}

void multiply(const Tensor& out, const Tensor& a, const Tensor& b, const kernels::GemmOptions& options = {}) {
  Parts p = take_apart(a.shape, b.shape, "matmul");
  const int ra = a.rank(), rb = b.rank();
  kernels::Matrix left{a.data, p.row ? 0 : a.strides[ra - 2], a.strides[ra - 1]};
  const kernels::Matrix right{b.data, p.column ? b.strides[0] : b.strides[rb - 2],
                              p.column ? 1 : b.strides[rb - 1]};
  // The strides of the result's rows and columns; the result has no such dimension for a vector.
  int last = out.rank();
  const int64_t c_col = p.column ? 1 : out.strides[--last];
  int64_t c_row = p.row ? p.n : out.strides[--last];
  kernels::BatchDim dims[kMaxRank];
  size_t count = 0;
  if (p.batch.rank() > 0) {
    const Strides as = batch_strides(a, p.batch), bs = batch_strides(b, p.batch);
    for (int i = 0; i < p.batch.rank(); ++i)
      if (p.batch[i] != 1) dims[count++] = {p.batch[i], as[i], bs[i], out.strides[i]};
  }
  // If the matrices of a stack are contiguous like rows and are multiplied by one matrix, the stack is
  // treated as one larger matrix.
  while (count > 0 && !p.row) {
    const kernels::BatchDim& dim = dims[count - 1];
    if (p.m == 1) {
      left.row_stride = dim.a_stride;
      c_row = dim.c_stride;
    }
    const bool follow = p.m == 1 || (dim.a_stride == p.m * left.row_stride && dim.c_stride == p.m * c_row);
    if (dim.b_stride != 0 || !follow) break;
    p.m *= dim.size;
    --count;
  }
  if (count == 0) {
    kernels::gemm(out.dtype, p.m, p.n, p.k, left, right, out.data, c_row, c_col, options);
  } else {
    kernels::gemm_batched(out.dtype, {dims, count}, p.m, p.n, p.k, left, right, out.data, c_row, c_col,
                          options);
  }
}

void run_matmul(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  multiply(out, *Converted(args.in[0], out.dtype), *Converted(args.in[1], out.dtype));
}

void infer_dot(InferContext& c) {
  MX_CHECK(c.shape(0).rank() == 1 && c.shape(0) == c.shape(1), InvalidArgument,
           "[dot] expected two vectors of the same length, got shapes ", c.shape(0), " and ", c.shape(1));
  c.output({}, promote(c.dtype(0), c.dtype(1)));
}

void infer_linear(InferContext& c) {
  const Shape &x = c.shape(0), &weight = c.shape(1);
  MX_CHECK(x.rank() >= 1 && weight.rank() == 2 && x.back() == weight[1], InvalidArgument,
           "[linear] expected x (..., in) and a weight (out, in), got shapes ", x, " and ", weight);
  DType dtype = promote(c.dtype(0), c.dtype(1));
  if (c.inputs() == 3) {
    MX_CHECK(c.shape(2) == Shape{weight[0]}, InvalidArgument, "[linear] expected a bias of shape ",
             Shape{weight[0]}, " for a weight of shape ", weight, ", got ", c.shape(2));
    dtype = promote(dtype, c.dtype(2));
  }
  Shape result = x;
  result[x.rank() - 1] = weight[0];
  c.output(result, dtype);
}

int64_t work_linear(const InferContext& c) {
  Shape rows = c.shape(0);
  const int64_t in = rows.back();
  rows.erase(rows.rank() - 1);
  return products(c.output_dtype(0), static_cast<double>(rows.numel()), 1, c.shape(1)[0], in);
}

void run_linear(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  const Converted x(args.in[0], out.dtype), weight(args.in[1], out.dtype);
  const Tensor turned{weight->data,
                      out.dtype,
                      {weight->shape[1], weight->shape[0]},
                      {weight->strides[1], weight->strides[0]}};
  if (args.in.size() < 3) return multiply(out, *x, turned);
  const Converted bias(args.in[2], out.dtype);
  multiply(out, *x, turned, {.bias = bias->data, .bias_stride = bias->strides[0]});
}

void infer_addmm(InferContext& c) {
  const Shape &a = c.shape(1), &b = c.shape(2);
  MX_CHECK(a.rank() == 2 && b.rank() == 2 && a[1] == b[0], InvalidArgument,
           "[addmm] expected matrices (m, k) and (k, n), got shapes ", a, " and ", b);
  const Shape result{a[0], b[1]};
  MX_CHECK(broadcast_shapes(c.shape(0), result, c.name()) == result, InvalidArgument,
           "[addmm] expected a c that broadcasts to ", result, ", got ", c.shape(0));
  c.output(result, promote(c.dtype(0), promote(c.dtype(1), c.dtype(2))));
}

int64_t work_addmm(const InferContext& c) {
  return products(c.output_dtype(0), 1, c.shape(1)[0], c.shape(2)[1], c.shape(1)[1]);
}

void run_addmm(const KernelArgs& args) {
  const AddmmAttrs& attrs = args.attr<AddmmAttrs>();
  const Tensor &out = args.out[0], &c = args.in[0];
  // With beta = 0 gemm does not read C.
  if (attrs.beta != 0) kernels::copy(out, c.broadcast(out.shape));
  multiply(out, *Converted(args.in[1], out.dtype), *Converted(args.in[2], out.dtype),
           {.alpha = attrs.alpha, .beta = attrs.beta});
}

constexpr Operator kMatmul = {
    .kernel = {"matmul", run_matmul, nullptr, kDirectProducts},
    .doc =
        "Matrix product of a (.., m, k) and b (.., k, n): shape (.., m, n). Leading dimensions broadcast; "
        "vectors are treated as in NumPy.",
    .family = "matmul",
    .inputs = {"a", "b"},
    .infer = infer_matmul,
    .gradient = detail::gradient_matmul,
    .gradient_uses = {.inputs = 3, .crosswise = true},
    .work = work_matmul,
};

constexpr Operator kDot = {
    .kernel = {"dot", run_matmul, nullptr, kDirectProducts},
    .doc = "Inner product of two vectors of the same length.",
    .family = "matmul",
    .inputs = {"a", "b"},
    .infer = infer_dot,
    .gradient = detail::gradient_matmul,
    .gradient_uses = {.inputs = 3, .crosswise = true},
    .work = work_matmul,
};

constexpr Operator kLinear = {
    .kernel = {"linear", run_linear, nullptr, kDirectProducts},
    .doc =
        "Affine map: x (.., in) times the transpose of weight (out, in), plus bias (out,), gives (.., out).",
    .family = "matmul",
    .inputs = {"x", "weight", "bias?"},
    .infer = infer_linear,
    .gradient = detail::gradient_linear,
    .gradient_uses = {.inputs = 3, .crosswise = true},
    .work = work_linear,
};

constexpr Operator kAddmm = {
    .kernel = {"addmm", run_addmm, nullptr, kDirectProducts},
    .doc = "Sum beta * c + alpha * matmul(a, b) for matrices a (m, k) and b (k, n); c broadcasts to (m, n).",
    .family = "matmul",
    .inputs = {"c", "a", "b"},
    .attrs = &kAttrType<AddmmAttrs>,
    .infer = infer_addmm,
    .gradient = detail::gradient_addmm,
    .gradient_uses = {.inputs = 6, .crosswise = true},
    .work = work_addmm,
};

}  // namespace

namespace detail {
OperatorFamily family_matmul() { return {&kMatmul, &kLinear, &kDot, &kAddmm}; }
}  // namespace detail

NDArray matmul(const Arg& a, const NDArray& b) { return call(kMatmul, {}, a, b); }
NDArray linear(const Arg& x, const NDArray& weight) { return call(kLinear, {}, x, weight); }
NDArray linear(const Arg& x, const NDArray& weight, const NDArray& bias) {
  return call(kLinear, {}, x, weight, bias);
}
NDArray dot(const Arg& a, const NDArray& b) { return call(kDot, {}, a, b); }
NDArray outer(const Arg& a, const NDArray& b) {
  MX_CHECK(a.array.rank() == 1 && b.rank() == 1, InvalidArgument, "[outer] expected two vectors, got shapes ",
           a.array.shape(), " and ", b.shape(), " (called at ", a.where.file_name(), ':', a.where.line(),
           ')');
  const DType dtype = promote(a.array.dtype(), b.dtype());
  checked_numel({a.array.numel(), b.numel()}, size_of(dtype), "outer");
  return mul({a.array.expand_dims(1), a.where}, b.expand_dims(0));
}
NDArray addmm(const Arg& c, const NDArray& a, const NDArray& b, RealArg alpha, RealArg beta) {
  return call(kAddmm, AddmmAttrs{alpha, beta}, c, a, b);
}

}  // namespace mx
