#include "operators/matmul.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdlib>
#include <string_view>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "operators/cuda_kernels.h"
#include "operators/elementwise_binary.h"
#include "operators/kernels/gemm.h"
#include "operators/matmul_gradient.h"
#include "operators/matmul_plan.h"
#include "operators/temporary.h"

namespace mx {
namespace {

using detail::Converted;

// Number of multiplications up to which the calling thread computes a product itself; they take a few
// microseconds with the packing. Handing such a product to a worker and waiting costs a tenth of that, and a
// second thread would not make it faster.
constexpr int64_t kDirectProducts = 1 << 18;

std::atomic<bool>& tf32_flag() {
  static std::atomic<bool> allowed = [] {
    const char* const value = std::getenv("MX_TF32");
    return value != nullptr && std::string_view(value) == "1";
  }();
  return allowed;
}

// Returns the cost in multiplications. Computed in double, because broadcast operands may have more elements
// than int64_t can count. The factor 8 is for integers, whose kernel is not vectorized.
int64_t products(DType dtype, double batch, int64_t m, int64_t n, int64_t k) {
  const double count = (is_floating(dtype) ? 1. : 8.) * batch * static_cast<double>(m) *
                       static_cast<double>(n) * static_cast<double>(std::max<int64_t>(k, 1));
  return static_cast<int64_t>(std::min(count, 9e18));
}

void infer_matmul(InferContext& c) {
  c.output(detail::product_parts(c.shape(0), c.shape(1), c.name()).result(), promote(c.dtype(0), c.dtype(1)));
}

int64_t work_matmul(const InferContext& c) {
  const detail::ProductParts p = detail::product_parts(c.shape(0), c.shape(1), c.name());
  return products(c.output_dtype(0), static_cast<double>(p.batch.numel()), p.m, p.n, p.k);
}

void multiply(const Tensor& out, const Tensor& a, const Tensor& b, const kernels::GemmOptions& options = {}) {
  const detail::ProductPlan p = detail::plan_product(out, a, b);
  if (p.dim_count == 0) {
    kernels::gemm(a.dtype, p.m, p.n, p.k, p.a, p.b, p.c, p.c_row_stride, p.c_col_stride, options);
  } else {
    kernels::gemm_batched(a.dtype, p.batch(), p.m, p.n, p.k, p.a, p.b, p.c, p.c_row_stride, p.c_col_stride,
                          options);
  }
}

void run_matmul(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  multiply(out, *Converted(args.in[0], out.dtype), *Converted(args.in[1], out.dtype));
}

void infer_matmul_i32(InferContext& c) {
  const DType a = c.dtype(0), b = c.dtype(1);
  MX_CHECK(a == b && (a == i8 || a == u8), InvalidArgument,
           "[matmul_i32] expected two arrays of i8, or two of u8, got ", a, " and ", b);
  c.output(detail::product_parts(c.shape(0), c.shape(1), c.name()).result(), i32);
}

void run_matmul_i32(const KernelArgs& args) {
  multiply(args.out[0], args.in[0], args.in[1], {.i32_result = true});
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
    .kernel = {"matmul", run_matmul, cuda::matmul, kDirectProducts},
    .doc =
        "Matrix product of a (.., m, k) and b (.., k, n): shape (.., m, n). Leading dimensions broadcast; "
        "vectors are treated as in NumPy.",
    .family = "matmul",
    .inputs = {"a", "b"},
    .infer = infer_matmul,
    .gradient = detail::gradient_matmul,
    .gradient_uses = {.inputs = bit_set(0, 1), .crosswise = true},
    .work = work_matmul,
};

constexpr Operator kMatmulI32 = {
    .kernel = {"matmul_i32", run_matmul_i32, cuda::matmul_i32, kDirectProducts},
    .doc =
        "Matrix product of two arrays of i8, or of u8, with sums and results of i32. Shapes are those of "
        "matmul.",
    .family = "matmul",
    .inputs = {"a", "b"},
    .infer = infer_matmul_i32,
    .dtypes = {i8, u8},
    .work = work_matmul,
};

constexpr Operator kDot = {
    .kernel = {"dot", run_matmul, cuda::dot, kDirectProducts},
    .doc = "Inner product of two vectors of the same length.",
    .family = "matmul",
    .inputs = {"a", "b"},
    .infer = infer_dot,
    .gradient = detail::gradient_matmul,
    .gradient_uses = {.inputs = bit_set(0, 1), .crosswise = true},
    .work = work_matmul,
};

constexpr Operator kLinear = {
    .kernel = {"linear", run_linear, cuda::linear, kDirectProducts},
    .doc =
        "Affine map: x (.., in) times the transpose of weight (out, in), plus bias (out,), gives (.., out).",
    .family = "matmul",
    .inputs = {"x", "weight", "bias?"},
    .infer = infer_linear,
    .gradient = detail::gradient_linear,
    .gradient_uses = {.inputs = bit_set(0, 1), .crosswise = true},
    .work = work_linear,
};

constexpr Operator kAddmm = {
    .kernel = {"addmm", run_addmm, cuda::addmm, kDirectProducts},
    .doc = "Sum beta * c + alpha * matmul(a, b) for matrices a (m, k) and b (k, n); c broadcasts to (m, n).",
    .family = "matmul",
    .inputs = {"c", "a", "b"},
    .attrs = &kAttrType<AddmmAttrs>,
    .infer = infer_addmm,
    .gradient = detail::gradient_addmm,
    .gradient_uses = {.inputs = bit_set(1, 2), .crosswise = true},
    .work = work_addmm,
};

}  // namespace

namespace detail {
OperatorFamily family_matmul() { return {&kMatmul, &kMatmulI32, &kLinear, &kDot, &kAddmm}; }
}  // namespace detail

NDArray matmul(const Arg& a, const NDArray& b) { return call(kMatmul, {}, a, b); }
NDArray matmul_i32(const Arg& a, const NDArray& b) { return call(kMatmulI32, {}, a, b); }
NDArray linear(const Arg& x, const NDArray& weight) { return call(kLinear, {}, x, weight); }
NDArray linear(const Arg& x, const NDArray& weight, const NDArray& bias) {
  return call(kLinear, {}, x, weight, bias);
}
NDArray dot(const Arg& a, const NDArray& b) { return call(kDot, {}, a, b); }
NDArray outer(const Arg& a, const NDArray& b) try {
  MX_CHECK(a.array.rank() == 1 && b.rank() == 1, InvalidArgument, "[outer] expected two vectors, got shapes ",
           a.array.shape(), " and ", b.shape(), detail::called_at(a.where));
  const DType dtype = promote(a.array.dtype(), b.dtype());
  checked_numel({a.array.numel(), b.numel()}, size_of(dtype), "outer");
  return mul({a.array.expand_dims(1), a.where}, b.expand_dims(0));
} catch (const Error&) {
  detail::rethrow_at(a.where);
}
void set_tf32(bool allowed) { tf32_flag().store(allowed, std::memory_order_relaxed); }
bool tf32() { return tf32_flag().load(std::memory_order_relaxed); }

NDArray addmm(const Arg& c, const NDArray& a, const NDArray& b, RealArg alpha, RealArg beta) {
  return call(kAddmm, AddmmAttrs{alpha, beta}, c, a, b);
}

}  // namespace mx
