// Known values of gradients at kinks and where a careless formula divides by zero.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "operators/operators.h"
#include "operators/samples/samples.h"
#include "tests/operators/gradient_support.h"

namespace mx {
namespace {

using Values = std::vector<double>;

constexpr double kInf = std::numeric_limits<double>::infinity(),
                 kNan = std::numeric_limits<double>::quiet_NaN();

/// Returns the gradients for heads of ones, one list per input.
std::vector<Values> gradients(const char* name, const std::vector<NDArray>& inputs, const Attrs& attrs = {}) {
  const Operator& op = *find_operator(name);
  const std::vector<NDArray> outputs = call(op, attrs, inputs);
  std::vector<NDArray> heads;
  for (const NDArray& output : outputs)
    heads.push_back(is_floating(output.dtype()) ? ones_like(output) : NDArray());
  const auto results = test::gradients_of(op, attrs, inputs, outputs, heads, test::floating_inputs(inputs));
  std::vector<Values> values;
  for (size_t i = 0; i < inputs.size(); ++i) values.push_back(test::values_of(results[i], inputs[i]));
  return values;
}

Values gradient(const char* name, const std::vector<NDArray>& inputs, const Attrs& attrs = {}) {
  return gradients(name, inputs, attrs)[0];
}

/// The same, with attributes by name.
Values gradient(const char* name, const std::vector<NDArray>& inputs, const AttrMap& attrs,
                size_t which = 0) {
  return gradients(name, inputs, Attrs::from_map(find_operator(name)->attrs, attrs, name))[which];
}

void expect_values(const Values& expected, const Values& got) {
  ASSERT_EQ(expected.size(), got.size());
  for (size_t i = 0; i < expected.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << "element " << i << ": " << got[i];
    } else if (std::isinf(expected[i])) {
      EXPECT_EQ(expected[i], got[i]) << "element " << i;
    } else {
      EXPECT_NEAR(expected[i], got[i], 1e-12 * std::max(1.0, std::abs(expected[i]))) << "element " << i;
    }
  }
}

NDArray row(std::initializer_list<double> values) { return array(values); }

TEST(GradientValues, KinksOfFunctionsOfOneOperand) {
  const NDArray x = row({-1, 0, 2});
  expect_values({0, 0, 1}, gradient("relu", {x}));
  expect_values({-1, 0, 1}, gradient("abs", {x}));
  expect_values({0, 0, 0}, gradient("sign", {x}));
  expect_values({kNan, kInf, 0.5 / std::sqrt(2.0)}, gradient("sqrt", {x}));
  expect_values({kInf, 1}, gradient("log", {row({0, 1})}));
  expect_values({1 / 12., kInf, 1 / 12.}, gradient("cbrt", {row({-8, 0, 8})}));
}

TEST(GradientValues, OfTheLogarithmOfTheGammaFunction) {
  expect_values({-std::numbers::egamma, 1 - std::numbers::egamma}, gradient("lgamma", {row({1, 2})}));
  const double square = std::numbers::pi * std::numbers::pi;
  EXPECT_NEAR(-std::numbers::egamma, digamma(row({1})).item<double>(), 1e-14);
  EXPECT_NEAR(square / 6, polygamma(row({1}), 1).item<double>(), 1e-14);
  expect_values({square / 6, square / 6 - 1}, gradient("polygamma", {row({1, 2})}, {{"order", int64_t{0}}}));
  EXPECT_EQ(f32, digamma(arange(3)).dtype());
  EXPECT_THROW(polygamma(row({1}), -1), InvalidArgument);
}

// For large magnitudes a derivative is 0 or 1, not the NaN of 0 times infinity.
TEST(GradientValues, ActivationsFarOut) {
  const NDArray x = row({-kInf, -1e30, -50, 50, 1e30, kInf});
  for (const char* name : {"silu", "gelu", "gelu_tanh", "softplus", "relu"})
    for (DType dtype : {f32, f64, f16, bf16}) {
      SCOPED_TRACE(name);
      const Values got = gradient(name, {x.to(dtype)});
      for (size_t i = 0; i < got.size(); ++i) EXPECT_NEAR(i < 3 ? 0 : 1, got[i], 1e-12) << dtype << ' ' << i;
    }
  expect_values({0, 0, 0, 0, 0, 0}, gradient("tanh", {x}));
  EXPECT_TRUE(std::isnan(gradient("silu", {row({kNan})})[0]));
  EXPECT_TRUE(std::isnan(gradient("gelu", {row({kNan})})[0]));
}

TEST(GradientValues, EqualsShareMaximumAndMinimum) {
  const NDArray a = row({1, 2, 3}), b = row({2, 2, 2});
  EXPECT_EQ((std::vector<Values>{{0, 0.5, 1}, {1, 0.5, 0}}), gradients("maximum", {a, b}));
  EXPECT_EQ((std::vector<Values>{{1, 0.5, 0}, {0, 0.5, 1}}), gradients("minimum", {a, b}));
  // A number gets the gradient where the other operand is NaN, the first operand where both are.
  const NDArray c = row({1, 2, kNan, 3, kNan}), d = row({2, 2, 1, kNan, kNan});
  EXPECT_EQ((std::vector<Values>{{0, 0.5, 0, 1, 1}, {1, 0.5, 1, 0, 0}}), gradients("fmax", {c, d}));
  EXPECT_EQ((std::vector<Values>{{1, 0.5, 0, 1, 1}, {0, 0.5, 1, 0, 0}}), gradients("fmin", {c, d}));
}

TEST(GradientValues, AtItsLimitsClampShares) {
  const NDArray x = row({-1, 0, 0.5, 1, 2}), low = full({}, 0, f64), high = full({}, 1, f64);
  EXPECT_EQ((std::vector<Values>{{0, 0.5, 1, 0.5, 0}, {1.5}, {1.5}}), gradients("clamp", {x, low, high}));
  // Equal limits: x gets the gradient if it equals both.
  EXPECT_EQ((std::vector<Values>{{0, 1, 0, 0, 0}, {1}, {3}}), gradients("clamp", {x, low, low}));
  // Limits that are crossed: the upper limit is the result.
  EXPECT_EQ((std::vector<Values>{{0, 0, 0, 0, 0}, {0}, {5}}),
            gradients("clamp", {x, full({}, 7, f64), full({}, 6, f64)}));
}

TEST(GradientValues, PowersOfZero) {
  const NDArray a = row({0, 0, 0, 0, -2, 2}), b = row({0, 1, 2, 0.5, 3, 0});
  const auto got = gradients("pow", {a, b});
  expect_values({0, 1, 0, kInf, 12, 0}, got[0]);
  expect_values({0, 0, 0, 0, kNan, std::numbers::ln2}, got[1]);
}

TEST(GradientValues, PowersOfNumbersWithoutAnInverse) {
  // The inverse of the first number of each type overflows.
  for (const auto& [type, least] : {std::pair{f32, 1e-39}, {f64, 1e-309}, {f16, 1e-6}, {bf16, 1e-39}}) {
    const NDArray a = full({3}, least, type), b = array({0., 1., 2.}).to(type);
    const auto got = gradients("pow", {a, b});
    EXPECT_EQ(0, got[0][0]) << type;
    EXPECT_EQ(1, got[0][1]) << type;
    EXPECT_NEAR(0, got[0][2], 1e-5) << type;
    for (const double v : got[1]) EXPECT_TRUE(std::isfinite(v)) << type;
  }
}

TEST(GradientValues, AnglesAndLengthsAtTheOrigin) {
  const NDArray zero = row({0, 3}), other = row({0, 4});
  auto got = gradients("hypot", {zero, other});
  expect_values({0, 0.6}, got[0]);
  expect_values({0, 0.8}, got[1]);
  got = gradients("atan2", {zero, other});
  expect_values({0, 0.16}, got[0]);
  expect_values({0, -0.12}, got[1]);
  // The squares of these numbers overflow.
  EXPECT_DOUBLE_EQ(0.5e-200, gradient("atan2", {row({1e200}), row({1e200})})[0]);
  expect_values({0, -1}, gradient("copysign", {row({0, 2}), row({1, -1})}));
}

TEST(GradientValues, OfLogarithmsOfSumsOfNothing) {
  auto got = gradients("logaddexp", {row({-kInf, -kInf, 0, 800}), row({-kInf, 1, 0, 0})});
  expect_values({0, 0, 0.5, 1}, got[0]);
  expect_values({0, 1, 0.5, 0}, got[1]);
  const NDArray x = row({-kInf, -kInf, -kInf, 0}).reshape({2, 2});
  expect_values({0, 0, 0, 1}, gradient("logsumexp", {x}, ReduceAttrs{{1}}));
  const NDArray y = row({-kInf, 0, 0, -kInf, 1000});
  for (bool exclusive : {false, true})
    for (bool reverse : {false, true})
      for (double v : gradient("logcumsumexp", {y}, ScanAttrs{0, exclusive, reverse}))
        EXPECT_TRUE(std::isfinite(v)) << exclusive << reverse;
  // -inf; 0; ln 2; ln 2; 1000
  expect_values({0, 2, 1, 0, 1}, gradient("logcumsumexp", {y}, ScanAttrs{}));
}

TEST(GradientValues, ProductsWithZeros) {
  expect_values({6, 3, 2}, gradient("prod", {row({1, 2, 3})}, TotalAttrs{}));
  expect_values({0, 3, 0}, gradient("prod", {row({1, 0, 3})}, TotalAttrs{}));
  expect_values({0, 0, 0}, gradient("prod", {row({0, 0, 3})}, TotalAttrs{}));
  const NDArray planes = row({1, 2, 3, 4, 5, 0, 7, 8}).reshape({2, 2, 2});
  // 1 3 5 7 and 2 4 0 8
  expect_values({105, 0, 35, 0, 21, 64, 15, 0}, gradient("prod", {planes}, TotalAttrs{{0, 1}}));
}

TEST(GradientValues, RunningProductsWithZeros) {
  // y = x0, x0 x1, x0 x1 x2, ..
  expect_values({1, 2 * (1 + 3 + 12), 0, 0}, gradient("cumprod", {row({2, 0, 3, 4})}, ScanAttrs{}));
  expect_values({1, 2, 0, 0}, gradient("cumprod", {row({2, 0, 0, 4})}, ScanAttrs{}));
  // y = 1, x0, x0 x1, x0 x1 x2
  expect_values({1, 2 * (1 + 3), 0, 0}, gradient("cumprod", {row({2, 0, 3, 4})}, ScanAttrs{0, true, false}));
  // y = x3 x2 x1 x0, x3 x2 x1, x3 x2, x3
  expect_values({0, 0, 4 * (1 + 2 + 4), 1},
                gradient("cumprod", {row({2, 2, 0, 4})}, ScanAttrs{0, false, true}));
}

TEST(GradientValues, NormsOfNothing) {
  const NDArray x = row({0, 0, 3, 4}).reshape({2, 2});
  for (double p : {0.5, 1., 1.5, 2., 3., kInf, -kInf, -1.}) {
    const Values got = gradient("norm", {x}, NormAttrs{{1}, p});
    EXPECT_EQ(0, got[0]) << p;
    EXPECT_EQ(0, got[1]) << p;
    EXPECT_TRUE(std::isfinite(got[2]) && std::isfinite(got[3])) << p;
  }
  expect_values({0, 0, 0.6, 0.8}, gradient("norm", {x}, NormAttrs{{1}, 2}));
  expect_values({0, -1}, gradient("norm", {row({0, -4})}, NormAttrs{{}, 0.5}));
  expect_values({0.5, 0, -0.5}, gradient("norm", {row({4, 1, -4})}, NormAttrs{{}, kInf}));
  expect_values({std::pow(2., -2. / 3), std::pow(2., -2. / 3)},
                gradient("norm", {row({1e100, 1e100})}, NormAttrs{{}, 3}));
}

TEST(GradientValues, EqualsShareTheExtremesOfAReduction) {
  const NDArray x = row({1, 3, 3, 2, 2, 2}).reshape({2, 3});
  expect_values({0, 0.5, 0.5, 1 / 3., 1 / 3., 1 / 3.}, gradient("max", {x}, ReduceAttrs{{1}}));
  expect_values({1, 0, 0, 1 / 3., 1 / 3., 1 / 3.}, gradient("min", {x}, ReduceAttrs{{1}}));
  expect_values({0, 0.5, 0.5, 0, 0, 0}, gradient("max", {x}, ReduceAttrs{}));
}

TEST(GradientValues, EqualElementsHaveNoDeviation) {
  expect_values({0, 0, 0}, gradient("stddev", {row({5, 5, 5})}, VarianceAttrs{}));
  expect_values({0, 0, 0}, gradient("var", {row({5, 5, 5})}, VarianceAttrs{}));
}

// Of equal elements, the last one gets the gradient.
TEST(GradientValues, RunningExtremes) {
  const NDArray x = row({1, 3, 2, 3, 0});
  expect_values({1, 2, 0, 2, 0}, gradient("cummax", {x}, ScanAttrs{}));
  expect_values({0, 2, 0, 2, 1}, gradient("cummax", {x}, ScanAttrs{0, false, true}));
  expect_values({1, 2, 0, 1, 0}, gradient("cummax", {x}, ScanAttrs{0, true, false}));
  expect_values({4, 0, 0, 0, 1}, gradient("cummin", {x}, ScanAttrs{}));
  expect_values({0, 0, 0, 0, 4}, gradient("cummin", {x}, ScanAttrs{0, true, true}));
}

TEST(GradientValues, OfSeveralUpdatesOfOneElement) {
  const NDArray x = row({1, 2, 3}), at = array<int64_t>({1, 1, 0}), u = row({2, 2, 7});
  const auto update = [&](const char* how, const NDArray& updates) {
    const AttrMap attrs{{"axis", int64_t{0}}, {"how", std::string(how)}};
    for (const char* name : {"scatter", "index_update"}) {
      EXPECT_EQ(gradient("scatter", {x, at, updates}, attrs), gradient(name, {x, at, updates}, attrs));
      EXPECT_EQ(gradient("scatter", {x, at, updates}, attrs, 2), gradient(name, {x, at, updates}, attrs, 2));
    }
    return std::pair(gradient("scatter", {x, at, updates}, attrs),
                     gradient("scatter", {x, at, updates}, attrs, 2));
  };
  // The last update wins.
  EXPECT_EQ(std::pair(Values{0, 0, 1}, Values{0, 1, 1}), update("set", u));
  EXPECT_EQ(std::pair(Values{1, 1, 1}, Values{1, 1, 1}), update("add", u));
  EXPECT_EQ(std::pair(Values{7, 4, 1}, Values{4, 4, 1}), update("mul", u));
  EXPECT_EQ(std::pair(Values{7, 0, 1}, Values{6, 0, 1}), update("mul", row({0, 3, 7})));
  EXPECT_EQ(std::pair(Values{7, 0, 1}, Values{0, 0, 1}), update("mul", row({0, 0, 7})));
  // Three equal elements.
  const auto [own, theirs] = update("max", u);
  expect_values({0, 1 / 3., 1}, own);
  expect_values({1 / 3., 1 / 3., 1}, theirs);
  EXPECT_EQ(std::pair(Values{1, 0.5, 1}, Values{0, 0.5, 0}), update("min", row({5, 2, 7})));
}

TEST(GradientValues, SureProbabilities) {
  const NDArray x = row({0, 1, 0, 1, 0.5}), t = row({0, 1, 1, 0, 0.25});
  expect_values({0, 0, -1e12, 1e12, 1}, gradient("binary_cross_entropy", {x, t}));
  for (DType dtype : {f32, f16, bf16})
    for (double v : gradient("binary_cross_entropy", {x.to(dtype), t.to(dtype)}))
      EXPECT_FALSE(std::isnan(v)) << dtype;
}

TEST(GradientValues, RowsToIgnoreHaveNone) {
  const NDArray x = row({1, 2, 3, 4}).reshape({2, 2}), labels = array<int64_t>({-100, 1});
  const Values got = gradient("cross_entropy", {x, labels}, CrossEntropyAttrs{});
  const double p = 1 / (1 + std::exp(1.0));
  expect_values({0, 0, p, -p}, got);
  expect_values({0, 0, 0, -1}, gradient("nll_loss", {x, labels}, NllAttrs{}));
  const auto weights = gradients("nll_loss", {x, labels, row({1, 1})}, NllAttrs{})[2];
  expect_values({0, 0}, weights);  // one row: its weight cancels
}

TEST(GradientValues, OfDropoutIsItsMask) {
  const Operator& op = *find_operator("dropout");
  const std::vector<NDArray> in{ones({1000}, f64), array<int64_t>({7, 3})};
  for (double p : {0., 0.25, 1.}) {
    const Attrs attrs = Attrs::from_map(op.attrs, {{"p", p}}, "dropout");
    const std::vector<NDArray> out = call(op, attrs, in);
    const std::vector<NDArray> heads{ones_like(out[0]), {}};
    const auto got = test::gradients_of(op, attrs, in, out, heads, {1, 0});
    EXPECT_EQ(out[0].to_vector<double>(), got[0].to_vector<double>()) << p;
    // The gradient of the values is not requested.
    EXPECT_FALSE(test::gradients_of(op, attrs, in, out, {NDArray(), NDArray()}, {1, 0})[0].defined());
  }
}

TEST(GradientValues, OfPiecesOfWhichSomeAreNotUsed) {
  const Operator& op = *find_operator("split");
  const std::vector<NDArray> in{row({1, 2, 3})};
  const Attrs attrs = Attrs::from_map(op.attrs, {{"sizes", std::vector<int64_t>{1, 2}}}, "split");
  const std::vector<NDArray> out = call(op, attrs, in);
  const auto got = test::gradients_of(op, attrs, in, out, {NDArray(), row({5, 7})}, {1});
  EXPECT_EQ((Values{0, 5, 7}), got[0].to_vector<double>());
}

// The gradient of an assignment to part of an array must not need the old values, because they are
// overwritten.
TEST(GradientValues, SettingAndAddingNeedOnlyIndices) {
  for (const char* name : {"scatter", "index_update", "put_nd"}) {
    const Operator& op = *find_operator(name);
    for (const Sample& sample : samples_of(op)) {
      const GradientUses uses = op.uses(sample.attrs);
      const std::string how = std::get<std::string>(sample.attrs.to_map().at("how"));
      const bool plain = how == "set" || how == "add";
      for (size_t i = 0; i < sample.inputs.size(); ++i)
        EXPECT_EQ(!plain || is_integral(sample.inputs[i].dtype()), has_bit(uses.inputs, i))
            << name << how << i;
      EXPECT_EQ(how == "max" || how == "min" ? 1u : 0u, uses.outputs);
    }
  }
}

TEST(GradientValues, WhatIsNotInTheRecordIsNotSeen) {
  static const Operator op = [] {
    Operator copy = *find_operator("exp");
    copy.gradient = [](GradientContext& g) { g.set(0, g.head() * g.input(0)); };
    return copy;
  }();
  const std::vector<NDArray> in{row({1})}, out = call(op, {}, in), heads{row({1})};
  EXPECT_THROW(test::gradients_of(op, {}, in, out, heads, {1}), InvalidState);
}

TEST(GradientValues, AGradientOfAnInputThatIsNotThereIsRefused) {
  static const Operator op = [] {
    Operator copy = *find_operator("exp");
    copy.gradient = [](GradientContext& g) { g.set(1, g.head()); };
    return copy;
  }();
  const std::vector<NDArray> in{row({1})}, out = call(op, {}, in), heads{row({1})};
  EXPECT_THROW(test::gradients_of(op, {}, in, out, heads, {1}), InvalidArgument);
}

}  // namespace
}  // namespace mx
