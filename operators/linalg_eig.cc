// Eigenvalues and eigenvectors of matrices without symmetry, which are complex: pairs in the last dimension.
//
// Source of the gradient: the derivative of a v = v diag(w), as in M. Giles, "An extended collection of
// matrix derivative results for forward and reverse mode automatic differentiation" (Oxford, 2008), for
// complex v of norm 1. Products of complex matrices are products of real ones of twice the size: re + i im
// stands for ((re, -im), (im, re)), and the conjugate transposed for the transposed one.
#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "operators/compare.h"
#include "operators/cuda_kernels.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/kernels/linalg.h"
#include "operators/linalg.h"
#include "operators/linalg_records.h"
#include "operators/matmul.h"
#include "operators/reduce.h"
#include "operators/shape_ops.h"

namespace mx {
namespace {

constexpr int64_t kDirectEig = 1;  // only matrices without elements are computed directly

struct ComplexArray {
  NDArray re, im;
};

ComplexArray parts(const NDArray& pairs) { return {pairs.select(-1, 0), pairs.select(-1, 1)}; }

NDArray turned_matrix(const NDArray& x) { return x.swap_axes(-2, -1); }

/// The product of the conjugate transposed x and y.
ComplexArray conjugate_product(const ComplexArray& x, const ComplexArray& y) {
  const NDArray re = turned_matrix(x.re), im = turned_matrix(x.im);
  return {matmul(re, y.re) + matmul(im, y.im), matmul(re, y.im) - matmul(im, y.re)};
}

NDArray as_real_matrix(const ComplexArray& x) {
  return concat({concat({x.re, -x.im}, -1), concat({x.im, x.re}, -1)}, -2);
}

/// 1 where v has the leading element of each column, and 0 elsewhere. The kernel leads with the first element
/// of at least half the largest size, and writes it as a positive real number. The sizes that are computed
/// here again differ from the kernel's in the last places, so the comparison has room for that.
NDArray leading_elements(const ComplexArray& v) {
  const NDArray re = v.re.detach(), im = v.im.detach(), squares = square(re) + square(im);
  const NDArray large =
      logical_and(logical_and(im == 0, re > 0), squares >= max(squares, -2, true) * 0.2499).to(i32);
  const int64_t n = v.re.size(-1);
  return (arange(0, n, 1, i64, v.re.context()).expand_dims(1) == argmax(large, -2, true)).to(v.re.dtype());
}

/// Scales each eigenvector and turns it as the operator does. Adds to the gradient G of v what the turning
/// contributes: with it, the product of each column's conjugate and G is real.
ComplexArray with_turning(const ComplexArray& v, const ComplexArray& head) {
  const NDArray lead = leading_elements(v);
  const NDArray turn = sum(head.re * v.im - head.im * v.re, -2, true);
  const NDArray size = sum(lead * v.re, -2, true);
  return {head.re, head.im + lead * (turn / size)};
}

/// The gradient with respect to a; `head_v` may be undefined.
NDArray eig_gradient(const NDArray& w, const NDArray& eigenvectors, const NDArray& head_w,
                     const NDArray& head_v) {
  const int64_t n = eigenvectors.size(-2);
  const ComplexArray values = parts(w), v = parts(eigenvectors), of_w = parts(head_w);
  const NDArray one = eye(n, n, w.dtype(), w.context());
  ComplexArray middle{of_w.re.expand_dims(-1) * one, of_w.im.expand_dims(-1) * one};
  if (head_v.defined()) {
    const ComplexArray head = with_turning(v, parts(head_v));
    const ComplexArray product = conjugate_product(v, head), square_of_v = conjugate_product(v, v);
    const NDArray diagonal = sum(product.re * one, -2, true);
    const NDArray re = product.re - square_of_v.re * diagonal, im = product.im - square_of_v.im * diagonal;
    // Divided by the conjugates of the differences of eigenvalues, off the diagonal.
    const NDArray gap_re = values.re.expand_dims(-2) - values.re.expand_dims(-1),
                  gap_im = values.im.expand_dims(-2) - values.im.expand_dims(-1);
    const NDArray scale = (1 - one) / (square(gap_re) + square(gap_im) + one);
    middle.re = middle.re + (re * gap_re - im * gap_im) * scale;
    middle.im = middle.im + (re * gap_im + im * gap_re) * scale;
  }
  const NDArray turned_v = turned_matrix(as_real_matrix(v));
  const NDArray all = linalg::solve(turned_v, matmul(as_real_matrix(middle), turned_v));
  return all.slice(-2, {0, n}).slice(-1, {0, n});
}

void gradient_eig(GradientContext& g) {
  if (g.output(0).numel() == 0)
    return g.set(0, zeros(g.input_shape(0), g.output(0).dtype(), g.output(0).context()));
  g.set(0, eig_gradient(g.output(0), g.output(1), g.head_or_zeros(0), g.head(1)));
}

void gradient_eigvals(GradientContext& g) {
  const NDArray& a = g.input(0);
  if (a.numel() == 0) return g.set(0, zeros(a.shape(), a.dtype(), a.context()));
  const auto [w, v] = linalg::eig(a);
  g.set(0, eig_gradient(w, v, g.head(), {}));
}

void infer_eigvals(InferContext& c) {
  detail::check_matrices(c, 0, true);
  Shape shape = c.shape(0);
  shape[shape.rank() - 1] = 2;
  c.output(shape, c.dtype(0));
}

void infer_eig(InferContext& c) {
  infer_eigvals(c);
  Shape shape = c.shape(0);
  shape.push_back(2);
  c.output(shape, c.dtype(0));
}

void run_eig(const KernelArgs& args) { kernels::eig(args.out[0], &args.out[1], args.in[0], "linalg_eig"); }
void run_eigvals(const KernelArgs& args) { kernels::eig(args.out[0], nullptr, args.in[0], "linalg_eigvals"); }

int64_t work_of_eig(const InferContext& c) {
  return static_cast<int64_t>(std::min(
      30 * static_cast<double>(c.shape(0).numel()) * std::max(1., static_cast<double>(c.shape(0)[-1])),
      9e18));
}

constexpr detail::RecordList<DType, kDTypes> kRealTypes = {f32, f64};

constexpr Operator kEig = {
    .kernel = {"linalg_eig", run_eig, cuda::linalg_eig, kDirectEig},
    .doc =
        "Complex eigenvalues w (.., n, 2), in ascending order of real and then of imaginary parts, and "
        "eigenvectors, in the columns of v (.., n, n, 2), of real matrices (.., n, n). The leading element "
        "of "
        "each vector is real and positive: the first one with at least half of the largest magnitude.",
    .family = "linalg",
    .inputs = {"a"},
    .outputs = {"w", "v"},
    .infer = infer_eig,
    .gradient = gradient_eig,
    .gradient_uses = {.outputs = bit_set(0, 1)},
    .dtypes = kRealTypes,
    .work = work_of_eig,
};

constexpr Operator kEigvals = {
    .kernel = {"linalg_eigvals", run_eigvals, cuda::linalg_eigvals, kDirectEig},
    .doc =
        "Complex eigenvalues (.., n, 2) of real matrices (.., n, n), in ascending order of real and then of "
        "imaginary parts.",
    .family = "linalg",
    .inputs = {"a"},
    .outputs = {"w"},
    .infer = infer_eigvals,
    .gradient = gradient_eigvals,
    .gradient_uses = {.inputs = bit_set(0)},
    .dtypes = kRealTypes,
    .work = work_of_eig,
};

}  // namespace

namespace detail {
OperatorFamily family_linalg_eig() { return {&kEig, &kEigvals}; }
}  // namespace detail

namespace linalg {

EigResult eig(const Arg& a) {
  std::vector<NDArray> y = call(kEig, {}, std::span(&a.array, 1), a.where);
  return {std::move(y[0]), std::move(y[1])};
}

NDArray eigvals(const Arg& a) { return call(kEigvals, {}, a); }

}  // namespace linalg
}  // namespace mx
