// beta, binomial and choice: their distributions compared with the theory, and their guarantees.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <string>
#include <vector>

#include "operators/operators.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::Values;

struct Moments {
  double mean, variance;
};

Moments moments_of(const NDArray& x) {
  const NDArray wide = x.to(f64);
  return {mean(wide).item<double>(), var(wide).item<double>()};
}

// Checks the mean to six standard errors and the variance to a few percent.
void expect_moments(double mean, double variance, const NDArray& x, const std::string& what) {
  const Moments found = moments_of(x);
  EXPECT_NEAR(mean, found.mean, 6 * std::sqrt(variance / static_cast<double>(x.numel())) + 1e-12) << what;
  EXPECT_NEAR(variance, found.variance, 0.05 * variance + 1e-12) << what;
}

TEST(Draws, BinomialHasItsProbabilities) {
  constexpr int64_t kDraws = 200000;
  Generator generator(3);
  for (const auto& [trials, p] : {std::pair<int64_t, double>{1, 0.3},
                                  {7, 0.5},
                                  {40, 0.1},
                                  {40, 0.45},
                                  {60, 0.8},
                                  {1000, 0.02},
                                  {1000, 0.985}}) {
    const NDArray x = generator.binomial(trials, p, {kDraws});
    const Values found = test::values(x);
    Values times(static_cast<size_t>(trials) + 1);
    for (double v : found) {
      ASSERT_TRUE(v >= 0 && v <= static_cast<double>(trials)) << v;
      ++times[static_cast<size_t>(v)];
    }
    // Pearson's statistic over the values with an expected count of at least five; the rest counts as one
    // value.
    double statistic = 0, freedom = -1, rest_want = 0, rest_got = 0;
    for (int64_t k = 0; k <= trials; ++k) {
      const auto n = static_cast<double>(trials), i = static_cast<double>(k);
      const double want = kDraws * std::exp(std::lgamma(n + 1) - std::lgamma(i + 1) - std::lgamma(n - i + 1) +
                                            i * std::log(p) + (n - i) * std::log1p(-p));
      const double got = times[static_cast<size_t>(k)];
      if (want < 5) {
        rest_want += want;
        rest_got += got;
        continue;
      }
      statistic += (got - want) * (got - want) / want;
      ++freedom;
    }
    if (rest_want > 1) {
      statistic += (rest_got - rest_want) * (rest_got - rest_want) / rest_want;
      ++freedom;
    }
    EXPECT_LT(statistic, freedom + 5 * std::sqrt(2 * freedom) + 5) << trials << ' ' << p;
  }
  // Too many values to count each of them.
  const int64_t many = int64_t{1} << 50;
  expect_moments(many * 0.25, many * 0.25 * 0.75, generator.binomial(many, 0.25, {kDraws}, f64), "2^50");
  expect_moments(3, 3, generator.binomial(many, 3 / static_cast<double>(many), {kDraws}), "rare");
}

TEST(Draws, BinomialAtEdges) {
  EXPECT_EQ((Values{0, 0}), test::values(binomial(0, 0.5, {2})));
  EXPECT_EQ((Values{0, 0}), test::values(binomial(9, 0, {2})));
  EXPECT_EQ((Values{9, 9}), test::values(binomial(9, 1, {2})));
  EXPECT_EQ(i8, binomial(9, 1, {2}, i8).dtype());
  EXPECT_EQ(127, binomial(1000, 1, {}, i8).item<int64_t>());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { binomial(-1, 0.5, {2}); }), "2^53 trials, got -1"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { binomial(1, 1.5, {2}); }), "[binomial]"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { binomial(1, NAN, {2}); }), "[binomial]"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { binomial(1, 0.5, {2}, bool_); }), "[binomial]"));
  Generator one(5), other(5);
  EXPECT_EQ(test::values(one.binomial(90, 0.3, {50})), test::values(other.binomial(90, 0.3, {50})));
}

TEST(Draws, BetaHasItsMomentsForSmallAndLargeParameters) {
  Generator generator(4);
  for (const auto& [a, b] :
       {std::pair{0.5, 0.5}, {2., 5.}, {1., 1.}, {0.01, 0.02}, {300., 20.}, {1e-3, 1e-3}}) {
    const NDArray x = generator.beta(a, b, {100000}, f64);
    expect_moments(a / (a + b), a * b / ((a + b) * (a + b) * (a + b + 1)), x,
                   std::to_string(a) + ' ' + std::to_string(b));
    EXPECT_FALSE(any(isnan(x)).item<bool>());
    EXPECT_TRUE(min(x).item<double>() >= 0 && max(x).item<double>() <= 1);
  }
  EXPECT_EQ(f16, beta(1, 1, {3}, f16).dtype());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { beta(0, 1, {2}); }), "[beta]"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { beta(1, 1, {2}, i64); }), "[beta]"));
}

TEST(Draws, ChoiceWithoutReplacementTakesNothingTwice) {
  Generator generator(6);
  for (int round = 0; round < 20; ++round) {
    const Values chosen = test::values(generator.choice(10, {2, 4}, false));
    EXPECT_EQ(8u, std::set<double>(chosen.begin(), chosen.end()).size());
    const Values weighted =
        test::values(generator.choice(6, {4}, false, array({1.f, 0.f, 2.f, 0.5f, 0.f, 9.f})));
    EXPECT_EQ((std::set<double>{0, 2, 3, 5}), (std::set<double>(weighted.begin(), weighted.end())));
  }
  // The first one is drawn with probabilities proportional to the weights.
  const NDArray weights = array({1., 2., 5.});
  Values first(3);
  for (int i = 0; i < 3000; ++i)
    ++first[static_cast<size_t>(generator.choice(3, {2}, false, weights)[0].item<int64_t>())];
  EXPECT_NEAR(375, first[0], 110);
  EXPECT_NEAR(750, first[1], 150);
  EXPECT_NEAR(1875, first[2], 170);
}

TEST(Draws, ChoiceTakesEntriesAndWeights) {
  Generator generator(7);
  const NDArray x = arange(12).reshape({4, 3});
  const NDArray rows = generator.choice(x, {5});
  EXPECT_EQ((Shape{5, 3}), rows.shape());
  EXPECT_EQ((Values{0, 0, 0, 0, 0}), test::values(rows[{colon, 0}] % 3));
  EXPECT_EQ((Shape{0, 3}), generator.choice(zeros({0, 3}), {0}).shape());
  const NDArray counts = bincount(generator.choice(3, {30000}, true, array({1.f, 0.f, 3.f})), {}, 3);
  EXPECT_EQ(0, counts[1].item<int64_t>());
  EXPECT_NEAR(7500, counts[0].item<double>(), 500);
  EXPECT_EQ((Shape{}), choice(5, {}).shape());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { choice(3, {4}, false); }), "at most 3"));
  EXPECT_TRUE(
      contains(error_of<InvalidArgument>([] { choice(0, {1}); }), "at least one number to choose from"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { choice(3, {1}, true, ones({2})); }), "shape (3,)"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] {
                         choice(2, {2}, false, array({1.f, 0.f}));
                       }),
                       "have a weight above 0"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { choice(full({}, 1), {1}); }), "[choice]"));
}

}  // namespace
}  // namespace mx
