// Compares the kernels of the example with plain loops, and checks that the residual detects a damaged
// result.
#include <gtest/gtest.h>

#include <array>
#include <random>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "engine/engine.h"
#include "examples/cholesky/factorise.h"
#include "examples/cholesky/simd_kernels.h"

namespace cholesky {
namespace {

/// A column-major tile that owns its memory.
class Block {
 public:
  Block(int64_t rows, int64_t cols)
      : values_(static_cast<size_t>(rows * cols)), tile_{values_.data(), rows, cols} {}
  Block(const Block& other)
      : values_(other.values_), tile_{values_.data(), other.tile_.rows, other.tile_.cols} {}
  Block& operator=(const Block&) = delete;
  double& operator()(int64_t r, int64_t c) { return tile_.data[c * tile_.rows + r]; }
  double operator()(int64_t r, int64_t c) const { return tile_.data[c * tile_.rows + r]; }
  const Tile& tile() const { return tile_; }
  int64_t rows() const { return tile_.rows; }
  int64_t cols() const { return tile_.cols; }

 private:
  std::vector<double> values_;
  Tile tile_;
};

Block random_block(int64_t rows, int64_t cols, uint32_t seed) {
  std::mt19937 generator(seed);
  std::uniform_real_distribution<double> uniform(-1, 1);
  Block block(rows, cols);
  for (int64_t c = 0; c < cols; ++c) {
    for (int64_t r = 0; r < rows; ++r) block(r, c) = uniform(generator);
  }
  return block;
}

Block random_lower(int64_t n, uint32_t seed) {
  Block block = random_block(n, n, seed);
  for (int64_t c = 0; c < n; ++c) {
    for (int64_t r = 0; r < c; ++r) block(r, c) = 0;
    block(c, c) = static_cast<double>(n) + 1;
  }
  return block;
}

Block product_with_transposed(const Block& a, const Block& b) {
  Block c(a.rows(), b.rows());
  for (int64_t j = 0; j < c.cols(); ++j) {
    for (int64_t i = 0; i < c.rows(); ++i) {
      for (int64_t k = 0; k < a.cols(); ++k) c(i, j) += a(i, k) * b(j, k);
    }
  }
  return c;
}

void expect_near(const Block& got, const Block& expected, double tolerance) {
  for (int64_t c = 0; c < got.cols(); ++c) {
    for (int64_t r = 0; r < got.rows(); ++r) {
      ASSERT_NEAR(got(r, c), expected(r, c), tolerance) << "row " << r << ", column " << c;
    }
  }
}

class EverySimdKernel : public ::testing::TestWithParam<int> {};

TEST_P(EverySimdKernel, ProductMatchesThePlainLoop) {
  const auto& kernels = detail::simd_kernels(GetParam());
  SCOPED_TRACE(kernels.name);
  // Sizes below, at and above the register block and the cache block, in each dimension.
  for (const auto [m, n, k] :
       {std::array<int64_t, 3>{1, 1, 1}, {16, 8, 32}, {17, 9, 3}, {33, 31, 257}, {7, 40, 600}}) {
    const Block a = random_block(m, k, 1), b = random_block(n, k, 2), c = random_block(m, n, 3);
    const Block product = product_with_transposed(a, b);
    Block expected(c), got(c);
    for (int64_t j = 0; j < n; ++j) {
      for (int64_t i = 0; i < m; ++i) expected(i, j) -= product(i, j);
    }
    kernels.gemm(m, n, k, a.tile().data, m, b.tile().data, n, got.tile().data, m);
    expect_near(got, expected, 1e-12);
  }
}

TEST_P(EverySimdKernel, SolveUndoesTheProduct) {
  const auto& kernels = detail::simd_kernels(GetParam());
  SCOPED_TRACE(kernels.name);
  for (const auto [m, n] : {std::array<int64_t, 2>{1, 1}, {5, 3}, {32, 32}, {77, 32}, {100, 17}}) {
    const Block x = random_block(m, n, 4), l = random_lower(n, 5);
    Block b = product_with_transposed(x, l);
    kernels.solve(m, n, l.tile().data, n, b.tile().data, m);
    expect_near(b, x, 1e-12);
  }
}

INSTANTIATE_TEST_SUITE_P(All, EverySimdKernel, ::testing::Range(0, detail::num_simd_kernels()));

TEST(TileKernels, PotrfGivesTheFactorAndZerosAboveIt) {
  for (const int64_t n : {1, 2, 31, 32, 33, 100}) {
    const Block l = random_lower(n, 6);
    Block a = product_with_transposed(l, l);
    potrf(a.tile());
    expect_near(a, l, 1e-10 * static_cast<double>(n));
    for (int64_t c = 1; c < n; ++c) EXPECT_EQ(a(0, c), 0.0);
  }
}

TEST(TileKernels, PotrfNamesThePivotOfAMatrixThatIsNotPositiveDefinite) {
  Block a = random_lower(40, 7);
  a(35, 35) = -1e6;
  try {
    potrf(a.tile());
    FAIL() << "factorised an indefinite matrix";
  } catch (const mx::InvalidArgument& e) {
    EXPECT_NE(std::string(e.what()).find("row 35"), std::string::npos) << e.what();
  }
}

TEST(TileKernels, TrsmSolvesAgainstTheWholeTriangle) {
  const Block x = random_block(50, 70, 8), l = random_lower(70, 9);
  Block b = product_with_transposed(x, l);
  trsm(l.tile(), b.tile());
  expect_near(b, x, 1e-11);
}

TEST(TileKernels, SyrkUpdatesTheLowerTriangle) {
  const Block a = random_block(90, 33, 10), before = random_block(90, 90, 11);
  const Block product = product_with_transposed(a, a);
  Block c(before);
  syrk(a.tile(), c.tile());
  for (int64_t j = 0; j < 90; ++j) {
    for (int64_t i = j; i < 90; ++i) ASSERT_NEAR(c(i, j), before(i, j) - product(i, j), 1e-12);
  }
}

TEST(Factorisation, ResidualNoticesOneDamagedElementInAnyTile) {
  constexpr int64_t kOrder = 100;
  const TiledMatrix matrix(kOrder, 32);
  mx::Engine engine(mx::EngineOptions{.threads = 2});
  const TileVars vars(engine, matrix);
  push_fill(engine, matrix, vars);
  push_factorisation(engine, matrix, vars);
  EXPECT_LE(residual(engine, matrix, vars), residual_limit(kOrder));
  for (int64_t i = 0; i < matrix.tiles(); ++i) {
    for (int64_t j = 0; j <= i; ++j) {
      double& element = matrix.tile(i, j).data[matrix.rows(i) - 1];
      const double good = element;
      element += 1e-6;
      EXPECT_GT(residual(engine, matrix, vars), residual_limit(kOrder)) << "tile " << i << ", " << j;
      element = good;
    }
  }
}

TEST(Factorisation, FailureOfOneTileReachesTheCallerWithItsCause) {
  const TiledMatrix matrix(96, 32);
  mx::Engine engine(mx::EngineOptions{.threads = 2});
  const TileVars vars(engine, matrix);
  push_fill(engine, matrix, vars);
  engine.push([&matrix] { matrix.tile(1, 1).data[0] = -1; }, {.updates = {vars(1, 1)}, .name = "spoil"});
  push_factorisation(engine, matrix, vars);
  try {
    engine.wait(vars(2, 2));
    FAIL() << "the last tile needs the one that failed";
  } catch (const mx::Error& e) {
    EXPECT_NE(std::string(e.what()).find("positive definite"), std::string::npos) << e.what();
  }
  EXPECT_NO_THROW(engine.wait(vars(1, 0)));  // tiles that do not depend on the failure are good
  EXPECT_THROW(engine.wait_all(), mx::Error);
}

TEST(Factorisation, StepsKeepSerialOrderOfEveryTile) {
  // The potrf of a column comes before its trsm, and the trsm before the updates that read its result.
  const std::vector<Step> list = steps(5);
  EXPECT_EQ(list.size(), 5u + 10 + 10 + 10);
  for (size_t s = 1; s < list.size(); ++s) EXPECT_LE(list[s - 1].k, list[s].k);
}

}  // namespace
}  // namespace cholesky
