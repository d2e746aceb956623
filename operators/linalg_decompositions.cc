// The records of orthogonal decompositions, of what is computed from singular values, and of the exponential.
#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "operators/cuda_kernels.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/kernels/linalg.h"
#include "operators/linalg.h"
#include "operators/linalg_gradient.h"
#include "operators/linalg_records.h"
#include "operators/matmul.h"
#include "operators/reduce.h"
#include "operators/temporary.h"

namespace mx {
namespace {

using detail::check_matrices;
using detail::QrAttrs;
using detail::RankAttrs;
using detail::SvdAttrs;
using detail::SymmetricAttrs;

// A decomposition of the smallest matrix already takes longer than a direct call may; only empty ones are
// direct.
constexpr int64_t kDirectWork = 1;

/// The first dimensions of a stack, followed by those of one item.
Shape stacked(const Shape& stack, std::initializer_list<int64_t> item) {
  Shape shape = stack;
  shape.resize(stack.rank() - 2);
  for (int64_t size : item) shape.push_back(size);
  return shape;
}

int64_t work_of_svd(const InferContext& c) {
  const Shape& a = c.shape(0);
  const auto items = static_cast<double>(stacked(a, {}).numel()), m = static_cast<double>(a[-2]),
             n = static_cast<double>(a[-1]);
  return static_cast<int64_t>(std::min(10 * items * m * n * std::max(1., std::min(m, n)), 9e18));
}

void infer_qr(InferContext& c) {
  check_matrices(c, 0, false);
  const Shape& a = c.shape(0);
  const int64_t m = a[-2], n = a[-1], k = c.attr<QrAttrs>().complete ? m : std::min(m, n);
  c.output(stacked(a, {m, k}), c.dtype(0));
  c.output(stacked(a, {k, n}), c.dtype(0));
}

void infer_svd(InferContext& c) {
  check_matrices(c, 0, false);
  const bool full = c.attr<SvdAttrs>().full_matrices;
  const Shape& a = c.shape(0);
  const int64_t m = a[-2], n = a[-1], k = std::min(m, n);
  c.output(stacked(a, {m, full ? m : k}), c.dtype(0));
  c.output(stacked(a, {k}), c.dtype(0));
  c.output(stacked(a, {full ? n : k, n}), c.dtype(0));
}

void infer_svdvals(InferContext& c) {
  check_matrices(c, 0, false);
  c.output(stacked(c.shape(0), {std::min(c.shape(0)[-2], c.shape(0)[-1])}), c.dtype(0));
}

void infer_eigvalsh(InferContext& c) {
  check_matrices(c, 0, true);
  c.output(stacked(c.shape(0), {c.shape(0)[-1]}), c.dtype(0));
}

void infer_eigh(InferContext& c) {
  infer_eigvalsh(c);
  c.output(c.shape(0), c.dtype(0));
}

void infer_pinv(InferContext& c) {
  check_matrices(c, 0, false);
  c.output(stacked(c.shape(0), {c.shape(0)[-1], c.shape(0)[-2]}), c.dtype(0));
}

void infer_lstsq(InferContext& c) {
  check_matrices(c, 0, false);
  check_matrices(c, 1, false);
  const Shape &a = c.shape(0), &b = c.shape(1);
  MX_CHECK(a[-2] == b[-2], InvalidArgument, "[", c.name(),
           "] expected a (.., m, n) and b (.., m, k), got shapes ", a, " and ", b);
  Shape stack = broadcast_shapes(stacked(a, {}), stacked(b, {}), c.name());
  const DType dtype = promote(c.dtype(0), c.dtype(1));
  const auto with = [&](std::initializer_list<int64_t> item) {
    Shape shape = stack;
    for (int64_t size : item) shape.push_back(size);
    return shape;
  };
  c.output(with({a[-1], b[-1]}), dtype);
  c.output(stack, i64);
  c.output(with({std::min(a[-2], a[-1])}), dtype);
}

void infer_matrix_exp(InferContext& c) {
  check_matrices(c, 0, true);
  c.output(c.shape(0), c.dtype(0));
}

void run_qr(const KernelArgs& args) { kernels::qr(args.out[0], args.out[1], args.in[0]); }
void run_svd(const KernelArgs& args) {
  kernels::svd(&args.out[0], args.out[1], &args.out[2], args.in[0], "linalg_svd");
}
void run_svdvals(const KernelArgs& args) {
  kernels::svd(nullptr, args.out[0], nullptr, args.in[0], "linalg_svdvals");
}
void run_eigh(const KernelArgs& args) {
  kernels::eigh(args.out[0], &args.out[1], args.in[0], args.attr<SymmetricAttrs>().upper, "linalg_eigh");
}
void run_eigvalsh(const KernelArgs& args) {
  kernels::eigh(args.out[0], nullptr, args.in[0], args.attr<SymmetricAttrs>().upper, "linalg_eigvalsh");
}
void run_pinv(const KernelArgs& args) {
  kernels::pseudo_inverse(args.out[0], args.in[0], args.attr<RankAttrs>().rtol, "linalg_pinv");
}
void run_lstsq(const KernelArgs& args) {
  const Tensor& x = args.out[0];
  kernels::least_squares(x, args.out[1], args.out[2], *detail::Converted(args.in[0], x.dtype),
                         *detail::Converted(args.in[1], x.dtype), args.attr<RankAttrs>().rtol,
                         "linalg_lstsq");
}
void run_matrix_exp(const KernelArgs& args) { kernels::matrix_exp(args.out[0], args.in[0]); }

constexpr detail::RecordList<DType, kDTypes> kReal = {f32, f64};

constexpr Operator kQr = {
    .kernel = {"linalg_qr", run_qr, cuda::linalg_qr, kDirectWork},
    .doc =
        "QR decomposition of matrices (.., m, n): q with orthonormal columns and an upper triangle r, whose "
        "diagonal is not negative.",
    .family = "linalg",
    .inputs = {"a"},
    .outputs = {"q", "r"},
    .attrs = &kAttrType<QrAttrs>,
    .infer = infer_qr,
    .gradient = detail::gradient_qr,
    .gradient_uses = {.outputs = bit_set(0, 1)},
    .dtypes = kReal,
    .work = work_of_svd,
};

constexpr Operator kSvd = {
    .kernel = {"linalg_svd", run_svd, cuda::linalg_svd, kDirectWork},
    .doc =
        "Singular value decomposition of matrices (.., m, n): a = u diag(s) vh, with s in descending order. "
        "The "
        "leading element of each column of u is positive: the first one with at least half of the largest "
        "magnitude.",
    .family = "linalg",
    .inputs = {"a"},
    .outputs = {"u", "s", "vh"},
    .attrs = &kAttrType<SvdAttrs>,
    .infer = infer_svd,
    .gradient = detail::gradient_svd,
    .gradient_uses = {.outputs = bit_set(0, 1, 2)},
    .dtypes = kReal,
    .work = work_of_svd,
};

constexpr Operator kSvdvals = {
    .kernel = {"linalg_svdvals", run_svdvals, cuda::linalg_svdvals, kDirectWork},
    .doc = "Singular values of matrices (.., m, n), in descending order.",
    .family = "linalg",
    .inputs = {"a"},
    .outputs = {"s"},
    .infer = infer_svdvals,
    .gradient = detail::gradient_svdvals,
    .gradient_uses = {.inputs = bit_set(0)},
    .dtypes = kReal,
    .work = work_of_svd,
};

constexpr Operator kEigh = {
    .kernel = {"linalg_eigh", run_eigh, cuda::linalg_eigh, kDirectWork},
    .doc =
        "Eigenvalues w, in ascending order, and eigenvectors, in the columns of v, of symmetric matrices "
        "(.., n, n), of which one triangle is read. The leading element of each "
        "vector is positive: the first one with at least half of the largest magnitude.",
    .family = "linalg",
    .inputs = {"a"},
    .outputs = {"w", "v"},
    .attrs = &kAttrType<SymmetricAttrs>,
    .infer = infer_eigh,
    .gradient = detail::gradient_eigh,
    .gradient_uses = {.outputs = bit_set(0, 1)},
    .dtypes = kReal,
    .work = work_of_svd,
};

constexpr Operator kEigvalsh = {
    .kernel = {"linalg_eigvalsh", run_eigvalsh, cuda::linalg_eigvalsh, kDirectWork},
    .doc = "Eigenvalues of symmetric matrices (.., n, n), of which one triangle is read, in ascending order.",
    .family = "linalg",
    .inputs = {"a"},
    .outputs = {"w"},
    .attrs = &kAttrType<SymmetricAttrs>,
    .infer = infer_eigvalsh,
    .gradient = detail::gradient_eigvalsh,
    .gradient_uses = {.inputs = bit_set(0)},
    .dtypes = kReal,
    .work = work_of_svd,
};

constexpr Operator kPinv = {
    .kernel = {"linalg_pinv", run_pinv, cuda::linalg_pinv, kDirectWork},
    .doc = "Pseudoinverse of matrices (.., m, n), by singular values.",
    .family = "linalg",
    .inputs = {"a"},
    .attrs = &kAttrType<RankAttrs>,
    .infer = infer_pinv,
    .gradient = detail::gradient_pinv,
    .gradient_uses = {.inputs = bit_set(0), .outputs = bit_set(0)},
    .dtypes = kReal,
    .work = work_of_svd,
};

constexpr Operator kLstsq = {
    .kernel = {"linalg_lstsq", run_lstsq, cuda::linalg_lstsq, kDirectWork},
    .doc =
        "Solution x of the smallest norm for which the norm of a x - b is smallest, for a (.., m, n) and b "
        "(.., m, k), with the rank and the singular values of a.",
    .family = "linalg",
    .inputs = {"a", "b"},
    .outputs = {"x", "rank", "s"},
    .attrs = &kAttrType<RankAttrs>,
    .infer = infer_lstsq,
    .gradient = detail::gradient_lstsq,
    .gradient_uses = {.inputs = bit_set(0, 1)},
    .dtypes = kReal,
    .work = work_of_svd,
};

constexpr Operator kMatrixExp = {
    .kernel = {"linalg_matrix_exp", run_matrix_exp, cuda::linalg_matrix_exp, kDirectWork},
    .doc = "Exponential of square matrices (.., n, n).",
    .family = "linalg",
    .inputs = {"a"},
    .infer = infer_matrix_exp,
    .gradient = detail::gradient_matrix_exp,
    .gradient_uses = {.inputs = bit_set(0)},
    .dtypes = kReal,
    .work = work_of_svd,
};

}  // namespace

namespace detail {
OperatorFamily family_linalg_decompositions() {
  return {&kQr, &kSvd, &kSvdvals, &kEigh, &kEigvalsh, &kPinv, &kLstsq, &kMatrixExp};
}
}  // namespace detail

namespace linalg {

QrResult qr(const Arg& a, QrMode mode) {
  std::vector<NDArray> y = call(kQr, QrAttrs{mode == QrMode::complete}, std::span(&a.array, 1), a.where);
  return {std::move(y[0]), std::move(y[1])};
}

SvdResult svd(const Arg& a, bool full_matrices) {
  std::vector<NDArray> y = call(kSvd, SvdAttrs{full_matrices}, std::span(&a.array, 1), a.where);
  return {std::move(y[0]), std::move(y[1]), std::move(y[2])};
}

NDArray svdvals(const Arg& a) { return call(kSvdvals, {}, a); }

EighResult eigh(const Arg& a, bool upper) {
  std::vector<NDArray> y = call(kEigh, SymmetricAttrs{upper}, std::span(&a.array, 1), a.where);
  return {std::move(y[0]), std::move(y[1])};
}

NDArray eigvalsh(const Arg& a, bool upper) { return call(kEigvalsh, SymmetricAttrs{upper}, a); }
NDArray pinv(const Arg& a, RealArg rtol) { return call(kPinv, RankAttrs{rtol}, a); }
NDArray matrix_exp(const Arg& a) { return call(kMatrixExp, {}, a); }

LstsqResult lstsq(const Arg& a, const NDArray& b, RealArg rtol) {
  const bool vector = b.rank() == 1;
  const NDArray operands[] = {a.array, vector ? b.expand_dims(-1) : b};
  std::vector<NDArray> y = call(kLstsq, RankAttrs{rtol}, operands, a.where);
  const NDArray differences = matmul(operands[0], y[0]) - operands[1];
  NDArray residuals = sum(square(differences), -2);
  return {vector ? y[0].squeeze(-1) : y[0], vector ? residuals.squeeze(-1) : residuals, std::move(y[1]),
          std::move(y[2])};
}

}  // namespace linalg
}  // namespace mx
