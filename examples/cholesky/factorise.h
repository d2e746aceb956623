// The tiled Cholesky factorisation: one list of steps, run in order or handed to the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "engine/engine.h"
#include "examples/cholesky/tiled_matrix.h"

namespace cholesky {

enum class Kernel { potrf, trsm, syrk, gemm };

/// One kernel on tiles of block rows i >= j and block column k:
/// potrf on (k, k); trsm on (i, k) with (k, k); syrk on (j, j) with (j, k); gemm on (i, j) with (i, k), (j,
/// k).
struct Step {
  Kernel kernel;
  int64_t i;
  int64_t j;
  int64_t k;
};

/// The whole factorisation as a serial program.
std::vector<Step> steps(int64_t tiles);

/// Executes one step now, on this thread.
void run(const Step& step, const TiledMatrix& matrix);

/// One engine variable per stored tile, deleted with this object.
class TileVars {
 public:
  TileVars(mx::Engine& engine, const TiledMatrix& matrix);
  ~TileVars();
  TileVars(const TileVars&) = delete;
  TileVars& operator=(const TileVars&) = delete;
  mx::Var operator()(int64_t i, int64_t j) const { return vars_[static_cast<size_t>(matrix_.index(i, j))]; }

 private:
  mx::Engine& engine_;
  const TiledMatrix& matrix_;
  std::vector<mx::Var> vars_;
};

/// Queues the filling of every tile with the test matrix.
void push_fill(mx::Engine& engine, const TiledMatrix& matrix, const TileVars& vars);

/// Queues the factorisation: the same steps in the same order, each with the tiles that it reads and updates.
/// The engine derives the parallelism from these declarations alone.
void push_factorisation(mx::Engine& engine, const TiledMatrix& matrix, const TileVars& vars);

/// ||A - L L^T|| / ||A|| in the Frobenius norm, where A is the test matrix of this order and L is the lower
/// triangle in `factor`. Runs on the engine; sums in a fixed order, so the result does not depend on the
/// schedule. `vars` are those of `factor`.
double residual(mx::Engine& engine, const TiledMatrix& factor, const TileVars& vars);

/// The largest residual that rounding explains for order n.
double residual_limit(int64_t n);

}  // namespace cholesky
