// Initialisers: exact properties, statistics, formulas, and the same numbers on every device.
#include "nn/init.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "nn/detail/normal_quantile.h"
#include "nn/detail/orthonormal.h"
#include "tests/nn/models.h"
#include "tests/operators/registry_support.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

namespace init = nn::init;
using test::contains;
using test::content_of;
using test::error_of;
using test::Values;

/// Statistics that identify the distribution of an array's numbers.
struct Statistics {
  double mean = 0, deviation = 0, smallest = 0, largest = 0;

  explicit Statistics(const NDArray& a) {
    const Values x = test::values(a);
    const auto n = static_cast<double>(x.size());
    for (double value : x) mean += value / n;
    for (double value : x) deviation += (value - mean) * (value - mean) / n;
    deviation = std::sqrt(deviation);
    smallest = *std::min_element(x.begin(), x.end());
    largest = *std::max_element(x.begin(), x.end());
  }
};

void expect_uniform(const NDArray& a, double low, double high) {
  const Statistics s(a);
  const double width = high - low;
  EXPECT_GE(s.smallest, low);
  EXPECT_LE(s.largest, high);
  EXPECT_NEAR(s.smallest, low, 0.01 * width);
  EXPECT_NEAR(s.largest, high, 0.01 * width);
  EXPECT_NEAR(s.mean, (low + high) / 2, 0.01 * width);
  EXPECT_NEAR(s.deviation, width / std::sqrt(12.0), 0.01 * width);
}

void expect_normal(const NDArray& a, double mean, double deviation) {
  const Statistics s(a);
  EXPECT_NEAR(s.mean, mean, 0.03 * deviation);
  EXPECT_NEAR(s.deviation, deviation, 0.03 * deviation);
  EXPECT_GT(s.largest, mean + 3 * deviation);
  EXPECT_LT(s.smallest, mean - 3 * deviation);
}

struct Case {
  std::string name;
  std::function<NDArray(NDArray, Generator*)> set;
  Shape shape;
};

std::vector<Case> random_cases() {
  return {
      {"uniform", [](NDArray a, Generator* g) { return init::uniform_(a, -2, 3, g); }, {30, 20}},
      {"normal", [](NDArray a, Generator* g) { return init::normal_(a, 1, 2, g); }, {30, 20}},
      {"trunc_normal",
       [](NDArray a, Generator* g) { return init::trunc_normal_(a, 0, 1, -1, 2, g); },
       {30, 20}},
      {"xavier_uniform", [](NDArray a, Generator* g) { return init::xavier_uniform_(a, 1, g); }, {30, 20}},
      {"xavier_normal", [](NDArray a, Generator* g) { return init::xavier_normal_(a, 1, g); }, {6, 5, 3}},
      {"kaiming_uniform",
       [](NDArray a, Generator* g) { return init::kaiming_uniform_(a, {}, g); },
       {6, 5, 3}},
      {"kaiming_normal", [](NDArray a, Generator* g) { return init::kaiming_normal_(a, {}, g); }, {30, 20}},
      {"orthogonal", [](NDArray a, Generator* g) { return init::orthogonal_(a, 1, g); }, {20, 5, 6}},
      {"sparse", [](NDArray a, Generator* g) { return init::sparse_(a, 0.5, 1, g); }, {30, 20}},
  };
}

std::vector<Case> all_cases() {
  std::vector<Case> cases = random_cases();
  cases.push_back({"zeros", [](NDArray a, Generator*) { return init::zeros_(a); }, {3, 4}});
  cases.push_back({"ones", [](NDArray a, Generator*) { return init::ones_(a); }, {3, 4}});
  cases.push_back({"constant", [](NDArray a, Generator*) { return init::constant_(a, 1.5); }, {3, 4}});
  cases.push_back({"eye", [](NDArray a, Generator*) { return init::eye_(a); }, {3, 4}});
  cases.push_back({"dirac", [](NDArray a, Generator*) { return init::dirac_(a); }, {3, 4, 3, 3}});
  cases.push_back({"bilinear", [](NDArray a, Generator*) { return init::bilinear_(a); }, {2, 3, 4, 4}});
  return cases;
}

TEST(Init, TheNumbersAreThoseOfTheSeedOnEveryDevice) {
  for (const Case& c : all_cases())
    for (const DType dtype : {f32, f64, f16, bf16}) {
      SCOPED_TRACE(c.name + ' ' + to_string(dtype));
      Generator first(11);
      const NDArray expected = c.set(empty(c.shape, dtype), &first);
      for (const Context context : {virt(0), virt(1)}) {
        Generator same(11), elsewhere(11, virt(0));
        EXPECT_EQ(content_of(expected), content_of(c.set(empty(c.shape, dtype, context), &same)));
        EXPECT_EQ(content_of(expected), content_of(c.set(empty(c.shape, dtype, context), &elsewhere)));
      }
      manual_seed(11);
      EXPECT_EQ(content_of(expected), content_of(c.set(empty(c.shape, dtype, virt(1)), nullptr)));
    }
}

TEST(Init, RandomOnesGoOnInTheirStream) {
  for (const Case& c : random_cases()) {
    Generator generator(2);
    const NDArray a = c.set(empty(c.shape), &generator), b = c.set(empty(c.shape), &generator);
    EXPECT_NE(content_of(a), content_of(b)) << c.name;
  }
}

TEST(Init, SetViewsInPlaceAndUnrecorded) {
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(c.name);
    Generator first(4), second(4);
    Shape turned = c.shape;
    std::reverse(turned.begin(), turned.end());
    const NDArray base = empty(turned);
    NDArray parameter = empty(c.shape).requires_grad_();
    c.set(base.transpose(), &first);
    const NDArray same = c.set(parameter, &second);
    EXPECT_TRUE(same.shares_memory(parameter));
    EXPECT_TRUE(parameter.requires_grad());
    EXPECT_EQ(content_of(parameter), content_of(base.transpose()));
    sum(parameter * 2).backward();  // the parameter is still a leaf without recorded operations
    EXPECT_TRUE(parameter.grad().defined());
  }
}

TEST(Init, LeaveArraysWithoutElementsAlone) {
  for (const Case& c : all_cases())
    for (int d = 0; d < c.shape.rank(); ++d) {
      Shape none = c.shape;
      none[d] = 0;
      EXPECT_EQ(none, c.set(empty(none), nullptr).shape()) << c.name;
    }
}

TEST(Init, Constants) {
  EXPECT_EQ(Values(6, 0.0), test::values(init::zeros_(ones({2, 3}))));
  EXPECT_EQ(Values(6, 1.0), test::values(init::ones_(zeros({2, 3}))));
  EXPECT_EQ(Values(6, -2.5), test::values(init::constant_(zeros({2, 3}), -2.5)));
  EXPECT_EQ(Values(6, 0.5), test::values(init::uniform_(zeros({2, 3}), 0.5, 0.5)));
  EXPECT_EQ(Values(6, 0.5), test::values(init::normal_(zeros({2, 3}), 0.5, 0)));
}

TEST(Init, DistributionsAreWhatTheySay) {
  Generator g(1);
  expect_uniform(init::uniform_(empty({200, 100}), -2, 3, &g), -2, 3);
  expect_normal(init::normal_(empty({200, 100}), 5, 0.5, &g), 5, 0.5);
}

TEST(Init, FansCountInputsAndOutputs) {
  EXPECT_EQ(20, init::fans_of({30, 20}).in);
  EXPECT_EQ(30, init::fans_of({30, 20}).out);
  EXPECT_EQ(20 * 3 * 5, init::fans_of({30, 20, 3, 5}).in);
  EXPECT_EQ(30 * 3 * 5, init::fans_of({30, 20, 3, 5}).out);
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { init::fans_of({3}); }), "got shape (3,)"));
}

TEST(Init, GainsAreThoseOfTorch) {
  EXPECT_EQ(1, init::calculate_gain("linear"));
  EXPECT_EQ(1, init::calculate_gain("conv_transpose2d"));
  EXPECT_EQ(1, init::calculate_gain("sigmoid"));
  EXPECT_DOUBLE_EQ(5.0 / 3, init::calculate_gain("tanh"));
  EXPECT_DOUBLE_EQ(std::sqrt(2.0), init::calculate_gain("relu"));
  EXPECT_DOUBLE_EQ(std::sqrt(2 / 1.0001), init::calculate_gain("leaky_relu"));
  EXPECT_DOUBLE_EQ(std::sqrt(2 / 1.25), init::calculate_gain("leaky_relu", 0.5));
  EXPECT_DOUBLE_EQ(0.75, init::calculate_gain("selu"));
  EXPECT_THROW(init::calculate_gain("swish"), InvalidArgument);
}

TEST(Init, XavierAndKaimingFollowTheirFormulas) {
  Generator g(1);
  const Shape shape = {100, 40, 3, 2};  // fan_in 240, fan_out 600
  const double xavier = std::sqrt(2.0 / 840);
  expect_uniform(init::xavier_uniform_(empty(shape), 2, &g), -2 * std::sqrt(3) * xavier,
                 2 * std::sqrt(3) * xavier);
  expect_normal(init::xavier_normal_(empty(shape), 2, &g), 0, 2 * xavier);
  struct Mode {
    const char* name;
    double fan;
  };
  for (const Mode& mode : {Mode{"fan_in", 240}, Mode{"fan_out", 600}, Mode{"fan_avg", 420}}) {
    const double deviation = std::sqrt(2.0 / (1 + 0.25)) / std::sqrt(mode.fan);
    const init::KaimingOptions options{.a = 0.5, .mode = mode.name};
    expect_uniform(init::kaiming_uniform_(empty(shape), options, &g), -std::sqrt(3) * deviation,
                   std::sqrt(3) * deviation);
    expect_normal(init::kaiming_normal_(empty(shape), options, &g), 0, deviation);
  }
  expect_normal(init::kaiming_normal_(empty(shape), {.nonlinearity = "tanh"}, &g), 0,
                5.0 / 3 / std::sqrt(240.0));
}

// Q Q' = gain^2 I for wide matrices and Q' Q for tall ones, within the rounding of f64. All dimensions after
// the first form the second one.
TEST(Init, OrthogonalOnesAreOrthogonal) {
  Generator g(1);
  for (const Shape& shape :
       {Shape{5, 5}, {1, 1}, {1, 7}, {7, 1}, {3, 50}, {50, 3}, {130, 70}, {64, 8, 3, 3}, {4, 3, 2}})
    for (const double gain : {1.0, -2.5}) {
      const NDArray a = init::orthogonal_(empty(shape, f64), gain, &g).reshape({shape[0], -1});
      const bool wide = a.shape()[0] <= a.shape()[1];
      const NDArray product = wide ? matmul(a, a.transpose()) : matmul(a.transpose(), a);
      const NDArray error = max(abs(product - eye(product.shape()[0], -1, f64) * (gain * gain)));
      EXPECT_LT(error.item<double>(), 1e-12) << shape;
    }
}

// Linearly dependent columns, zeros among them, still become a basis. R has no negative diagonal.
TEST(Init, OrthonormalisingSurvivesColumnsThatDepend) {
  constexpr int64_t kRows = 90, kColumns = 70;
  Values a = test::values(test::numbers({kColumns, kRows}, f64));
  for (int64_t i = 0; i < kRows; ++i) {
    a[static_cast<size_t>(3 * kRows + i)] = 0;
    a[static_cast<size_t>(40 * kRows + i)] = 2 * a[static_cast<size_t>(5 * kRows + i)];
  }
  Values q = a;
  nn::detail::orthonormalise(q, kRows, kColumns);
  const NDArray basis = from_data(q.data(), {kColumns, kRows}),
                before = from_data(a.data(), {kColumns, kRows});
  EXPECT_LT(max(abs(matmul(basis, basis.transpose()) - eye(kColumns, -1, f64))).item<double>(), 1e-13);
  const NDArray r = matmul(basis, before.transpose());
  EXPECT_LT(max(abs(tril(r, -1))).item<double>(), 1e-12);
  EXPECT_GT(min(r.diagonal()).item<double>(), -1e-12);
  EXPECT_LT(max(abs(matmul(basis.transpose(), r) - before.transpose())).item<double>(), 1e-12);
}

// All directions are equally likely: there is no bias in the mean or in the sign of the first element, as a
// plain QR decomposition has.
TEST(Init, OrthogonalOnesPreferNoDirection) {
  Generator g(1);
  constexpr int kDraws = 2000;
  double first = 0, trace = 0, square = 0;
  for (int i = 0; i < kDraws; ++i) {
    const Values q = test::values(init::orthogonal_(empty({3, 3}, f64), 1, &g));
    first += q[0] / kDraws;
    trace += (q[0] + q[4] + q[8]) / kDraws;
    square += q[4] * q[4] / kDraws;
  }
  EXPECT_NEAR(0, first, 0.06);
  EXPECT_NEAR(0, trace, 0.1);
  EXPECT_NEAR(1.0 / 3, square, 0.04);
}

TEST(Init, TheNormalQuantileIsTheInverseOfTheProbability) {
  for (double x = -37; x <= 8; x += 0.0625) {
    const double p = nn::detail::normal_probability(x), found = nn::detail::normal_quantile(p);
    // A probability close to 1 determines x to fewer digits than x has.
    const double density = std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
    const double bound = std::max(1e-13 * std::max(1.0, std::abs(x)), x > 0 ? 2e-16 / density : 0);
    EXPECT_NEAR(x, found, bound);
  }
  EXPECT_EQ(-std::numeric_limits<double>::infinity(), nn::detail::normal_quantile(0));
  EXPECT_EQ(std::numeric_limits<double>::infinity(), nn::detail::normal_quantile(1));
  EXPECT_EQ(0, nn::detail::normal_quantile(0.5));
}

// The mean of a truncated normal is known: (density(a) - density(b)) / (P(b) - P(a)).
TEST(Init, TruncatedNormalsStayInsideAndHaveTheirMean) {
  struct Interval {
    double mean, deviation, low, high, expected;
  };
  const auto truncated_mean = [](double a, double b) {
    double weight = 0, total = 0;  // computed by quadrature
    constexpr int kSteps = 200000;
    for (int i = 0; i < kSteps; ++i) {
      const double x = a + (b - a) * (i + 0.5) / kSteps, density = std::exp((a * a - x * x) / 2);
      weight += density;
      total += density * x;
    }
    return total / weight;
  };
  for (const Interval& c : {Interval{0, 1, -2, 2, 0}, Interval{0, 1, -1, 3, truncated_mean(-1, 3)},
                            Interval{5, 2, 6, 7, 5 + 2 * truncated_mean(0.5, 1)},
                            Interval{0, 1, 8, 9, truncated_mean(8, 9)},        // far above
                            Interval{0, 1, -9, -8, -truncated_mean(8, 9)}}) {  // far below
    Generator g(1);
    const Statistics s(init::trunc_normal_(empty({20000}, f64), c.mean, c.deviation, c.low, c.high, &g));
    EXPECT_GE(s.smallest, c.low);
    EXPECT_LE(s.largest, c.high);
    EXPECT_NEAR(s.mean, c.expected, 0.03) << c.low << ' ' << c.high;
    EXPECT_GT(s.deviation, 0.05);
  }
}

TEST(Init, TruncatedNormalsTakeAnyInterval) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  Generator g(1);
  const auto draw = [&](double low, double high) {
    return init::trunc_normal_(empty({20000}, f64), 0, 1, low, high, &g);
  };
  EXPECT_EQ(Values(20000, 50.0), test::values(draw(50, 51)));
  EXPECT_EQ(Values(20000, -50.0), test::values(draw(-kInfinity, -50)));
  expect_normal(draw(-kInfinity, kInfinity), 0, 1);
  const Statistics s(draw(0, kInfinity));
  EXPECT_NEAR(std::sqrt(2 / std::acos(-1.0)), s.mean, 0.02);
  EXPECT_GE(s.smallest, 0);
  EXPECT_TRUE(std::isfinite(s.largest));
}

TEST(Init, EyesAndDiracsAreIdentities) {
  EXPECT_EQ(content_of(eye(3, 5)), content_of(init::eye_(full({3, 5}, 7))));
  EXPECT_EQ(content_of(eye(4, 2)), content_of(init::eye_(full({4, 2}, 7))));
  for (const int64_t groups : {1, 2, 4})
    for (const Shape& shape : {Shape{8, 3, 5}, {8, 3, 3, 4}, {4, 2, 3, 3, 3}}) {
      const NDArray w = init::dirac_(full(shape, 7), groups);
      const Values values = test::values(w);
      for (int64_t i = 0; i < w.numel(); ++i) {
        const Shape at = test::place(shape, i);
        const int64_t out = shape[0] / groups;
        bool one = at[0] % out == at[1];
        for (int d = 2; d < shape.rank(); ++d) one = one && at[d] == shape[d] / 2;
        EXPECT_EQ(one ? 1 : 0, values[static_cast<size_t>(i)]) << shape << ' ' << at;
      }
    }
}

TEST(Init, SparseOnesHaveTheirZerosInEveryColumn) {
  Generator g(1);
  const NDArray a = init::sparse_(empty({50, 200}), 0.33, 2, &g);
  std::vector<int64_t> by_row(50);
  const Values x = test::values(a);
  for (int64_t c = 0; c < 200; ++c) {
    int64_t zeros = 0;
    for (int64_t r = 0; r < 50; ++r) {
      const bool zero = x[static_cast<size_t>(r * 200 + c)] == 0;
      zeros += zero;
      by_row[static_cast<size_t>(r)] += zero;
    }
    EXPECT_EQ(17, zeros);  // 16.5, rounded up
  }
  for (int64_t zeros : by_row) EXPECT_NEAR(68, static_cast<double>(zeros), 30);
  const double kept = norm(a).item<float>();
  EXPECT_NEAR(2, kept / std::sqrt(33.0 * 200), 0.1);
  EXPECT_EQ(Values(6, 0.0), test::values(init::sparse_(ones({2, 3}), 1)));
  EXPECT_EQ(6, count_nonzero(init::sparse_(zeros({2, 3}), 0)).item<int64_t>());
}

// Computed by hand: width 4 gives 1/4, 3/4, 3/4, 1/4; width 3 gives 1/2, 1, 1/2.
TEST(Init, BilinearOnesInterpolate) {
  const NDArray even = init::bilinear_(empty({2, 3, 4, 4})), odd = init::bilinear_(empty({1, 1, 3, 4}));
  const NDArray four = array({0.25f, 0.75f, 0.75f, 0.25f}), three = array({0.5f, 1.f, 0.5f});
  EXPECT_EQ(content_of(outer(four, four).broadcast_to({2, 3, 4, 4})), content_of(even));
  EXPECT_EQ(content_of(outer(three, four).reshape({1, 1, 3, 4})), content_of(odd));
}

TEST(Init, MixedRulesFollowNames) {
  nn::Sequential net{nn::Linear{3, 4}, nn::Linear{4, 4}};
  init::mixed(net, {{"bias$", init::zeros_},
                    {"^0\\.", [](NDArray w) { init::constant_(w, 2); }},
                    {"", [](NDArray w) { init::eye_(w); }}});
  EXPECT_EQ(Values(12, 2.0), test::values(net.parameter("0.weight")));
  EXPECT_EQ(Values(4, 0.0), test::values(net.parameter("0.bias")));
  EXPECT_EQ(content_of(eye(4)), content_of(net.parameter("1.weight")));
  EXPECT_EQ(Values(4, 0.0), test::values(net.parameter("1.bias")));
  const std::vector<double> before = test::all_values(net.state_dict());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                         init::mixed(net, {{"0.weight", init::zeros_}});
                       }),
                       "got none for 0.bias, 1.weight, 1.bias"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                         init::mixed(net, {{"(", init::zeros_}});
                       }),
                       "[mixed] expected a regular expression, got \"(\""));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                         init::mixed(net, {{"", nullptr}});
                       }),
                       "empty function"));
  EXPECT_EQ(before, test::all_values(net.state_dict()));
}

TEST(Init, WhatMakesNoSenseIsAnErrorAndChangesNothing) {
  const NDArray a = full({3, 4}, 7), whole = full({3, 4}, 7, i32);
  Generator g(1);
  const std::function<void()> calls[] = {
      [&] { init::uniform_(a, 2, 1, &g); },
      [&] { init::uniform_(whole, 0, 1, &g); },
      [&] { init::normal_(a, 0, -1, &g); },
      [&] { init::normal_(a, std::nan(""), 1, &g); },
      [&] { init::trunc_normal_(a, 0, 1, 2, 2, &g); },
      [&] { init::trunc_normal_(a, 0, 0, -2, 2, &g); },
      [&] { init::trunc_normal_(whole, 0, 1, -2, 2, &g); },
      [&] { init::xavier_uniform_(a[0], 1, &g); },
      [&] { init::kaiming_normal_(a, {.mode = "fan"}, &g); },
      [&] { init::kaiming_normal_(a, {.nonlinearity = "swish"}, &g); },
      [&] { init::orthogonal_(a[0], 1, &g); },
      [&] { init::orthogonal_(whole, 1, &g); },
      [&] { init::eye_(a[0]); },
      [&] { init::dirac_(a); },
      [&] {
        init::dirac_(a.reshape({3, 2, 2}), 2);
      },
      [&] { init::sparse_(a, 1.5, 1, &g); },
      [&] {
        init::sparse_(a.reshape({3, 2, 2}), 0.5, 1, &g);
      },
      [&] { init::bilinear_(a); },
  };
  int i = 0;
  for (const auto& call : calls) {
    error_of<InvalidArgument>(call);
    EXPECT_EQ(Values(12, 7.0), test::values(a)) << i;
    EXPECT_EQ((std::vector<int64_t>{1, 0}), g.state().to_vector<int64_t>()) << i;
    ++i;
  }
}

}  // namespace
}  // namespace mx
