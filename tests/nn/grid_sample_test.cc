// grid_sample and affine_grid against PyTorch's, as tests/nn/golden/make_grid_sample.py wrote them.
#include "operators/grid_sample.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "executor/autograd/gradcheck.h"
#include "operators/operators.h"
#include "tests/nn/golden.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::golden_numbers;

const char kGridSampleGolden[] =
#include <golden_grid_sample.inc>
    ;

TEST(GridSample, HasThePositionsValuesAndGradientsOfPyTorch) {
  test::GoldenFile file{kGridSampleGolden};
  for (const std::string mode : {"bilinear", "nearest"})
    for (const std::string padding : {"zeros", "border"})
      for (const bool corners : {false, true}) {
        const NDArray x = golden_numbers({2, 3, 4, 5}, 1).requires_grad_();
        const NDArray grid = (golden_numbers({2, 3, 2, 2}, 2) * 0.97).detach().requires_grad_();
        const NDArray y =
            grid_sample(x, grid, {.mode = mode, .padding_mode = padding, .align_corners = corners});
        y.backward(golden_numbers(y.shape(), 3));
        const std::string name = mode + ' ' + padding + (corners ? " True" : " False");
        file.expect(name + " y", y);
        file.expect(name + " dx", x.grad());
        file.expect(name + " dgrid", grid.grad().defined() ? grid.grad() : zeros_like(grid));
      }
  for (const bool corners : {false, true}) {
    const NDArray theta = golden_numbers({2, 2, 3}, 4).requires_grad_();
    const NDArray grid = affine_grid(theta, {2, 3, 4, 5}, corners);
    grid.backward(golden_numbers(grid.shape(), 5));
    const std::string name = corners ? "affine True" : "affine False";
    file.expect(name + " y", grid);
    file.expect(name + " dtheta", theta.grad());
  }
  EXPECT_EQ(0u, file.unused());
}

TEST(GridSample, TheIdentityGivesTheImage) {
  const NDArray x = golden_numbers({1, 2, 3, 4}, 1), theta = array({{{1., 0., 0.}, {0., 1., 0.}}});
  for (const bool corners : {false, true})
    for (const std::string mode : {"bilinear", "nearest"}) {
      const NDArray grid = affine_grid(theta, x.shape(), corners);
      EXPECT_TRUE(allclose(x, grid_sample(x, grid, {.mode = mode, .align_corners = corners}), 1e-12, 1e-12));
    }
  EXPECT_EQ(f16, grid_sample(x.to(f16), affine_grid(theta, x.shape())).dtype());
}

TEST(GridSample, PositionsFarOutsideAndNanAreDefined) {
  const NDArray x = array({1., 2., 3., 4.}).reshape({1, 1, 2, 2});
  const double inf = INFINITY, nan = std::nan("");
  const NDArray grid = array({inf, -inf, -1e300, 0., nan, nan}).reshape({1, 1, 3, 2});
  const auto values = [&](const std::string& padding) {
    return grid_sample(x, grid, {.padding_mode = padding, .align_corners = true}).to_vector<double>();
  };
  EXPECT_EQ((std::vector<double>{0, 0, 1}), values("zeros"));
  EXPECT_EQ((std::vector<double>{2, 2, 1}), values("border"));
}

TEST(GridSample, SecondDerivativesAgreeWithDifferences) {
  const NDArray x = golden_numbers({1, 2, 3, 4}, 1), grid = golden_numbers({1, 2, 2, 2}, 2) * 0.47;
  const auto gradient = [](const NDArray& a, const NDArray& b) {
    return grad([](const NDArray& p, const NDArray& q) { return sum(square(grid_sample(p, q))); }, 1)(a, b);
  };
  EXPECT_TRUE(gradcheck(gradient, {x, grid}));
}

TEST(GridSample, RefusesOtherShapesTypesAndModes) {
  const NDArray x = ones({2, 3, 4, 5}), grid = zeros({2, 3, 2, 2});
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                         grid_sample(x, zeros({1, 3, 2, 2}));
                       }),
                       "grid_sample_test.cc"));
  error_of<InvalidArgument>([&] { grid_sample(x[0], grid); });
  error_of<InvalidArgument>([&] { grid_sample(x.to(i64), grid); });
  error_of<InvalidArgument>([&] { grid_sample(x, grid, {.mode = "bicubic"}); });
  error_of<InvalidArgument>([&] { grid_sample(x, grid, {.padding_mode = "reflection"}); });
  error_of<InvalidArgument>([&] { grid_sample(zeros({2, 3, 0, 5}), grid); });
  error_of<InvalidArgument>([&] { affine_grid(zeros({2, 3, 3}), {2, 3, 4, 5}); });
  error_of<InvalidArgument>([&] { affine_grid(zeros({2, 2, 3}), {1, 3, 4, 5}); });
  EXPECT_EQ((Shape{2, 3, 0, 2}), grid_sample(x, zeros({2, 0, 2, 2})).shape());
}

}  // namespace
}  // namespace mx
