// Rotary position embedding: a plain loop in float64, distances, offsets, errors.
#include "operators/rotary.h"

#include <gtest/gtest.h>

#include <cmath>

#include "operators/operators.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::Values;

Values plain_rotary(const NDArray& x, const RotaryAttrs& o) {
  const Shape& n = x.shape();
  const int64_t length = n[n.rank() - 2], width = n[n.rank() - 1];
  const int64_t dims = o.dims == 0 ? width : o.dims;
  Values y = test::values(x);
  for (size_t row = 0; width > 0 && row < y.size() / static_cast<size_t>(width); ++row) {
    const double position = static_cast<double>(o.offset + static_cast<int64_t>(row) % length);
    for (int64_t i = 0; i < dims / 2; ++i) {
      const double angle = (o.inverse ? -1 : 1) * position /
                           std::pow(o.theta, 2. * static_cast<double>(i) / static_cast<double>(dims));
      double& a = y[row * static_cast<size_t>(width) + static_cast<size_t>(o.interleaved ? 2 * i : i)];
      double& b =
          y[row * static_cast<size_t>(width) + static_cast<size_t>(o.interleaved ? 2 * i + 1 : i + dims / 2)];
      const double before = a;
      a = before * std::cos(angle) - b * std::sin(angle);
      b = b * std::cos(angle) + before * std::sin(angle);
    }
  }
  return y;
}

TEST(RotaryOp, AgreesWithAPlainLoopForAllSamplesAndTypes) {
  const Operator& op = *find_operator("rotary_embedding");
  for (const DType type : {f32, f64, f16, bf16})
    for (const Sample& sample : samples_of(op)) {
      const NDArray x = sample.inputs[0].to(type);
      test::expect_values(plain_rotary(x, sample.attrs.get<RotaryAttrs>()), call(op, sample.attrs, x),
                          sample.label, 4);
    }
}

TEST(RotaryOp, AgreesWithAPlainLoopForAllSizes) {
  for (const int64_t length : {0, 1, 7, 300})
    for (const int64_t width : {0, 2, 6, 64, 130})
      for (const DType type : {f64, f32})
        for (const bool interleaved : {false, true}) {
          const NDArray x = test::numbers({2, 3, length, width}, type);
          const RotaryOptions o{.offset = 11, .interleaved = interleaved};
          test::expect_values(plain_rotary(x, o), rotary_embedding(x, o), std::to_string(length), 10);
          const NDArray turned = x.swap_axes(1, 2);
          test::expect_values(plain_rotary(turned, o), rotary_embedding(turned, o), "swapped", 10);
        }
}

TEST(RotaryOp, LargeAndNegativePositions) {
  for (const int64_t offset : {-100, -33, -32, -1, 100'000, 1'000'000})
    for (const int64_t length : {3, 70})
      for (const bool inverse : {false, true}) {
        const NDArray x = test::numbers({length, 16}, f32);
        const RotaryOptions o{.offset = offset, .inverse = inverse};
        test::expect_values(plain_rotary(x, o), rotary_embedding(x, o), std::to_string(offset), 10);
      }
}

TEST(RotaryOp, ProductsDependOnTheDistanceOnly) {
  const NDArray q = test::numbers({1, 16}, f64, 1), k = test::numbers({1, 16}, f64, 2);
  const auto product = [&](int64_t i, int64_t j) {
    return sum(rotary_embedding(q, {.offset = i}) * rotary_embedding(k, {.offset = j})).item<double>();
  };
  for (const int64_t distance : {0, 1, 5})
    EXPECT_NEAR(product(3 + distance, 3), product(90 + distance, 90), 1e-11);
  EXPECT_GT(std::abs(product(3, 3) - product(4, 3)), 1e-3);
}

// A position has the same bits in every call, so decoding with a cache gives those of the full pass.
TEST(RotaryOp, OnePositionAtATimeGivesTheSameBits) {
  const NDArray x = test::numbers({100, 64}, f32);
  const NDArray all = rotary_embedding(x, {.offset = -20});
  for (int64_t i = 0; i < 100; ++i)
    EXPECT_EQ(test::values(all.slice(0, {i, i + 1})),
              test::values(rotary_embedding(x.slice(0, {i, i + 1}), {.offset = i - 20})));
}

TEST(RotaryOp, AnOffsetGoesOnWhereOtherRowsEnd) {
  const NDArray x = test::numbers({2, 10, 8}, f32);
  const NDArray all = rotary_embedding(x);
  EXPECT_EQ(test::values(all.slice(1, {6, 10})),
            test::values(rotary_embedding(x.slice(1, {6, 10}), {.offset = 6})));
  const NDArray back = rotary_embedding(all, {.inverse = true});
  EXPECT_LT(max(abs(back - x)).item<float>(), 1e-6f);
}

TEST(RotaryOp, WrongOperandsAreNamed) {
  const auto refused = [](const NDArray& x, const RotaryOptions& o = {}) {
    return error_of<InvalidArgument>([&] { rotary_embedding(x, o); });
  };
  EXPECT_TRUE(contains(refused(ones({4})), "[rotary_embedding] expected an array (.., length, width)"));
  EXPECT_TRUE(contains(refused(ones({2, 5})), "an even number of dims up to the width, 5, got 5"));
  EXPECT_TRUE(contains(refused(ones({2, 4}), {.dims = 6}), "up to the width, 4, got 6"));
  EXPECT_TRUE(contains(refused(ones({2, 4}), {.dims = -2}), "got -2"));
  EXPECT_TRUE(contains(refused(ones({2, 4}), {.theta = 0}), "a positive finite theta, got 0"));
  EXPECT_TRUE(contains(refused(ones({2, 4}, i32)), "floating-point"));
}

}  // namespace
}  // namespace mx
