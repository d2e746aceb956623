// The four kernels of a tiled Cholesky factorisation A = L L^T, in double precision.
//
// A tile is column-major and dense: element (r, c) is data[c * rows + r]. Tiles at the lower and right edge
// may be smaller. The kernels run on the calling thread and share nothing, so any number of them may run at
// once on different tiles. Which instruction set they use is decided once per process; the result does not
// depend on the thread.
//
// Algorithm: the right-looking tiled factorisation of Buttari, Langou, Kurzak and Dongarra, "A class of
// parallel tiled linear algebra algorithms for multicore architectures" (2009). The register blocking of
// the matrix product follows Goto and van de Geijn, "Anatomy of high-performance matrix multiplication"
// (2008).
#pragma once

#include <cstdint>

namespace cholesky {

struct Tile {
  double* data;
  int64_t rows;
  int64_t cols;
};

/// c -= a * b^T.
void gemm(const Tile& a, const Tile& b, const Tile& c);

/// c -= a * a^T in the lower triangle of c; what lies above it is unspecified afterwards.
void syrk(const Tile& a, const Tile& c);

/// b = b * l^-T, where l is lower triangular with a non-zero diagonal.
void trsm(const Tile& l, const Tile& b);

/// Replaces a, of which the lower triangle is read, by its Cholesky factor; the strict upper triangle
/// becomes zero. Throws mx::InvalidArgument, naming the pivot, when a is not positive definite.
void potrf(const Tile& a);

/// The instruction set that the kernels use here: "avx512f", "avx2" or "portable".
const char* instruction_set();

}  // namespace cholesky
