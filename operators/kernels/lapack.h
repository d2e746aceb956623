// Decompositions of one matrix that are computed by LAPACK: QR, singular values, eigenvalues.
//
// Each function copies the matrix into memory in LAPACK's order, so operands may have any strides and the
// result does not depend on them. Signs, which the definitions leave open, are fixed, so that results do not
// depend on the LAPACK that is installed: each function says how. The leading element of a vector is the
// first one with at least half of the largest magnitude. A matrix with an element that is infinite or NaN
// gives NaNs. T is float or double.
//
// Thread-safety: any thread may call. The reference implementation has no state and no threads. OpenBLAS has
// its own threads, which would compete with those of the engine and could change the last bits, so the first
// call sets their number to 1 for the whole process.
#pragma once

#include <cstdint>
#include <vector>

#include "operators/kernels/dense.h"

namespace mx::kernels {

/// Memory that a thread reuses for several matrices.
template <class T>
struct LapackScratch {
  std::vector<T> matrix, left, right, reflections, work;
  std::vector<int> integers;
};

/// a (m, n) = q r with k = min(m, n): q (m, k) or (m, m), r (k, n) or (m, n), q.columns == r.rows. The
/// diagonal of r is not negative.
template <class T>
void qr(const MatrixBlock<const T>& a, const MatrixBlock<T>& q, const MatrixBlock<T>& r,
        LapackScratch<T>& scratch);

/// a (m, n) = u diag(s) vh with k = min(m, n): u (m, k) or (m, m), s (k) in descending order, vh (k, n) or
/// (n, n). The leading element of each column of u is positive; so is, in a square vh, that of each
/// row without a column of u. With null u and vh, computes only s. Returns false if the
/// iteration did not converge.
template <class T>
bool svd(const MatrixBlock<const T>& a, T* s, const MatrixBlock<T>* u, const MatrixBlock<T>* vh,
         LapackScratch<T>& scratch);

/// a (n, n) = v diag(w) v' for a symmetric matrix, of which only the lower or the upper triangle is read: w
/// in ascending order, eigenvectors in the columns of v. The leading element of each of them is positive.
/// With a null v, computes only w. Returns false if the iteration did not converge.
template <class T>
bool eigh(const MatrixBlock<const T>& a, bool upper, T* w, const MatrixBlock<T>* v,
          LapackScratch<T>& scratch);

/// A complex matrix, as its real and its imaginary part.
template <class T>
struct ComplexBlock {
  MatrixBlock<T> re, im;
};

/// a v = v diag(w) for a matrix a (n, n) without symmetry: w (n, 2) has the real and the imaginary parts, in
/// ascending order of the real and then of the imaginary parts. The columns of v have norm 1, and the leading
/// element of each is real and positive. With a null v, computes only w. Returns false if the iteration did
/// not converge.
template <class T>
bool eig(const MatrixBlock<const T>& a, const MatrixBlock<T>& w, const ComplexBlock<T>* v,
         LapackScratch<T>& scratch);

}  // namespace mx::kernels
