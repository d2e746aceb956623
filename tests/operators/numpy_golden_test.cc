// The functions with NumPy's names give NumPy's values, which golden/make_numpy.py computed.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "operators/operators.h"
#include "tests/operators/golden_arrays.h"

namespace mx {
namespace {

using test::formula_numbers;
using test::kInfinity;
using test::kNan;

const char* const kNumpyGolden =
#include <golden_numpy.inc>
    ;

// For f64, nearly all bits must agree; sums may be in another order.
void expect_golden(const std::string& name, const NDArray& got, double tolerance = 1e-13) {
  static const test::GoldenArrays all(kNumpyGolden);
  all.expect(name, got, tolerance);
}

// The inputs of make_numpy.py.
NDArray formula_holes(const Shape& shape) {
  const NDArray x = formula_numbers(shape);
  return mx::where((arange(shape.numel()) % 7 == 2).reshape(shape), kNan, x);
}
NDArray formula_whole(const Shape& shape) {
  return ((arange(shape.numel()) * 7919 + 13) % 11).reshape(shape);
}

const Shape kCube = {3, 4, 5};
const std::vector<double> kShares = {0, 0.1, 0.37, 0.5, 0.75, 1};

TEST(NumpyGolden, NanReductions) {
  const NDArray h = formula_holes(kCube);
  const auto check = [&](const std::string& name, NDArray (*f)(const Arg&, const Axes&, bool)) {
    expect_golden(name + "/all", f(h, {}, false));
    expect_golden(name + "/1", f(h, 1, false));
    expect_golden(name + "/-1,0", f(h, {-1, 0}, false));
    EXPECT_EQ((Shape{3, 1, 5}), f(h, 1, true).shape());
  };
  check("nansum", nansum);
  check("nanprod", nanprod);
  check("nanmean", nanmean);
  check("nanmax", nanmax);
  check("nanmin", nanmin);
  check("nanmedian", nanmedian);
  expect_golden("nanargmax/1", nanargmax(h, 1));
  expect_golden("nanargmin/-1", nanargmin(h, -1));
  expect_golden("nanvar/1", nanvar(h, 1));
  expect_golden("nanstd/all", nanstd(h, {}, 0));
}

TEST(NumpyGolden, Quantiles) {
  const NDArray x = formula_numbers(kCube), h = formula_holes(kCube);
  const std::pair<const char*, Interpolation> methods[] = {{"linear", Interpolation::linear},
                                                           {"lower", Interpolation::lower},
                                                           {"higher", Interpolation::higher},
                                                           {"nearest", Interpolation::nearest},
                                                           {"midpoint", Interpolation::midpoint}};
  for (const auto& [name, how] : methods) {
    expect_golden(std::string("quantile/") + name, quantile(x, kShares, 1, false, how));
    expect_golden(std::string("nanquantile/") + name, nanquantile(h, kShares, 2, false, how));
  }
  expect_golden("median/all", median(x));
  expect_golden("median/0,2", median(x, {0, 2}));
  expect_golden("median/ints", median(formula_whole({4, 6}), 1));
  EXPECT_EQ(f32, median(formula_whole({4, 6}), 1).dtype());
  expect_golden("quantile/nan", quantile(h, 0.5, 1));
  EXPECT_EQ(test::values(quantile(x, 0.37, 1)), test::values(percentile(x, 37, 1)));
  EXPECT_EQ(test::values(quantile(x, {0.25, 0.75}, 1)), test::values(percentile(x, {25, 75}, 1)));
}

TEST(NumpyGolden, Statistics) {
  const NDArray x = formula_numbers(kCube), m = x[0];
  const NDArray f = array<int64_t>({1, 2, 0, 3, 1}), a = array({0.5, 2., 1., 3., 1.});
  expect_golden("average/1", average(x, array<int64_t>({1, 2, 3, 4}), 1));
  expect_golden("average/all", average(x, abs(x)));
  expect_golden("ptp/1", ptp(x, 1));
  expect_golden("cov", cov(m));
  expect_golden("cov/0", cov(m, {.correction = 0}));
  expect_golden("cov/columns", cov(m, {.rows = false}));
  expect_golden("cov/vector", cov(m[0]));
  expect_golden("cov/f", cov(m, {.fweights = f}));
  expect_golden("cov/a", cov(m, {.aweights = a}));
  expect_golden("cov/fa", cov(m, {.fweights = f, .aweights = a}));
  expect_golden("corrcoef", corrcoef(m));
  expect_golden("corrcoef/columns", corrcoef(m, false));
}

TEST(NumpyGolden, Histograms) {
  const NDArray x = formula_numbers(kCube), h = formula_holes(kCube), w = formula_whole({24});
  expect_golden("bincount", bincount(w));
  expect_golden("bincount/weights", bincount(w, formula_numbers({24}), 14));
  expect_golden("histogram", histogram(x).counts);
  expect_golden("histogram/edges", histogram(x).edges);
  expect_golden("histogram/range", histogram(h, {.bins = 7, .range = {{-4, 3}}}).counts);
  expect_golden("histogram/weights", histogram(x, {.bins = 5, .weights = x * x}).counts);
  expect_golden("histogram/density", histogram(x, {.bins = 5, .density = true}).counts);
  const NDArray uneven = array({-5., -4.5, 0., 0.125, 6.25});
  expect_golden("histogram/uneven", histogram(x, uneven).counts);
  expect_golden("histogram/uneven density", histogram(x, uneven, {}, true).counts);
  const NDArray edges = array({-5., -2., -2., 0.125, 4.});
  expect_golden("digitize", digitize(x, edges));
  expect_golden("digitize/right", digitize(x, edges, true));
  expect_golden("digitize/down", digitize(x, flip(edges)));
  expect_golden("digitize/down right", digitize(x, flip(edges), true));
}

TEST(NumpyGolden, Arranging) {
  const NDArray x = formula_numbers(kCube), m = x[0], line = arange(1., 4., 1.).to(f64);
  expect_golden("diff", diff(x));
  expect_golden("diff/2,0", diff(x, 2, 0));
  expect_golden("diff/joined", diff(x, 1, 1, x[{colon, Slice{0, 1}}], formula_numbers({3, 2, 5})));
  expect_golden("diag/up", diag(line, 2));
  expect_golden("diag/down", diag(line, -1));
  expect_golden("diag/of", diag(m, -1));
  expect_golden("window", sliding_window(x, 3, 1));
  expect_golden("window/2", sliding_window(m, Shape{2, 3}));
  for (int64_t k = -1; k < 4; ++k) expect_golden("rot90/" + std::to_string(k), rot90(x, k));
  expect_golden("rot90/axes", rot90(x, 1, {2, 0}));
  const NDArray steps = arange(0., 3., 1.).to(f64);
  expect_golden("column_stack", column_stack({steps, m.slice(0, {0, 3}), steps * 2}));
  expect_golden("logspace", logspace(-2, 3, 7, 10, f64));
  expect_golden("logspace/2", logspace(0, 10, 11, 2, f64));
  expect_golden("geomspace", geomspace(1, 1000, 7, f64));
  expect_golden("geomspace/-", geomspace(-2, -0.125, 5, f64));
  const std::vector<NDArray> parts = array_split(x, 4, 2);
  for (size_t i = 0; i < parts.size(); ++i) expect_golden("array_split/" + std::to_string(i), parts[i]);
}

TEST(NumpyGolden, Products) {
  const NDArray x = formula_numbers(kCube), m = x[0];
  expect_golden("inner", inner(x, formula_numbers({2, 5})));
  expect_golden("tensordot/2", tensordot(x, formula_numbers({4, 5, 2})));
  expect_golden("tensordot/0", tensordot(m, formula_numbers({2}), 0));
  expect_golden("tensordot/axes", tensordot(x, formula_numbers({5, 2, 3}), {0, 2}, {2, 0}));
  expect_golden("kron", kron(m[{Slice{0, 2}, Slice{0, 3}}], formula_numbers({3, 2})));
  expect_golden("kron/ranks", kron(x, formula_numbers({2})));
  expect_golden("cross", cross(formula_numbers({4, 3}), flip(formula_numbers({3}))));
  expect_golden("cross/0", cross(formula_numbers({3, 4}), flip(formula_numbers({3, 4}), {0}), 0));
  expect_golden("trace", trace(x));
  expect_golden("trace/1", trace(x, 1, 2, 1));
  const NDArray other = x[{1, Slice{0, 3}}];
  expect_golden("cdist/1", cdist(m, other, 1));
  expect_golden("cdist/2", cdist(m, other));
  expect_golden("cdist/3", cdist(m, other, 3));
  expect_golden("cdist/0.5", cdist(m, other, 0.5));
  expect_golden("cdist/inf", cdist(m, other, kInfinity));
}

TEST(NumpyGolden, SpecialFunctions) {
  const NDArray x = formula_numbers(kCube);
  const double below = 1 - 0x1p-53;
  expect_golden(
      "erfinv",
      erfinv(array({-1., -0.999999, -0.9, -0.5, -1e-300, 0., 1e-10, 0.3, 0.85, 0.97, below, 1., 1.5})));
  expect_golden("logit", logit(array({0., 1e-300, 0.1, 0.4999, 0.5, 0.5000001, 0.9, below, 1., 2.})));
  expect_golden("xlogy",
                xlogy(array({0., 0., 0., 1., 2., -1., 0.}), array({0., -1., kNan, 0., 3., 3., kInfinity})));
  expect_golden("round/1", round(x, 1));
  expect_golden("round/-1", round(x * 10, -1));
  expect_golden("round/ints", round(array<int64_t>({-25, -15, -5, 5, 15, 25, 149, 151}), -1));
  expect_golden("nan_to_num", nan_to_num(array({kNan, kInfinity, -kInfinity, 1.5})));
  const NDArray a = array<int64_t>({0, 12, -18, -128}).expand_dims(1), b = array<int64_t>({0, 8, 27, 64});
  expect_golden("gcd", gcd(a, b));
  expect_golden("lcm", lcm(a, b));
}

TEST(NumpyGolden, SetsAndOrders) {
  const NDArray a = formula_whole({20}) * 3, b = formula_whole({15}) * 2;
  expect_golden("isin", isin(a, b));
  expect_golden("union1d", union1d(a, b));
  expect_golden("intersect1d", intersect1d(a, b));
  expect_golden("setdiff1d", setdiff1d(a, b));
  expect_golden("setxor1d", setxor1d(a, b));
  const NDArray with_nan = array({1., kNan, 2.}), other = array({kNan, 2., 3.});
  expect_golden("nan/union1d", union1d(with_nan, other));
  expect_golden("nan/intersect1d", intersect1d(with_nan, other));
  expect_golden("nan/setdiff1d", setdiff1d(with_nan, other));
  expect_golden("nan/setxor1d", setxor1d(with_nan, other));
  expect_golden("lexsort", lexsort({formula_numbers({24}), formula_whole({24})}));
  expect_golden("lexsort/0", lexsort({formula_numbers({4, 6}), formula_whole({4, 6})}, 0));
}

}  // namespace
}  // namespace mx
