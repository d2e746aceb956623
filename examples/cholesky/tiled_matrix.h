// A symmetric matrix, of which the lower triangle is stored as dense tiles.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "examples/cholesky/tile_kernels.h"

namespace cholesky {

class TiledMatrix {
 public:
  /// Makes an n x n matrix in tiles of `tile` rows and columns; tiles at the edge are smaller. The memory is
  /// not touched, so the first writes decide on which NUMA node its pages are. Throws mx::InvalidArgument
  /// unless both are positive.
  TiledMatrix(int64_t n, int64_t tile);

  int64_t n() const { return n_; }
  int64_t tile_size() const { return tile_; }
  /// Tiles per row and column.
  int64_t tiles() const { return tiles_; }
  /// Tiles stored, and the place of (i, j) among them, i >= j.
  int64_t stored() const { return index(tiles_, 0); }
  int64_t index(int64_t i, int64_t j) const { return i * (i + 1) / 2 + j; }
  /// Rows of the tiles of block row i.
  int64_t rows(int64_t i) const { return i + 1 < tiles_ ? tile_ : n_ - i * tile_; }
  Tile tile(int64_t i, int64_t j) const {
    return {data_[static_cast<size_t>(index(i, j))].get(), rows(i), rows(j)};
  }

 private:
  int64_t n_;
  int64_t tile_;
  int64_t tiles_;
  std::vector<std::unique_ptr<double[]>> data_;
};

/// Writes tile (i, j) of the test matrix of order n: symmetric, pseudo-random in [-1, 1) off the diagonal and
/// 2 sqrt(n) on it. The eigenvalues of such a matrix lie between 0.8 sqrt(n) and 3.2 sqrt(n) for large n
/// (Wigner's semicircle), so it is positive definite, and no part of it is negligible compared with another.
void fill_tile(int64_t n, int64_t tile_size, int64_t i, int64_t j, const Tile& out);

/// Returns true if both matrices have the same bits.
bool same_bits(const TiledMatrix& a, const TiledMatrix& b);

}  // namespace cholesky
