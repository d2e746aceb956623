#include "examples/cholesky/factorise.h"

#include <cmath>
#include <limits>

namespace cholesky {

std::vector<Step> steps(int64_t tiles) {
  std::vector<Step> list;
  for (int64_t k = 0; k < tiles; ++k) {
    list.push_back({Kernel::potrf, k, k, k});
    for (int64_t i = k + 1; i < tiles; ++i) list.push_back({Kernel::trsm, i, k, k});
    for (int64_t j = k + 1; j < tiles; ++j) {
      list.push_back({Kernel::syrk, j, j, k});
      for (int64_t i = j + 1; i < tiles; ++i) list.push_back({Kernel::gemm, i, j, k});
    }
  }
  return list;
}

void run(const Step& step, const TiledMatrix& matrix) {
  const auto [kernel, i, j, k] = step;
  switch (kernel) {
    case Kernel::potrf:
      return potrf(matrix.tile(k, k));
    case Kernel::trsm:
      return trsm(matrix.tile(k, k), matrix.tile(i, k));
    case Kernel::syrk:
      return syrk(matrix.tile(j, k), matrix.tile(j, j));
    case Kernel::gemm:
      return gemm(matrix.tile(i, k), matrix.tile(j, k), matrix.tile(i, j));
  }
}

TileVars::TileVars(mx::Engine& engine, const TiledMatrix& matrix) : engine_(engine), matrix_(matrix) {
  vars_.reserve(static_cast<size_t>(matrix.stored()));
  for (int64_t t = 0; t < matrix.stored(); ++t) vars_.push_back(engine.new_var("tile"));
}

TileVars::~TileVars() {
  for (const mx::Var v : vars_) engine_.delete_var(v);
}

void push_fill(mx::Engine& engine, const TiledMatrix& matrix, const TileVars& vars) {
  for (int64_t i = 0; i < matrix.tiles(); ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      engine.push([&matrix, i, j] { fill_tile(matrix.n(), matrix.tile_size(), i, j, matrix.tile(i, j)); },
                  {.writes = {vars(i, j)}, .name = "fill"});
    }
  }
}

void push_factorisation(mx::Engine& engine, const TiledMatrix& matrix, const TileVars& vars) {
  for (const Step& step : steps(matrix.tiles())) {
    const auto [kernel, i, j, k] = step;
    const auto body = [&matrix, step] { run(step, matrix); };
    // Each block column depends on its potrf, and all later work depends on a block column. So steps on the
    // critical path and steps for the next column get higher priorities.
    const int next = j == k + 1 ? 1 : 0;
    switch (kernel) {
      case Kernel::potrf:
        engine.push(body, {.updates = {vars(k, k)}, .priority = 3, .name = "potrf"});
        break;
      case Kernel::trsm:
        engine.push(body, {.reads = {vars(k, k)}, .updates = {vars(i, k)}, .priority = 2, .name = "trsm"});
        break;
      case Kernel::syrk:
        engine.push(body, {.reads = {vars(j, k)}, .updates = {vars(j, j)}, .priority = next, .name = "syrk"});
        break;
      case Kernel::gemm:
        engine.push(
            body,
            {.reads = {vars(i, k), vars(j, k)}, .updates = {vars(i, j)}, .priority = next, .name = "gemm"});
        break;
    }
  }
}

double residual(mx::Engine& engine, const TiledMatrix& factor, const TileVars& vars) {
  struct Sums {
    double difference = 0;
    double matrix = 0;
  };
  std::vector<Sums> sums(static_cast<size_t>(factor.stored()));
  for (int64_t i = 0; i < factor.tiles(); ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      // Tile (i, j) of L L^T needs the block rows i and j of L up to column j.
      std::vector<mx::Var> reads;
      for (int64_t k = 0; k <= j; ++k) {
        reads.push_back(vars(i, k));
        reads.push_back(vars(j, k));
      }
      Sums& out = sums[static_cast<size_t>(factor.index(i, j))];
      const auto body = [&factor, &out, i, j] {
        const Tile like = factor.tile(i, j);
        std::vector<double> values(static_cast<size_t>(like.rows * like.cols));
        const Tile tile{values.data(), like.rows, like.cols};
        fill_tile(factor.n(), factor.tile_size(), i, j, tile);
        for (const double v : values) out.matrix += v * v;
        for (int64_t k = 0; k <= j; ++k) gemm(factor.tile(i, k), factor.tile(j, k), tile);
        for (const double v : values) out.difference += v * v;
      };
      engine.push(body, {.reads = reads, .name = "residual"});
    }
  }
  engine.wait_all();

  Sums total;
  for (int64_t i = 0; i < factor.tiles(); ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      const Sums& part = sums[static_cast<size_t>(factor.index(i, j))];
      const double weight = i == j ? 1 : 2;  // the tile above the diagonal is the same, transposed
      total.difference += weight * part.difference;
      total.matrix += weight * part.matrix;
    }
  }
  return std::sqrt(total.difference / total.matrix);
}

double residual_limit(int64_t n) {
  return 10 * std::sqrt(static_cast<double>(n)) * std::numeric_limits<double>::epsilon();
}

}  // namespace cholesky
