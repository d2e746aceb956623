// Operators that consist of one file each: everything that the file does not define comes from the record.
#include "operators/elementwise_custom.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "tests/operators/gradient_support.h"
#include "tests/support/errors.h"

namespace mx {

NDArray softsign(const Arg& x);
NDArray center(const Arg& x, int64_t axis = -1);
namespace detail {
OperatorFamily family_softsign();
OperatorFamily family_center();
}  // namespace detail

namespace {

using test::contains;
using test::error_of;

double tolerance(DType type) { return type == f64 ? 1e-14 : type == f16 ? 1e-3 : type == bf16 ? 8e-3 : 2e-7; }

double softsign_of(double x) { return x / (1 + std::fabs(x)); }

void expect_near(const std::vector<double>& expected, const NDArray& got, double relative, const char* what) {
  const std::vector<double> values = got.to_vector<double>();
  ASSERT_EQ(expected.size(), values.size()) << what;
  for (size_t i = 0; i < values.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(values[i])) << what << ' ' << i;
    } else {
      EXPECT_NEAR(expected[i], values[i], relative * (std::fabs(expected[i]) + 1e-6)) << what << ' ' << i;
    }
  }
}

TEST(ElementwiseCustom, EveryTypeAndLayoutGivesTheFunction) {
  const NDArray base = (arange(0, 2 * 3 * 700, 1, f32).reshape({2, 3, 700}) - 2000.f) / 250.f;
  for (DType type : kAllDTypes) {
    const NDArray x = (type == u8 || type == bool_ ? base * base : base).to(type);
    for (const NDArray& view : {x, x.transpose(), x.slice(2, {{}, {}, -3}), x.slice(2, {5, 5}), x.flatten(),
                                NDArray(x[1][2][3]), x.select(1, 0).broadcast_to({4, 2, 700})}) {
      const NDArray y = softsign(view);
      EXPECT_EQ(is_floating(type) ? type : f32, y.dtype());
      EXPECT_EQ(view.shape(), y.shape());
      std::vector<double> expected = view.to_vector<double>();
      for (double& v : expected) v = softsign_of(v);
      expect_near(expected, y, tolerance(type), to_string(type));
    }
  }
}

TEST(ElementwiseCustom, SpecialValuesAreTheFunctions) {
  const double inf = std::numeric_limits<double>::infinity();
  const NDArray y = softsign(array({0.0, -0.0, inf, std::nan(""), 1e308, -1e308}));
  const std::vector<double> v = y.to_vector<double>();
  EXPECT_FALSE(std::signbit(v[0]));
  EXPECT_TRUE(std::signbit(v[1]));
  EXPECT_TRUE(std::isnan(v[2])) << "inf / inf, as the formula says";
  EXPECT_TRUE(std::isnan(v[3]));
  EXPECT_EQ(1.0, v[4]);
  EXPECT_EQ(-1.0, v[5]);
}

// The bits of an element must not depend on its position in the array or on its neighbours.
TEST(ElementwiseCustom, AnElementDependsOnItsOperandAlone) {
  const NDArray x = arange(0, 5000, 1, f32) / 77.f - 30.f;
  const std::vector<float> whole = softsign(x).to_vector<float>();
  for (int64_t i : {0, 1, 255, 256, 257, 4999}) EXPECT_EQ(whole[i], softsign(x[i]).item<float>());
  const std::vector<float> odd = softsign(x.slice(0, {1, {}, 2})).to_vector<float>();
  for (size_t i = 0; i < odd.size(); ++i) ASSERT_EQ(whole[2 * i + 1], odd[i]);
}

template <class T, class F>
void expect_rows_agree(F) {
  std::vector<T> x(77);
  for (size_t i = 0; i < x.size(); ++i)
    x[i] = static_cast<T>(0.37) * static_cast<T>(i) - static_cast<T>(11.1);
  const auto rows = detail::elementwise_rows<T, F, 1>();
  std::vector<T> expected(x.size());
  for (size_t i = 0; i < x.size(); ++i) {
    const void* const one[] = {&x[i]};
    rows[0](&expected[i], one, 1);
  }
  for (size_t level = 0; level <= static_cast<size_t>(detail::widest_vectors()); ++level) {
    std::vector<T> y = x;
    const void* const in[] = {y.data()};
    rows[level](y.data(), in, static_cast<int64_t>(y.size()));
    EXPECT_EQ(expected, y) << level;
  }
}

// Whole vectors, remainders and every instruction set must agree, even where a product and a sum could be
// fused.
TEST(ElementwiseCustom, EveryInstructionSetGivesTheSameBits) {
  const auto cubic = [](auto x) { return x * x * x + x * 3 - 1; };
  const auto choice = [](auto x) { return x < 0 ? x * x - 2 : std::sqrt(x) + x; };
  expect_rows_agree<float>(cubic);
  expect_rows_agree<double>(cubic);
  expect_rows_agree<float>(choice);
  expect_rows_agree<double>(choice);
}

TEST(ElementwiseCustom, LargeArraysHaveTheBitsOfSmallOnes) {
  const Operator op = unary_operator("cubic", "x^3 + 3x - 1.", [](auto x) { return x * x * x + x * 3 - 1; });
  // Larger than the caches, and computed by several threads.
  const NDArray x = arange(0, 3000001, 1, f32) * 1e-3f;
  const NDArray y = call(op, {}, std::vector{x})[0];
  const std::vector<float> all = y.to_vector<float>();
  for (int64_t i = 0; i < x.numel(); i += 99991) {
    const NDArray one = call(op, {}, std::vector{x.slice(0, Slice{i, i + 1})})[0];
    EXPECT_EQ(all[static_cast<size_t>(i)], one.to_vector<float>()[0]) << i;
  }
}

TEST(ElementwiseCustom, WorksInPlaceAndOnDevices) {
  NDArray x = arange(0, 1000, 1, f32);
  const NDArray expected = softsign(x);
  const NDArray there = softsign(x.to(virt(0)));
  EXPECT_EQ(expected.to_vector<float>(), there.to(cpu()).to_vector<float>());
  const NDArray inputs[] = {x};
  call_into(x, *detail::family_softsign()[0], {}, inputs);
  EXPECT_EQ(expected.to_vector<float>(), x.to_vector<float>());
}

const Operator& squared_distance() {
  static const Operator op =
      binary_operator("squared_distance", "(a - b)^2.", [](auto a, auto b) { return (a - b) * (a - b); });
  return op;
}

const Operator& near() {
  static const Operator op =
      binary_operator("near", "|a - b| < 1.", [](auto a, auto b) { return std::abs(a - b) < 1; });
  return op;
}

TEST(ElementwiseCustom, TwoOperandsBroadcastAndPromote) {
  const NDArray a = arange(0, 6, 1, f32).reshape({2, 3}), b = arange(0, 2, 1, f64).reshape({2, 1});
  const NDArray y = call_binary(squared_distance(), a, b);
  EXPECT_EQ(f64, y.dtype());
  EXPECT_EQ((std::vector<double>{0, 1, 4, 4, 9, 16}), y.to_vector<double>());
  EXPECT_EQ(f32, call_binary(squared_distance(), arange(3), arange(3)).dtype());
  EXPECT_EQ(f16, call_binary(squared_distance(), ones({2}, f16), 2.5).dtype());
  EXPECT_EQ((std::vector<float>{4, 1, 0}),
            call_binary(squared_distance(), 2, arange(0, 3, 1, f32)).to_vector<float>());
  EXPECT_EQ((std::vector<double>{16, 9}),
            call_binary(squared_distance(), arange(2), full({}, 4.0, f64)).to_vector<double>());
  const std::string message =
      error_of<InvalidArgument>([&] { call_binary(squared_distance(), a, zeros({4})); });
  EXPECT_TRUE(contains(message, "squared_distance") && contains(message, "(2, 3)") &&
              contains(message, "(4,)"))
      << message;
}

TEST(ElementwiseCustom, AFunctionThatReturnsBoolGivesBool) {
  const NDArray y = call_binary(near(), arange(0, 4, 1, f32), 1.5);
  EXPECT_EQ(bool_, y.dtype());
  EXPECT_EQ((std::vector<bool>{false, true, true, false}), y.to_vector<bool>());
}

TEST(ElementwiseCustom, DerivativesAreGivenBesideTheFunction) {
  static const Operator log_ratio = binary_operator(
      "log_ratio", "log(a / b).", [](auto a, auto b) { return std::log(a / b); },
      [](const NDArray& a, const NDArray&) { return reciprocal(a); },
      [](const NDArray&, const NDArray& b) { return -reciprocal(b); });
  const NDArray a = array({{0.5f, 2.f, 3.f}, {1.f, 4.f, 0.25f}});
  test::expect_gradients(log_ratio, {{a, a + 1}, {}, "same shape"});
  test::expect_gradients(log_ratio, {{a, a[0]}, {}, "a row"});
  test::expect_gradients(log_ratio, {{a, a[1][1]}, {}, "a number"});
  for (const Operator* op : {detail::family_softsign()[0], detail::family_center()[0]})
    for (const Sample& sample : op->samples()) test::expect_gradients(*op, sample);
  EXPECT_EQ(nullptr, squared_distance().gradient);
}

// The form with a number computes the same function, in one operation, with the number as an attribute.
TEST(ElementwiseCustom, ANumberIsAnAttributeOfTheCall) {
  for (DType type : kAllDTypes) {
    const NDArray x = array({{1.f, 2.f, 0.f}, {3.f, 5.f, 7.f}}).to(type).transpose();
    const NDArray number = full({}, 2.5, f64);
    const NDArray left = call_binary(squared_distance(), 2.5, x),
                  right = call_binary(squared_distance(), x, 2.5);
    EXPECT_EQ(is_floating(type) ? type : f32, right.dtype());
    const NDArray want = call_binary(squared_distance(), x, number);
    expect_near(want.to_vector<double>(), right, tolerance(type), to_string(type));
    EXPECT_EQ(right.to_vector<double>(), left.to_vector<double>());
  }
  // A number has the type of the computation: f16 is computed in float, in which 65510 is not 65504.
  EXPECT_EQ(36.f, call_binary(squared_distance(), full({}, 65504, f16), 65510).item<float>());
  const std::string text = error_of<InvalidArgument>([] { call_binary(squared_distance(), 1, 2); });
  EXPECT_TRUE(contains(text, "[squared_distance] expected an array among the operands, got two numbers"))
      << text;
  Operator without = squared_distance();
  without.number_form = nullptr;
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { call_binary(without, ones({2}), 2); }),
                       "the operator has no form with a number, got the number 2"));
}

TEST(ElementwiseCustom, TheFormWithANumberHasTheGradientOfItsArray) {
  static const Operator log_ratio = binary_operator(
      "log_ratio", "log(a / b).", [](auto a, auto b) { return std::log(a / b); },
      [](const NDArray& a, const NDArray&) { return reciprocal(a); },
      [](const NDArray&, const NDArray& b) { return -reciprocal(b); });
  for (const Sample& sample : log_ratio.number_form->samples())
    test::expect_gradients(*log_ratio.number_form, sample);
  EXPECT_EQ(nullptr, squared_distance().number_form->gradient);
}

TEST(OneFile, TheRegistryTakesTheFormWithANumberToo) {
  static const Operator op = binary_operator("pulled_apart", "a - b.", [](auto a, auto b) { return a - b; });
  if (find_operator("pulled_apart") == nullptr) register_operator(op);
  EXPECT_EQ(&op, find_operator("pulled_apart"));
  const Operator* const form = find_operator("pulled_apart_scalar");
  ASSERT_EQ(op.number_form, form);
  EXPECT_STREQ("a - b. One operand is a number.", form->doc);
  static Operator other = op;
  other.kernel.name = "pulled_apart_again";
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { register_operator(other); }), "pulled_apart_scalar"));
  EXPECT_EQ(nullptr, find_operator("pulled_apart_again")) << "neither, if one name is taken";
}

TEST(OneFile, TheRegistryTakesThem) {
  if (find_operator("softsign") == nullptr) register_operator(*detail::family_softsign()[0]);
  const Operator* op = find_operator("softsign");
  ASSERT_NE(nullptr, op);
  for (const Sample& sample : op->samples()) {
    const NDArray y = call(*op, sample.attrs, sample.inputs)[0];
    EXPECT_EQ(sample.inputs[0].shape(), y.shape()) << sample.label;
  }
  error_of<InvalidArgument>([] { register_operator(*detail::family_softsign()[0]); });
}

TEST(OneFile, AStructuredOperatorGivesItsOracle) {
  for (DType type : detail::family_center()[0]->dtypes) {
    for (const Sample& sample : detail::family_center()[0]->samples()) {
      const NDArray x = sample.inputs[0].to(type);
      const NDArray y = call(*detail::family_center()[0], sample.attrs, std::vector{x})[0];
      const bool rows = sample.label == "rows";
      const std::vector<double> v = x.to_vector<double>();
      std::vector<double> expected(6);
      for (size_t r = 0; r < 2; ++r)
        for (size_t c = 0; c < 3; ++c) {
          const double mean = rows ? (v[3 * r] + v[3 * r + 1] + v[3 * r + 2]) / 3 : (v[c] + v[3 + c]) / 2;
          expected[3 * r + c] = v[3 * r + c] - mean;
        }
      const std::vector<double> got = y.to_vector<double>();
      for (size_t i = 0; i < 6; ++i) EXPECT_NEAR(expected[i], got[i], 8 * tolerance(type)) << sample.label;
    }
  }
  EXPECT_EQ((Shape{0, 3}), center(zeros({0, 3})).shape());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { center(zeros({2, 3}), 2); }), "center"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { center(arange(3)); }), "i64"));
  const NDArray big = arange(0, 40000, 1, f64).reshape({200, 200}).transpose();
  EXPECT_EQ(-99.5 * 200, center(big)[7][0].item<double>());
}

}  // namespace
}  // namespace mx
