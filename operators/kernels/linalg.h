// Linear algebra on stacks of matrices, on the CPU: the last two dimensions are a matrix, the others count
// them and broadcast to those of the first result.
//
// All operands are of one type, f32 or f64, and have any strides. Results have the shapes that the
// operators' records infer, and must not overlap the operands. The bits of a result depend only on its own
// matrices and on the processor's instruction set. A NaN or an infinity in a matrix gives NaNs or infinities,
// never an error. `op` is the name in messages. Thread-safety: any thread may call.
#pragma once

#include "ndarray/tensor.h"

namespace mx::kernels {

/// x = a^-1 b. Throws InvalidArgument, naming the matrix, if a is exactly singular.
void solve(const Tensor& x, const Tensor& a, const Tensor& b, const char* op);
/// The same for a triangular a; with `unit` its diagonal is taken as 1. The other triangle is not read.
void solve_triangular(const Tensor& x, const Tensor& a, const Tensor& b, bool upper, bool unit,
                      const char* op);
/// y = a^-1. Throws InvalidArgument, naming the matrix, if a is exactly singular.
void inverse(const Tensor& y, const Tensor& a, const char* op);

/// The factors of lu_factor() of dense.h in one matrix. pivots (i64): the row with which each row was
/// exchanged; permutation (i64): a[permutation] is the product of the factors.
void lu(const Tensor& factors, const Tensor& pivots, const Tensor& permutation, const Tensor& a);
void determinant(const Tensor& y, const Tensor& a);
/// sign: -1, 0 or 1; logarithm: log |det a|, -infinity if the determinant is 0.
void log_determinant(const Tensor& sign, const Tensor& logarithm, const Tensor& a);
/// y(i, j) = (-1)^(i + j) times the determinant of a without row i and column j.
void cofactors(const Tensor& y, const Tensor& a, const char* op);

/// The triangle l of a = l l' or, if `upper`, u of a = u' u. Reads only that triangle of a. Throws
/// InvalidArgument, naming the matrix, if a is not positive definite.
void cholesky(const Tensor& l, const Tensor& a, bool upper, const char* op);

void qr(const Tensor& q, const Tensor& r, const Tensor& a);
/// u and vh may be null. Throws NumericError, naming the matrix, if the iteration does not converge.
void svd(const Tensor* u, const Tensor& s, const Tensor* vh, const Tensor& a, const char* op);
/// v may be null. Throws NumericError, naming the matrix, if the iteration does not converge.
void eigh(const Tensor& w, const Tensor* v, const Tensor& a, bool upper, const char* op);
/// Of matrices without symmetry: w (.., n, 2) and v (.., n, n, 2) are complex, as pairs. Null: not computed.
void eig(const Tensor& w, const Tensor* v, const Tensor& a, const char* op);

/// The pseudoinverse. Singular values up to `tolerance` times the largest one count as 0; a negative
/// tolerance stands for max(m, n) times the type's epsilon.
void pseudo_inverse(const Tensor& y, const Tensor& a, double tolerance, const char* op);
/// x with the smallest |x| of those with the smallest |a x - b|; rank (i64); the singular values s of a.
void least_squares(const Tensor& x, const Tensor& rank, const Tensor& s, const Tensor& a, const Tensor& b,
                   double tolerance, const char* op);

/// y = the exponential of a, by scaling and squaring with a Padé approximant of order 13 (Higham, "The
/// Scaling and Squaring Method for the Matrix Exponential Revisited", SIAM J. Matrix Anal. Appl. 26:4, 2005).
/// Computed in f64.
void matrix_exp(const Tensor& y, const Tensor& a);

}  // namespace mx::kernels
