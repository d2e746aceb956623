#include "operators/select.h"

#include <algorithm>

#include "operators/elementwise_binary.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::kInfinity;
using test::kNan;
using test::Values;

Values of_three(const Shape& shape, const std::vector<NDArray>& in, double (*f)(double, double, double)) {
  const Values a = test::values(in[0]), b = test::values(in[1]), c = test::values(in[2]);
  Values result;
  for (int64_t i = 0; i < shape.numel(); ++i) {
    const Shape at = test::place(shape, i);
    result.push_back(f(test::broadcast_value(in[0], a, at), test::broadcast_value(in[1], b, at),
                       test::broadcast_value(in[2], c, at)));
  }
  return result;
}

TEST(SelectOp, AgreesWithAPlainLoopForAllSamplesAndTypes) {
  test::each_sample("where", [](const Operator& op, const Sample& s) {
    const NDArray y = call(op, s.attrs, s.inputs)[0];
    test::expect_values(
        of_three(y.shape(), s.inputs, [](double c, double a, double b) { return c != 0 ? a : b; }), y,
        s.label);
  });
  test::each_sample("clamp", [](const Operator& op, const Sample& s) {
    const NDArray y = call(op, s.attrs, s.inputs)[0];
    const auto clamped = [](double x, double low, double high) { return std::min(std::max(x, low), high); };
    test::expect_values(of_three(y.shape(), s.inputs, clamped), y, s.label);
  });
  test::each_sample("clamp_scalar", [](const Operator& op, const Sample& s) {
    const NDArray y = call(op, s.attrs, s.inputs)[0];
    // A limit that is not a number is the second input, or there is none.
    const AttrMap attrs = s.attrs.to_map();
    const auto limit = [&](const char* name, double none) {
      if (const auto* real = std::get_if<double>(&attrs.at(name))) return full({}, *real, f64);
      if (const auto* whole = std::get_if<int64_t>(&attrs.at(name))) return full({}, *whole, i64);
      return s.inputs.size() == 2 ? s.inputs[1] : full({}, none, f64);
    };
    const auto clamped = [](double x, double low, double high) { return std::min(std::max(x, low), high); };
    test::expect_values(
        of_three(y.shape(), {s.inputs[0], limit("low", -kInfinity), limit("high", kInfinity)}, clamped), y,
        s.label);
  });
}

TEST(SelectOp, WhereBroadcastsPromotesAndTakesNumbers) {
  const NDArray c = array<int32_t>({0, 2, 0});
  EXPECT_EQ((Values{-1, 1, -1}), test::values(where(c, 1, -1)));
  EXPECT_EQ(i64, where(c, 1, -1).dtype());
  EXPECT_EQ(f32, where(c, 1, 0.5).dtype());
  EXPECT_EQ(bool_, where(c, true, false).dtype());
  EXPECT_EQ(f16, where(c, ones({3}, f16), 0.5).dtype());
  EXPECT_EQ(f32, where(c, 0.5, ones({3}, i32)).dtype());
  EXPECT_EQ(f64, where(c, ones({3}, f64), ones({3}, i32)).dtype());
  EXPECT_EQ((Shape{2, 2, 3}), where(zeros({2, 1, 1}), zeros({2, 1}), zeros({3})).shape());
  test::expect_values({1, kNan, 1}, where(c, kNan, array({1.f, kInfinity > 0 ? 2.f : 0.f, 1.f})), "NaN");
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { where(c, zeros({2}), 1); }), "[where_scalar]"));
}

TEST(SelectOp, WhereIntoOneOfItsOperandsOfAnyLayout) {
  for (NDArray view : test::layouts(test::numbers({4, 6}, f32))) {
    NDArray a = view;
    const NDArray condition = less(a, 0), b = a * 2 + 1;
    const Values want = of_three(a.shape(), {condition, a.clone(), b},
                                 [](double c, double x, double y) { return c != 0 ? x : y; });
    const NDArray inputs[] = {condition, a, b};
    call_into(a, *find_operator("where"), {}, inputs);
    test::expect_values(want, a, "in place");
  }
}

TEST(SelectOp, ClampOfOneSideOfNanAndOfCrossedLimits) {
  const NDArray x = array({-3., kNan, 0.5, kInfinity});
  test::expect_values({-1, kNan, 0.5, 1}, clamp(x, -1, 1), "clamp");
  test::expect_values({-1, kNan, 0.5, 1}, clip(x, -1, 1), "clip");
  test::expect_values({0, kNan, 0.5, kInfinity}, clamp_min(x, 0), "low");
  test::expect_values({-3, kNan, 0, 0}, clamp_max(x, 0), "high");
  test::expect_values({-2, kNan, -2, -2}, clamp(x, 2, -2), "crossed");
  test::expect_values({kNan, kNan, kNan, kNan}, clamp(x, kNan, 1), "limit");
  EXPECT_EQ(f32, clamp(ones({2}, i32), 0.5, 2).dtype());
  EXPECT_EQ(i32, clamp(ones({2}, i32), 0, 2).dtype());
  EXPECT_EQ((Values{1, 2}), test::values(clamp(array<int64_t>({0, 5}), array<int64_t>({1, 1}), 2)));
  const NDArray wide = clamp(x, zeros({2, 1}), 0.25);
  EXPECT_EQ((Shape{2, 4}), wide.shape()) << "the limits broadcast";
  test::expect_values({0, kNan, 0.25, 0.25, 0, kNan, 0.25, 0.25}, wide, "an array and a number");
  const AttrMap two = {{"low", int64_t{0}}, {"high", int64_t{1}}};
  const Operator& numbers = *find_operator("clamp_scalar");
  for (const AttrMap& attrs : {AttrMap{}, two})
    EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                           call(numbers, Attrs::from_map(numbers.attrs, attrs, "clamp_scalar"), x, x);
                         }),
                         "expected one number beside an array of limits"));
}

TEST(SelectOp, LerpMeetsBothEnds) {
  const NDArray a = array({1e8f, 0.1f, -3.f}), b = array({-1.f, 0.7f, 1e-3f});
  EXPECT_EQ(test::values(a), test::values(lerp(a, b, 0)));
  EXPECT_EQ(test::values(b), test::values(lerp(a, b, 1)));
  EXPECT_EQ(test::values(b), test::values(lerp(a, b, ones({3}))));
  EXPECT_EQ(test::values(a), test::values(lerp(a, b, zeros({3}))));
  test::expect_values({0.25, 1.5}, lerp(zeros({2}), array({1.f, 2.f}), array({0.25f, 0.75f})), "between");
  test::expect_values({0.75, 1.5}, lerp(zeros({2}), array({1.f, 2.f}), 0.75), "a number");
}

TEST(SelectOp, MaskedFillKeepsTheType) {
  const NDArray x = arange(6).reshape({2, 3}), mask = array<bool>(std::vector<bool>{true, false, true});
  EXPECT_EQ((Values{-1, 1, -1, -1, 4, -1}), test::values(masked_fill(x, mask, -1)));
  EXPECT_EQ(i64, masked_fill(x, mask, -1).dtype());
  test::expect_values({-kInfinity, 1, -kInfinity}, masked_fill(ones({3}, f16), mask, -kInfinity), "f16");
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { masked_fill(x, mask, 1.5); }), "i64 can hold"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { masked_fill(x, x, 1); }), "type bool"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] {
                         masked_fill(ones({3}), full({2, 3}, true, bool_), 1);
                       }),
                       "broadcasts to (3,)"));
}

}  // namespace
}  // namespace mx
