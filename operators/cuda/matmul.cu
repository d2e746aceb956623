// matmul, matmul_i32, dot, linear and addmm on a GPU.
#include "operators/matmul.h"

#include "operators/cuda/blas.h"
#include "operators/cuda/operand.h"
#include "operators/cuda_kernels.h"
#include "operators/matmul_plan.h"

namespace mx::cuda {
namespace {

/// Returns true if cuBLASLt can read the matrices of a stack, or the vector, where they are.
bool is_readable(const Tensor& t) {
  const int r = t.rank();
  if (!is_floating(t.dtype)) return true;  // the plain kernel reads any strides
  if (r == 1) return t.shape[0] <= 1 || t.strides[0] > 0;
  return is_blas_matrix(t.shape[r - 2], t.shape[r - 1], t.strides[r - 2], t.strides[r - 1]);
}

/// Returns true if cuBLASLt can write the result where it is.
bool is_writable(const Tensor& out, const detail::ProductPlan& p) {
  return !is_floating(out.dtype) ||
         ((p.n == 1 || p.c_col_stride == 1) && (p.m == 1 || p.c_row_stride >= p.n));
}

struct Factors {
  double alpha = 1, beta = 0;
  const Tensor* bias = nullptr;
};

/// out = alpha * a b + beta * out + bias.
void multiply_tensors(const KernelArgs& args, const Tensor& out, const Tensor& a, const Tensor& b,
                      const Factors& factors = {}) {
  if (out.numel() == 0) return;
  const Operand left(args, a, out.dtype, !is_readable(a)), right(args, b, out.dtype, !is_readable(b));
  const detail::ProductPlan plan = detail::plan_product(out, *left, *right);
  if (!is_writable(out, plan)) {
    const Operand result(args, out.dtype, out.shape);
    if (factors.beta != 0) copy_elements(stream_of(args), *result, out);
    multiply_tensors(args, *result, *left, *right, factors);
    return copy_elements(stream_of(args), out, *result);
  }
  Product p;
  p.in = p.out = out.dtype;
  p.m = plan.m;
  p.n = plan.n;
  p.k = plan.k;
  p.a = plan.a;
  p.b = plan.b;
  p.c = plan.c;
  p.c_row_stride = plan.c_row_stride;
  p.c_col_stride = plan.c_col_stride;
  p.batch = plan.batch();
  p.alpha = factors.alpha;
  p.beta = factors.beta;
  if (factors.bias != nullptr) {
    p.bias = factors.bias->data;
    p.bias_stride = factors.bias->strides[0];
  }
  multiply(args, p);
}

}  // namespace

void matmul(const KernelArgs& args) { multiply_tensors(args, args.out[0], args.in[0], args.in[1]); }

/// The operands are converted to the type of the result.
void matmul_i32(const KernelArgs& args) { matmul(args); }

void dot(const KernelArgs& args) { matmul(args); }

void linear(const KernelArgs& args) {
  const Tensor &out = args.out[0], &w = args.in[1];
  const Tensor turned{w.data, w.dtype, {w.shape[1], w.shape[0]}, {w.strides[1], w.strides[0]}};
  if (args.in.size() < 3) return multiply_tensors(args, out, args.in[0], turned);
  const Operand bias(args, args.in[2], out.dtype);
  multiply_tensors(args, out, args.in[0], turned, {.bias = &*bias});
}

void addmm(const KernelArgs& args) {
  const auto& attrs = args.attr<AddmmAttrs>();
  const Tensor &out = args.out[0], &c = args.in[0];
  // With a beta of 0 C is not read.
  if (attrs.beta != 0) copy_elements(stream_of(args), out, c.broadcast(out.shape));
  multiply_tensors(args, out, args.in[1], args.in[2], {.alpha = attrs.alpha, .beta = attrs.beta});
}

}  // namespace mx::cuda
