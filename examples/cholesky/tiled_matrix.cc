#include "examples/cholesky/tiled_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/base/check.h"

namespace cholesky {

namespace {

// SplitMix64 (Steele, Lea and Flood, 2014) as a hash: every element depends only on its position, so tiles
// can be filled in any order, and computed again for the residual.
double uniform(uint64_t place) {
  uint64_t z = (place + 1) * 0x9e3779b97f4a7c15u;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  z ^= z >> 31;
  return static_cast<double>(z >> 11) * 0x1p-52 - 1.0;
}

}  // namespace

TiledMatrix::TiledMatrix(int64_t n, int64_t tile) : n_(n), tile_(tile), tiles_(0) {
  MX_CHECK(n > 0 && tile > 0, mx::InvalidArgument, "[matrix] expected a positive order and tile size, got ",
           n, " and ", tile);
  tiles_ = (n + tile - 1) / tile;
  data_.reserve(static_cast<size_t>(stored()));
  for (int64_t i = 0; i < tiles_; ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      data_.push_back(std::make_unique_for_overwrite<double[]>(static_cast<size_t>(rows(i) * rows(j))));
    }
  }
}

void fill_tile(int64_t n, int64_t tile_size, int64_t i, int64_t j, const Tile& out) {
  for (int64_t c = 0; c < out.cols; ++c) {
    for (int64_t r = 0; r < out.rows; ++r) {
      const auto [low, high] = std::minmax({i * tile_size + r, j * tile_size + c});
      out.data[c * out.rows + r] = low == high ? 2 * std::sqrt(static_cast<double>(n))
                                               : uniform(static_cast<uint64_t>(high * n + low));
    }
  }
}

bool same_bits(const TiledMatrix& a, const TiledMatrix& b) {
  if (a.n() != b.n() || a.tile_size() != b.tile_size()) return false;
  for (int64_t i = 0; i < a.tiles(); ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      const Tile left = a.tile(i, j);
      const size_t bytes = static_cast<size_t>(left.rows * left.cols) * sizeof(double);
      if (std::memcmp(left.data, b.tile(i, j).data, bytes) != 0) return false;
    }
  }
  return true;
}

}  // namespace cholesky
