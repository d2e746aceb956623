// The derivatives of lgamma: known values, and their defining equations.
#include "operators/kernels/polygamma.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "engine/base/error.h"
#include "tests/support/held_tensor.h"
#include "tests/support/numbers.h"

namespace mx {
namespace {

using kernels::polygamma;
using test::Held;
using test::make_tensor;

using test::kInf;
constexpr double kPi = std::numbers::pi, kZeta3 = 1.2020569031595942854;

void expect_close(double expected, double got, double x) {
  EXPECT_NEAR(expected, got, 2e-14 * std::max(1.0, std::abs(expected))) << "at " << x;
}

TEST(Polygamma, KnownValues) {
  expect_close(-std::numbers::egamma, polygamma(0, 1), 1);
  expect_close(-std::numbers::egamma - 2 * std::numbers::ln2, polygamma(0, 0.5), 0.5);
  expect_close(std::log(1e6) - 0.5e-6 - 1e-12 / 12, polygamma(0, 1e6), 1e6);
  expect_close(kPi * kPi / 6, polygamma(1, 1), 1);
  expect_close(kPi * kPi / 2, polygamma(1, 0.5), 0.5);
  expect_close(-2 * kZeta3, polygamma(2, 1), 1);
  expect_close(-14 * kZeta3, polygamma(2, 0.5), 0.5);
  expect_close(std::pow(kPi, 4) / 15, polygamma(3, 1), 1);
  EXPECT_NEAR(0, polygamma(0, 1.4616321449683623), 1e-14);  // gamma has its minimum here
  EXPECT_EQ(kInf, polygamma(0, kInf));
  EXPECT_EQ(0, polygamma(1, kInf));
}

TEST(Polygamma, AtThePoles) {
  EXPECT_EQ(-kInf, polygamma(0, 0.0));
  EXPECT_EQ(kInf, polygamma(0, -0.0));
  for (double x : {-1., -7.}) {
    EXPECT_TRUE(std::isnan(polygamma(0, x)));
    EXPECT_EQ(kInf, polygamma(1, x));
    EXPECT_TRUE(std::isnan(polygamma(2, x)));
  }
  for (int64_t order : {0, 1, 2, 5}) EXPECT_TRUE(std::isnan(polygamma(order, std::nan(""))));
}

// polygamma(n, x + 1) = polygamma(n, x) + (-1)^n n! x^(-n - 1), on both sides of 0.
TEST(Polygamma, StepsByOne) {
  for (int64_t order : {0, 1, 2, 3, 6})
    for (double x = -9.37; x < 25; x += 0.618) {
      const double n = static_cast<double>(order), sign = order % 2 == 0 ? 1 : -1;
      const double step = sign * std::tgamma(n + 1) * std::pow(x, -n - 1);
      const double here = polygamma(order, x), there = polygamma(order, x + 1);
      EXPECT_NEAR(here + step, there, 1e-12 * std::max({1.0, std::abs(here), std::abs(step)}))
          << order << " at " << x;
    }
}

TEST(Polygamma, IsTheDerivativeOfTheOneBefore) {
  for (double x : {-4.3, -0.7, 0.2, 1.3, 6.5, 40.})
    for (int64_t order = 0; order < 5; ++order) {
      const double h = 1e-5;
      const auto before = [&](double v) { return order == 0 ? std::lgamma(v) : polygamma(order - 1, v); };
      const double slope = (before(x + h) - before(x - h)) / (2 * h), got = polygamma(order, x);
      EXPECT_NEAR(slope, got, 1e-6 * std::max(1.0, std::abs(got))) << order << " at " << x;
    }
}

// Reference values computed with 200 digits. The factorials and powers are far outside the range of a double,
// but their quotients are not.
TEST(Polygamma, HighOrdersKeepTheDigitsThatTheirOperandHas) {
  const struct {
    int64_t order;
    double x, expected;
  } cases[] = {
      {40, 21.0, -5.911137721874214e-7},
      {40, 20.5, -1.5751965710307378e-6},
      {160, 1000.0, -3.1887612597408979e-198},
      {200, 100.0, -9.1254246910962227e-28},
      {200, -0.25, kInf},
      {171, 80.0, 6.5624090825707328e-19},
      {60, -20.375, 8.0217203553560582e+107},
      {30, 3.0, -4.2949627387982982e+17},
      {101, 0.5, 4.7795233341916123e+190},
      {15, 26.0, 6.8496212247192074e-11},
      {120, -0.5, -3.2987659376483061e+177},
      {3, 1e+100, 1.9999999999999999e-300},
      {1000, 400.0, -9.5463286602289094e-38},
      {1000, 1000.0, -0.0},
      {1000000, 367870.0, -1020505879.1416387},
      {1000000000, 367879439.0, -0.084429692928530995},
      {1000000000, 367879431.0, -234840914.37222401},
      {1000000000, 1.0, -kInf},
      {1000000000, 1e300, -0.0},
      {1000000001, 0.75, kInf},
      {std::numeric_limits<int64_t>::max(), 2.0, kInf},
      {std::numeric_limits<int64_t>::max(), 1e17, kInf},
      {std::numeric_limits<int64_t>::max(), 1e19, 0.0},
      {std::numeric_limits<int64_t>::max(), -1.25, kInf},
      {std::numeric_limits<int64_t>::max() - 1, -1.25, kInf},
      {std::numeric_limits<int64_t>::max() - 1, -1e-17, kInf},
  };
  for (const auto& c : cases) {
    const double got = polygamma(c.order, c.x);
    if (std::isinf(c.expected) || c.expected == 0) {
      EXPECT_EQ(c.expected, got) << c.order << " at " << c.x;
      continue;
    }
    const double bound = 1e-13 + static_cast<double>(c.order) * 4e-16;
    EXPECT_NEAR(1, got / c.expected, bound) << c.order << " at " << c.x << " gave " << got;
  }
}

TEST(Polygamma, TakesEveryLayoutAndType) {
  for (DType type : {f32, f64, f16, bf16, i32})
    for (const std::string& layout : test::layouts()) {
      const DType result = is_floating(type) ? type : f32;
      Held in = make_tensor(type, {3, 171}, layout), out = make_tensor(result, {3, 171}, layout);
      test::fill_values(in.tensor);
      kernels::polygamma(out.tensor, in.tensor, 1);
      for (int64_t i = 0; i < in.tensor.numel(); ++i) {
        const double expected = polygamma(1, test::value_at(in.tensor, i)),
                     got = test::value_at(out.tensor, i);
        Held rounded = make_tensor(result, {});
        visit(result, [&](auto tag) {
          using T = typename decltype(tag)::type;
          *rounded.tensor.as<T>() = convert<T>(expected);
        });
        const double want = test::value_at(rounded.tensor, 0);
        ASSERT_TRUE(want == got || (std::isnan(want) && std::isnan(got))) << want << ", got " << got;
      }
      ASSERT_TRUE(test::untouched_between(out));
    }
  Held x = make_tensor(f32, {2}), y = make_tensor(f32, {3}), whole = make_tensor(i32, {2});
  EXPECT_THROW(kernels::polygamma(y.tensor, x.tensor, 1), InvalidArgument);
  EXPECT_THROW(kernels::polygamma(whole.tensor, x.tensor, 1), InvalidArgument);
  EXPECT_THROW(kernels::polygamma(x.tensor, x.tensor, -1), InvalidArgument);
}

}  // namespace
}  // namespace mx
