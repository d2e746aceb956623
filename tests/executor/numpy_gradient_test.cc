// Gradients of the functions with NumPy's names. They are composed of operators, so these tests show that
// none of those operators stops a gradient or spreads NaN.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "executor/autograd/autograd.h"
#include "operators/operators.h"
#include "tests/support/numeric_gradient.h"

namespace mx {
namespace {

using Arrays = std::vector<NDArray>;
using Made = std::function<NDArray(const Arrays&)>;

const double kNoNumber = std::numeric_limits<double>::quiet_NaN();

/// Compares the gradients of sum(weight * f), where f may have any shape, with finite differences.
void expect_gradients_through(const char* name, const Made& f, const Arrays& arguments) {
  SCOPED_TRACE(name);
  const NDArray weight = test::some(f(arguments).shape(), 9);
  test::expect_gradients([&](const Arrays& a) { return sum(f(a) * weight); }, arguments, 2e-6);
}

/// Returns the gradient of sum(f(x)).
std::vector<double> gradient_at(const std::function<NDArray(const NDArray&)>& f, const NDArray& at) {
  const NDArray x = at.clone().requires_grad_();
  sum(f(x)).backward();
  return x.grad().defined() ? x.grad().to_vector<double>()
                            : std::vector<double>(static_cast<size_t>(x.numel()));
}

TEST(NumpyGradients, OfReductionsWithoutNan) {
  const NDArray x = test::some({3, 4}), hole = mx::where(arange(12).reshape({3, 4}) % 5 == 1, kNoNumber, 0);
  const auto with_hole = [&](NDArray (*f)(const Arg&, const Axes&, bool)) {
    return [f, hole](const Arrays& a) { return f(mx::where(isnan(hole), kNoNumber, a[0]), 1, false); };
  };
  expect_gradients_through("nansum", with_hole(nansum), {x});
  expect_gradients_through("nanprod", with_hole(nanprod), {x});
  expect_gradients_through("nanmean", with_hole(nanmean), {x});
  expect_gradients_through("nanmax", with_hole(nanmax), {x});
  expect_gradients_through("nanmin", with_hole(nanmin), {x});
  expect_gradients_through("nanmedian", with_hole(nanmedian), {x});
  const Made variance = [&](const Arrays& a) { return nanvar(mx::where(isnan(hole), kNoNumber, a[0]), 1); };
  expect_gradients_through("nanvar", variance, {x});
  expect_gradients_through("nanstd", [&](const Arrays& a) { return sqrt(variance(a)); }, {x});
}

TEST(NumpyGradients, AreZeroWhereNanIs) {
  const NDArray x = array({1., kNoNumber, 3.});
  const auto nan_free = [&](const char* name, std::vector<double> want, const auto& f) {
    EXPECT_EQ(want, gradient_at(f, x)) << name;
  };
  nan_free("nansum", {1, 0, 1}, [](const NDArray& a) { return nansum(a); });
  nan_free("nanmean", {0.5, 0, 0.5}, [](const NDArray& a) { return nanmean(a); });
  nan_free("nanvar", {-2, 0, 2}, [](const NDArray& a) { return nanvar(a); });
  nan_free("nanmax", {0, 0, 1}, [](const NDArray& a) { return nanmax(a); });
  nan_free("nan_to_num", {1, 0, 1}, [](const NDArray& a) { return nan_to_num(a); });
}

TEST(NumpyGradients, OfQuantiles) {
  const NDArray x = test::some({3, 4});
  expect_gradients_through("median", [](const Arrays& a) { return median(a[0], 1); }, {x});
  expect_gradients_through("odd", [](const Arrays& a) { return median(a[0], 0); }, {x});
  expect_gradients_through("quantiles", [](const Arrays& a) { return quantile(a[0], {0.1, 0.62}, 1); }, {x});
  expect_gradients_through("nanquantile", [](const Arrays& a) { return nanquantile(a[0], 0.3); }, {x});
}

TEST(NumpyGradients, OfStatistics) {
  const NDArray x = test::some({3, 4}), w = test::some({4}, 2);
  expect_gradients_through("average", [](const Arrays& a) { return average(a[0], a[1], 1); }, {x, w});
  expect_gradients_through("ptp", [](const Arrays& a) { return ptp(a[0], 1); }, {x});
  expect_gradients_through("cov", [](const Arrays& a) { return cov(a[0]); }, {x});
  expect_gradients_through("aweights", [](const Arrays& a) { return cov(a[0], {.aweights = a[1]}); }, {x, w});
  expect_gradients_through("corrcoef", [](const Arrays& a) { return corrcoef(a[0])[0][1]; }, {x});
  const NDArray places = array<int64_t>({2, 0, 2, 1});
  expect_gradients_through("bincount", [&](const Arrays& a) { return bincount(places, a[0]); }, {w});
}

TEST(NumpyGradients, OfArranging) {
  const NDArray x = test::some({3, 4}), v = test::some({4}, 2);
  expect_gradients_through("diff", [](const Arrays& a) { return diff(a[0], 2); }, {x});
  expect_gradients_through("joined", [](const Arrays& a) { return diff(a[0], 1, 0, a[1].expand_dims(0)); },
                           {x, v});
  expect_gradients_through("diag", [](const Arrays& a) { return diag(a[0], -1); }, {v});
  expect_gradients_through("diag of a matrix", [](const Arrays& a) { return diag(a[0], 1); }, {x});
  expect_gradients_through("windows", [](const Arrays& a) { return square(sliding_window(a[0], 3)); }, {x});
  expect_gradients_through("rot90", [](const Arrays& a) { return rot90(a[0], 3) * 2; }, {x});
  expect_gradients_through("unbind", [](const Arrays& a) { return unbind(a[0])[1] * unbind(a[0], 0)[2]; },
                           {x});
  expect_gradients_through("array_split", [](const Arrays& a) { return array_split(a[0], 3, 1)[0]; }, {x});
  expect_gradients_through("column_stack", [](const Arrays& a) { return column_stack({a[0], a[0]}); }, {v});
}

TEST(NumpyGradients, OfProducts) {
  const NDArray a3 = test::some({2, 3}), b3 = test::some({2, 3}, 2), c = test::some({3, 4}, 3);
  expect_gradients_through("inner", [](const Arrays& a) { return inner(a[0], a[1]); }, {a3, b3});
  expect_gradients_through("tensordot", [](const Arrays& a) { return tensordot(a[0], a[1], 1); }, {a3, c});
  expect_gradients_through("kron", [](const Arrays& a) { return kron(a[0], a[1]); }, {a3, b3});
  expect_gradients_through("cross", [](const Arrays& a) { return cross(a[0], a[1]); }, {a3, b3});
  expect_gradients_through("trace", [](const Arrays& a) { return trace(a[0], 1); }, {c});
  for (double p : {1., 1.5, 2., 3., std::numeric_limits<double>::infinity()})
    expect_gradients_through("cdist", [p](const Arrays& a) { return cdist(a[0], a[1], p); }, {a3, b3});
  expect_gradients_through("matrices", [](const Arrays& a) { return einsum("ij,jk->ki", a[0], a[1]); },
                           {a3, c});
  expect_gradients_through("three", [](const Arrays& a) { return einsum("ij,ij,jk->ik", a[0], a[1], a[2]); },
                           {a3, b3, c});
  expect_gradients_through("diagonal", [](const Arrays& a) { return einsum("iij->j", a[0]); },
                           {test::some({2, 2, 3}, 4)});
  // Stacks that are broadcast.
  expect_gradients_through("stacks", [](const Arrays& a) { return cdist(a[0], a[1]); },
                           {test::some({2, 1, 3, 2}, 5), test::some({3, 2, 2}, 6)});
  // The gradient is a direction: the difference of close rows far from 0, divided by their distance.
  const NDArray far = array({{1e6, 1e6}}), near = far + array({{3e-6, -4e-6}});
  const auto direction = gradient_at([&](const NDArray& x) { return cdist(x, near); }, far);
  const std::vector<double> gap = (far - near).to_vector<double>();
  EXPECT_NEAR(gap[0] / std::hypot(gap[0], gap[1]), direction[0], 1e-14);
  EXPECT_NEAR(gap[1] / std::hypot(gap[0], gap[1]), direction[1], 1e-14);
  // Equal rows have distance 0, and the gradient there is 0, not NaN.
  EXPECT_EQ((std::vector<double>{0, 0}),
            gradient_at([](const NDArray& x) { return cdist(x, x.detach()); }, array({{1., 2.}})));
}

// The gradient has a kernel; for a gradient of the gradient it is composed of operators.
TEST(NumpyGradients, OfDistancesAreTheSameByTheKernelAndByOperators) {
  for (const DType type : {f32, f64, f16})
    for (const double p : {0.5, 1., 2., 2.5, 3., std::numeric_limits<double>::infinity()}) {
      SCOPED_TRACE(testing::Message() << type << " order " << p);
      // The first row of each stack of b is a row of a, so its distance is 0. Stacks broadcast.
      const NDArray a = test::some({2, 1, 40, 5}, 3).to(type), b = test::some({3, 70, 5}, 4).to(type);
      b.slice(1, {0, 1}).copy_from(a[{0, 0}].slice(0, {0, 1}).expand_dims(0).broadcast_to({3, 1, 5}));
      const NDArray head = test::some({2, 3, 40, 70}, 5).to(type);
      // f16 is computed in f32; the operators would round each step.
      const auto gradients_in = [&](DType computing, bool create_graph) {
        const NDArray x = a.to(computing).clone().requires_grad_(),
                      y = b.to(computing).clone().requires_grad_();
        return gradients({cdist(x, y, p)}, {x, y},
                         {.heads = {head.to(computing)}, .create_graph = create_graph});
      };
      const Arrays fast = gradients_in(type, false), composed = gradients_in(type == f16 ? f32 : type, true);
      for (size_t i = 0; i < 2; ++i) {
        const std::vector<double> want = composed[i].to(f64).to_vector<double>(),
                                  got = fast[i].to(f64).to_vector<double>();
        ASSERT_EQ(want.size(), got.size());
        double most = 0;
        for (const double value : want) most = std::max(most, std::abs(value));
        const double tolerance = most * (type == f64 ? 1e-13 : type == f32 ? 1e-5 : 1e-2);
        for (size_t k = 0; k < want.size(); ++k) ASSERT_NEAR(want[k], got[k], tolerance) << i << ' ' << k;
      }
    }
}

TEST(NumpyGradients, OfSpecialFunctions) {
  const NDArray x = test::some({5}) * 0.5;
  expect_gradients_through("logit", [](const Arrays& a) { return logit(a[0], 1e-3); }, {x});
  // At its limits logit() has the gradient of x. PyTorch has the same.
  EXPECT_EQ((std::vector<double>{0, 16. / 3, 4, 16. / 3, 0}),
            gradient_at([](const NDArray& a) { return logit(a, 0.25); }, array({0.1, 0.25, 0.5, 0.75, 0.9})));
  expect_gradients_through("xlogy", [](const Arrays& a) { return xlogy(a[0], a[1]); }, {x, x + 0.3});
  EXPECT_EQ((std::vector<double>{0}),
            gradient_at([](const NDArray& a) { return round(a, 2); }, array({1.234})));
  EXPECT_EQ((std::vector<double>{0, 1}), gradient_at(
                                             [](const NDArray& a) {
                                               return xlogy(a, array({0., std::exp(1.)}));
                                             },
                                             array({0., 0.})));
}

TEST(NumpyGradients, OfClampAtANumberAreZeroAndAtAnArrayHalf) {
  const double inf = std::numeric_limits<double>::infinity();
  const NDArray x = array({-1., 0., 0.5, 1., 2., inf}), zero = zeros({}, f64), one = ones({}, f64);
  const auto check = [&](const std::vector<double>& of_x, double of_limit, bool low_is_array) {
    NDArray v = x.clone().requires_grad_(), limit = (low_is_array ? zero : one).clone().requires_grad_();
    sum(low_is_array ? clamp(v, limit, 1) : clamp(v, 0, limit)).backward();
    EXPECT_EQ(of_x, v.grad().to_vector<double>());
    EXPECT_EQ(of_limit, limit.grad().item<double>());
  };
  check({0, 0, 1, 0.5, 0, 0}, 2.5, false);
  check({0, 0.5, 1, 0, 0, 0}, 1.5, true);
  EXPECT_EQ((std::vector<double>{0, 0, 1, 0, 0, 0}),
            gradient_at([](const NDArray& a) { return clamp(a, 0, 1); }, x));
  // Equal to the number and to the array.
  EXPECT_EQ((std::vector<double>{0, 0, 0, 0, 0, 0}),
            gradient_at([&](const NDArray& a) { return clamp(a, 1, one); }, x));
  // No limit above.
  EXPECT_EQ((std::vector<double>{0, 0.5, 1, 1, 1, 1}),
            gradient_at([&](const NDArray& a) { return clamp_min(a, zero); }, x));
}

TEST(NumpyGradients, OfTheVarianceAreGoodAroundALargeMean) {
  const NDArray x = (Generator(3).normal(0, 1, {64}, f64) + 65536).to(f32);
  const auto gradient = [](const NDArray& a) {
    return gradient_at([](const NDArray& v) { return var(v); }, a);
  };
  test::expect_close(gradient(x.to(f64)), gradient(x), 1e-6, "gradient");
}

}  // namespace
}  // namespace mx
