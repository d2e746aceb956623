// Linear algebra: systems of equations, inverses, determinants, decompositions, norms. The names are those of
// numpy.linalg, scipy.linalg and torch.linalg.
//
//   NDArray x = linalg::solve(a, b);            // a x = b
//   auto [u, s, vh] = linalg::svd(a);           // a = u diag(s) vh
//   NDArray d = linalg::slogdet(a).logabsdet;   // differentiable, as all of them
//
// Matrices are the last two dimensions; the others are a stack, whose dimensions broadcast if there are two
// operands. Elements are f32 or f64: f16, bf16, integers and bool throw InvalidArgument, as in PyTorch. If
// operands have different types, the result is f64. Matrices without elements are allowed.
//
// Errors that depend on values, such as a singular matrix, are thrown when the result is waited for. They
// are InvalidArgument, or NumericError if an iteration does not converge, and name the operator and the
// position of the matrix in the stack. A matrix with a NaN or an infinity is no error; the result has NaNs.
//
// Results are unique, so that they repeat. The diagonal of r is not negative. The leading element of each
// column of u and of each eigenvector is positive: the first one with at least half of the largest magnitude.
// (NumPy and PyTorch leave signs as LAPACK finds them.)
//
// Gradients are those of PyTorch. The gradient with respect to a symmetric operand is symmetric. Gradients of
// singular vectors and eigenvectors are infinite or NaN if two singular values or eigenvalues are equal.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <span>
#include <string>

#include "ndarray/axes.h"
#include "operators/operator.h"

namespace mx::linalg {

/// The solution x of a x = b. A b of rank 1 is a vector, and so is then each solution; any other b is a stack
/// of matrices (.., n, k), as in NumPy 2. Throws for a singular a.
NDArray solve(const Arg& a, const NDArray& b);

struct TriangularOptions {
  bool upper = false;          ///< a is an upper triangle; false: a lower one. The other part is not read
  bool left = true;            ///< solves a x = b; false: x a = b
  bool unitriangular = false;  ///< the diagonal of a is taken as 1, and not read
};
/// The solution of a triangular system. b as in solve(). Throws if the diagonal of a has a 0.
NDArray solve_triangular(const Arg& a, const NDArray& b, const TriangularOptions& options = {});

/// The inverse. Throws for a singular matrix. solve(a, b) is faster and more accurate than inv(a) times b.
NDArray inv(const Arg& a);
/// The pseudoinverse of Moore and Penrose. Singular values up to rtol times the largest one count as 0; a
/// negative rtol stands for max(m, n) times the type's epsilon. The gradient holds where the rank is
/// constant.
NDArray pinv(const Arg& a, RealArg rtol = -1);

struct LstsqResult {
  NDArray solution;         ///< (.., n, k), or (.., n) for a vector b
  NDArray residuals;        ///< (.., k) or (..): the sums of squares of a x - b, whatever the rank
  NDArray rank;             ///< (..), i64
  NDArray singular_values;  ///< (.., min(m, n))
};
/// The x with the smallest |a x - b|, and of those the one with the smallest norm. b as in solve(); rtol as
/// in pinv(). solution and residuals are differentiable.
LstsqResult lstsq(const Arg& a, const NDArray& b, RealArg rtol = -1);

/// The determinant; 0 for a singular matrix, whose gradient is right too.
NDArray det(const Arg& a);
struct SlogdetResult {
  NDArray sign;       ///< -1, 0 or 1
  NDArray logabsdet;  ///< the logarithm of the determinant's magnitude; -infinity if it is 0
};
SlogdetResult slogdet(const Arg& a);

/// The lower triangle l with a = l l', or with `upper` the upper one with a = u' u, of a symmetric positive
/// definite matrix. Only that triangle of a is read. Throws if a is not positive definite.
NDArray cholesky(const Arg& a, bool upper = false);
/// The solution x of a x = b from l = cholesky(a). The order of the operands is torch.cholesky_solve's.
NDArray cholesky_solve(const Arg& b, const NDArray& l, bool upper = false);
/// The inverse of a from l = cholesky(a).
NDArray cholesky_inverse(const Arg& l, bool upper = false);

struct LuFactors {
  NDArray lu;           ///< (.., m, n): l below the diagonal, whose own diagonal is 1, and u from it on
  NDArray pivots;       ///< (.., min(m, n)), i64: row k was exchanged with row pivots[k], as in SciPy
  NDArray permutation;  ///< (.., m), i64: a[permutation] = l u
};
/// The factors with partial pivoting. A singular matrix is no error: u has a 0 on its diagonal.
LuFactors lu_factor(const Arg& a);
/// The solution x of a x = b from the factors of a. b as in solve(). Throws for a singular a.
NDArray lu_solve(const LuFactors& factors, const NDArray& b,
                 std::source_location where = std::source_location::current());
struct LuResult {
  NDArray p, l, u;  ///< a = p l u: (.., m, m), (.., m, k) and (.., k, n) with k = min(m, n)
};
LuResult lu(const Arg& a);

enum class QrMode : uint8_t { reduced, complete };
struct QrResult {
  NDArray q;  ///< (.., m, k) with k = min(m, n); complete: (.., m, m)
  NDArray r;  ///< (.., k, n); complete: (.., m, n)
};
/// a = q r with orthonormal columns of q. There is no gradient for `complete` and m > n, because the further
/// columns of q are not unique.
QrResult qr(const Arg& a, QrMode mode = QrMode::reduced);

struct SvdResult {
  NDArray u;   ///< (.., m, k) with k = min(m, n); with full_matrices (.., m, m)
  NDArray s;   ///< (.., k), descending
  NDArray vh;  ///< (.., k, n); with full_matrices (.., n, n)
};
/// a = u diag(s) vh. With full_matrices the gradient throws InvalidArgument if u or vh take part and have
/// further columns or rows, because these are not unique.
SvdResult svd(const Arg& a, bool full_matrices = true);
NDArray svdvals(const Arg& a);

struct EighResult {
  NDArray eigenvalues;   ///< (.., n), ascending
  NDArray eigenvectors;  ///< (.., n, n), in the columns
};
/// The eigenvalues and eigenvectors of a symmetric matrix, of which only the lower triangle is read, or the
/// upper one.
EighResult eigh(const Arg& a, bool upper = false);
NDArray eigvalsh(const Arg& a, bool upper = false);

struct EigResult {
  NDArray eigenvalues;   ///< complex (.., n, 2), in ascending order of real and then of imaginary parts
  NDArray eigenvectors;  ///< complex (.., n, n, 2), in the columns; their norm is 1
};
/// The eigenvalues and eigenvectors of a real matrix, which need not be symmetric. Complex numbers are pairs
/// in the last dimension, as in operators/fft.h, whose fft::multiply() and others compute with them.
/// Gradients of eigenvectors are infinite or NaN if two eigenvalues are equal; without n independent
/// eigenvectors, all gradients are inaccurate or throw InvalidArgument.
EigResult eig(const Arg& a);
NDArray eigvals(const Arg& a);

/// The number of singular values above rtol times the largest one; i64. rtol as in pinv().
NDArray matrix_rank(const Arg& a, RealArg rtol = -1);
/// The condition number: the largest singular value divided by the smallest one.
NDArray cond(const Arg& a);
/// The same by the norm of order p: matrix_norm(a, p) * matrix_norm(inv(a), p).
NDArray cond(const Arg& a, RealArg p);

/// The exponential of a matrix.
NDArray matrix_exp(const Arg& a);
/// The product of n times the matrix; of its inverse if n is negative; the identity for 0.
NDArray matrix_power(const Arg& a, IntArg n);
/// The product of several matrices in the order that takes the fewest multiplications. The first operand may
/// be a row vector, the last one a column vector, of rank 1; all others are matrices.
NDArray multi_dot(std::span<const NDArray> arrays,
                  std::source_location where = std::source_location::current());
NDArray multi_dot(std::initializer_list<NDArray> arrays,
                  std::source_location where = std::source_location::current());

/// The sum of products along an axis, as numpy.vecdot; the other dimensions broadcast.
NDArray vecdot(const Arg& a, const NDArray& b, IntArg axis = -1);
/// The solution x of tensordot(a, x, x.rank()) = b: a (b's shape, then x's shape).
NDArray tensorsolve(const Arg& a, const NDArray& b);
/// The inverse with respect to tensordot(a, b, ind): a's first `ind` dimensions are the rows.
NDArray tensorinv(const Arg& a, IntArg ind = 2);

/// (sum |x|^p)^(1/p) over the axes, or over all elements, as mx::norm.
NDArray vector_norm(const Arg& x, RealArg p = 2, const Axes& axes = {}, bool keep_dims = false);
/// The norm of matrices, which lie in the two given dimensions. "fro": the root of the sum of squares; "nuc":
/// the sum of the singular values.
NDArray matrix_norm(const Arg& x, const std::string& kind = "fro", const Shape& axes = {-2, -1},
                    bool keep_dims = false);
/// p = 1 and -1: the largest and the smallest sum of a column's magnitudes; infinity and -infinity: of a
/// row's; 2 and -2: the largest and the smallest singular value.
NDArray matrix_norm(const Arg& x, RealArg p, const Shape& axes = {-2, -1}, bool keep_dims = false);
/// As numpy.linalg.norm: the 2-norm of all elements.
NDArray norm(const Arg& x);
/// matrix_norm() over two axes, or of an x of rank 2 without axes; vector_norm() otherwise.
NDArray norm(const Arg& x, RealArg p, const Axes& axes = {}, bool keep_dims = false);
NDArray norm(const Arg& x, const std::string& kind, const Axes& axes = {}, bool keep_dims = false);

}  // namespace mx::linalg
