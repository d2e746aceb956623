// The records of systems of equations, inverses, determinants and triangular factorisations.
#include "operators/linalg.h"

#include <algorithm>
#include <limits>
#include <span>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/numerics.h"
#include "operators/cuda_kernels.h"
#include "operators/kernels/linalg.h"
#include "operators/linalg_gradient.h"
#include "operators/linalg_records.h"
#include "operators/temporary.h"

namespace mx {
namespace detail {

void check_matrices(const InferContext& c, size_t i, bool square) {
  MX_CHECK(c.dtype(i) == f32 || c.dtype(i) == f64, InvalidArgument, "[", c.name(),
           "] expected elements of type f32 or f64, got ", c.dtype(i));
  const Shape& shape = c.shape(i);
  MX_CHECK(shape.rank() >= 2 && (!square || shape[-1] == shape[-2]), InvalidArgument, "[", c.name(),
           "] expected ", square ? "square matrices (.., n, n)" : "matrices (.., m, n)", ", got shape ",
           shape);
}

}  // namespace detail

namespace {

using detail::check_matrices;
using detail::Converted;
using detail::SymmetricAttrs;
using detail::TriangularAttrs;

// Up to this many element operations, about two microseconds, the calling thread runs the operator itself.
constexpr int64_t kDirectWork = 1 << 11;

Shape batch_of(const Shape& shape) {
  Shape result = shape;
  result.resize(shape.rank() - 2);
  return result;
}

int64_t limited(double work) { return static_cast<int64_t>(std::min(work, 9e18)); }

/// The cost of a factorisation of each matrix of input 0 and of a solution for each column of the result.
int64_t work_of_factors(const InferContext& c) {
  const Shape& a = c.shape(0);
  const auto items = static_cast<double>(batch_of(a).numel()), m = static_cast<double>(a[-2]),
             n = static_cast<double>(a[-1]);
  return limited(items * m * n * std::max(1., std::min(m, n)));
}

int64_t work_of_solution(const InferContext& c) {
  const Shape& x = c.output_shape(0);
  const auto items = static_cast<double>(batch_of(x).numel()), n = static_cast<double>(x[-2]),
             k = static_cast<double>(x[-1]);
  return limited(items * n * n * (n + k));
}

void infer_solve(InferContext& c) {
  check_matrices(c, 0, true);
  check_matrices(c, 1, false);
  const Shape &a = c.shape(0), &b = c.shape(1);
  MX_CHECK(a[-1] == b[-2], InvalidArgument, "[", c.name(),
           "] expected a (.., n, n) and b (.., n, k), got shapes ", a, " and ", b);
  Shape shape = broadcast_shapes(batch_of(a), batch_of(b), c.name());
  shape.push_back(b[-2]);
  shape.push_back(b[-1]);
  c.output(shape, promote(c.dtype(0), c.dtype(1)));
}

void infer_square(InferContext& c) {
  check_matrices(c, 0, true);
  c.output(c.shape(0), c.dtype(0));
}

void infer_det(InferContext& c) {
  check_matrices(c, 0, true);
  c.output(batch_of(c.shape(0)), c.dtype(0));
}

void infer_slogdet(InferContext& c) {
  infer_det(c);
  c.output(batch_of(c.shape(0)), c.dtype(0));
}

void infer_lu_factor(InferContext& c) {
  check_matrices(c, 0, false);
  const Shape& a = c.shape(0);
  Shape pivots = batch_of(a), permutation = pivots;
  pivots.push_back(std::min(a[-2], a[-1]));
  permutation.push_back(a[-2]);
  c.output(a, c.dtype(0));
  c.output(pivots, i64);
  c.output(permutation, i64);
}

void run_solve(const KernelArgs& args) {
  const Tensor& x = args.out[0];
  kernels::solve(x, *Converted(args.in[0], x.dtype), *Converted(args.in[1], x.dtype), "linalg_solve");
}

void run_solve_triangular(const KernelArgs& args) {
  const auto& attrs = args.attr<TriangularAttrs>();
  const Tensor& x = args.out[0];
  kernels::solve_triangular(x, *Converted(args.in[0], x.dtype), *Converted(args.in[1], x.dtype), attrs.upper,
                            attrs.unitriangular, "linalg_solve_triangular");
}

void run_inv(const KernelArgs& args) { kernels::inverse(args.out[0], args.in[0], "linalg_inv"); }
void run_det(const KernelArgs& args) { kernels::determinant(args.out[0], args.in[0]); }

// Checks the numerics of signs and logarithms, except the logarithms of singular matrices: they are
// -infinity, as they should be.
template <class T>
void check_log_determinants(const KernelArgs& args) {
  const Tensor &sign = args.out[0], &logarithm = args.out[1];
  const T* const signs = sign.as<T>();
  std::vector<T> checked(logarithm.as<T>(), logarithm.as<T>() + logarithm.shape.numel());
  for (size_t i = 0; i < checked.size(); ++i)
    if (signs[i] == 0 && checked[i] == -std::numeric_limits<T>::infinity()) checked[i] = 0;
  const Tensor outputs[] = {sign, {checked.data(), logarithm.dtype, logarithm.shape, logarithm.strides}};
  KernelArgs replaced = args;
  replaced.out = outputs;
  detail::check_outputs(replaced, 3);
}

void run_slogdet(const KernelArgs& args) {
  kernels::log_determinant(args.out[0], args.out[1], args.in[0]);
  if (!check_numerics()) return;
  args.out[0].dtype == f64 ? check_log_determinants<double>(args) : check_log_determinants<float>(args);
}

void run_cofactor(const KernelArgs& args) { kernels::cofactors(args.out[0], args.in[0], "linalg_cofactor"); }
void run_lu_factor(const KernelArgs& args) { kernels::lu(args.out[0], args.out[1], args.out[2], args.in[0]); }
void run_cholesky(const KernelArgs& args) {
  kernels::cholesky(args.out[0], args.in[0], args.attr<SymmetricAttrs>().upper, "linalg_cholesky");
}

constexpr detail::RecordList<DType, kDTypes> kReal = {f32, f64};

constexpr Operator kSolve = {
    .kernel = {"linalg_solve", run_solve, cuda::linalg_solve, kDirectWork},
    .doc = "Solution x of a x = b for square matrices a (.., n, n) and matrices b (.., n, k).",
    .family = "linalg",
    .inputs = {"a", "b"},
    .outputs = {"x"},
    .infer = infer_solve,
    .gradient = detail::gradient_solve,
    .gradient_uses = {.inputs = bit_set(0), .outputs = bit_set(0)},
    .dtypes = kReal,
    .work = work_of_solution,
    .partial = true,
};

constexpr Operator kSolveTriangular = {
    .kernel = {"linalg_solve_triangular", run_solve_triangular, cuda::linalg_solve_triangular, kDirectWork},
    .doc = "Solution x of a x = b for triangular matrices a (.., n, n), of which the other part is not read.",
    .family = "linalg",
    .inputs = {"a", "b"},
    .outputs = {"x"},
    .attrs = &kAttrType<TriangularAttrs>,
    .infer = infer_solve,
    .gradient = detail::gradient_solve_triangular,
    .gradient_uses = {.inputs = bit_set(0), .outputs = bit_set(0)},
    .dtypes = kReal,
    .work = work_of_solution,
    .partial = true,
};

constexpr Operator kInv = {
    .kernel = {"linalg_inv", run_inv, cuda::linalg_inv, kDirectWork},
    .doc = "Inverse of square matrices (.., n, n).",
    .family = "linalg",
    .inputs = {"a"},
    .infer = infer_square,
    .gradient = detail::gradient_inv,
    .gradient_uses = {.outputs = bit_set(0)},
    .dtypes = kReal,
    .work = work_of_factors,
    .partial = true,
};

constexpr Operator kDet = {
    .kernel = {"linalg_det", run_det, cuda::linalg_det, kDirectWork},
    .doc = "Determinant of square matrices (.., n, n).",
    .family = "linalg",
    .inputs = {"a"},
    .infer = infer_det,
    .gradient = detail::gradient_det,
    .gradient_uses = {.inputs = bit_set(0)},
    .dtypes = kReal,
    .work = work_of_factors,
};

constexpr Operator kSlogdet = {
    .kernel = {"linalg_slogdet", run_slogdet, cuda::linalg_slogdet, kDirectWork, false},
    .doc = "Sign of the determinant of square matrices (.., n, n), and logarithm of its magnitude.",
    .family = "linalg",
    .inputs = {"a"},
    .outputs = {"sign", "logabsdet"},
    .infer = infer_slogdet,
    .gradient = detail::gradient_slogdet,
    .gradient_uses = {.inputs = bit_set(0)},
    .dtypes = kReal,
    .work = work_of_factors,
};

constexpr Operator kCofactor = {
    .kernel = {"linalg_cofactor", run_cofactor, cuda::linalg_cofactor, kDirectWork},
    .doc =
        "Cofactors of square matrices (.., n, n), the gradient of the determinant: det(a) times the "
        "transposed inverse of a, but also defined for a singular a.",
    .family = "linalg",
    .inputs = {"a"},
    .infer = infer_square,
    .gradient = detail::gradient_cofactor,
    .gradient_uses = {.inputs = bit_set(0), .outputs = bit_set(0)},
    .dtypes = kReal,
    .work = work_of_factors,
};

constexpr Operator kLuFactor = {
    .kernel = {"linalg_lu_factor", run_lu_factor, cuda::linalg_lu_factor, kDirectWork},
    .doc =
        "LU factors of matrices (.., m, n) with partial pivoting, in one matrix: l below the diagonal, u "
        "from it on. Row k was exchanged with row pivots[k]; a[permutation] is the product of l and u.",
    .family = "linalg",
    .inputs = {"a"},
    .outputs = {"lu", "pivots", "permutation"},
    .infer = infer_lu_factor,
    .gradient = detail::gradient_lu_factor,
    .gradient_uses = {.outputs = bit_set(0, 2)},
    .dtypes = kReal,
    .work = work_of_factors,
};

constexpr Operator kCholesky = {
    .kernel = {"linalg_cholesky", run_cholesky, cuda::linalg_cholesky, kDirectWork},
    .doc =
        "Cholesky factor of symmetric positive definite matrices (.., n, n): the lower triangle l with "
        "a = l l', or the upper one u with a = u' u. Only that triangle of a is read.",
    .family = "linalg",
    .inputs = {"a"},
    .attrs = &kAttrType<SymmetricAttrs>,
    .infer = infer_square,
    .gradient = detail::gradient_cholesky,
    .gradient_uses = {.outputs = bit_set(0)},
    .dtypes = kReal,
    .work = work_of_factors,
    .partial = true,
};

}  // namespace

namespace detail {

OperatorFamily family_linalg() {
  return {&kSolve, &kSolveTriangular, &kInv, &kDet, &kSlogdet, &kCofactor, &kLuFactor, &kCholesky};
}

NDArray cofactor(const Arg& a) { return call(kCofactor, {}, a); }

}  // namespace detail

namespace linalg {
namespace {

/// Calls f with b as a stack of matrices; removes the dimension that a vector was given.
template <class F>
NDArray with_columns(const NDArray& b, const F& f) {
  return b.rank() == 1 ? f(b.expand_dims(-1)).squeeze(-1) : f(b);
}

NDArray turned(const NDArray& x) { return x.rank() < 2 ? x : x.swap_axes(-2, -1); }

}  // namespace

NDArray solve(const Arg& a, const NDArray& b) {
  return with_columns(b, [&](const NDArray& columns) { return call(kSolve, {}, a, columns); });
}

NDArray solve_triangular(const Arg& a, const NDArray& b, const TriangularOptions& options) {
  TriangularAttrs attrs{options.upper, options.unitriangular};
  if (options.left)
    return with_columns(b, [&](const NDArray& columns) { return call(kSolveTriangular, attrs, a, columns); });
  // x a = b is a' x' = b'.
  attrs.upper = !attrs.upper;
  const NDArray other = turned(a.array);
  if (b.rank() == 1) return call(kSolveTriangular, attrs, {other, a.where}, b.expand_dims(-1)).squeeze(-1);
  return turned(call(kSolveTriangular, attrs, {other, a.where}, turned(b)));
}

NDArray inv(const Arg& a) { return call(kInv, {}, a); }
NDArray det(const Arg& a) { return call(kDet, {}, a); }

SlogdetResult slogdet(const Arg& a) {
  std::vector<NDArray> y = call(kSlogdet, {}, std::span(&a.array, 1), a.where);
  return {std::move(y[0]), std::move(y[1])};
}

LuFactors lu_factor(const Arg& a) {
  std::vector<NDArray> y = call(kLuFactor, {}, std::span(&a.array, 1), a.where);
  return {std::move(y[0]), std::move(y[1]), std::move(y[2])};
}

NDArray cholesky(const Arg& a, bool upper) { return call(kCholesky, SymmetricAttrs{upper}, a); }

NDArray cholesky_solve(const Arg& b, const NDArray& l, bool upper) {
  // a = l l', so l y = b and l' x = y; or a = u' u, so u' y = b and u x = y.
  const NDArray first = upper ? turned(l) : l;
  const NDArray y = solve_triangular({first, b.where}, b.array);
  return solve_triangular({turned(first), b.where}, y, {.upper = true});
}

}  // namespace linalg
}  // namespace mx
