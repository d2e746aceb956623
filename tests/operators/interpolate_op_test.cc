// Interpolation and its gradient: a plain loop in float64, types, layouts, sizes beside the blocks, errors.
#include "operators/interpolate.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "operators/operators.h"
#include "operators/resample_attrs.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"
#include "tests/support/instruction_sets.h"

namespace mx {
namespace {

using detail::ResampleAttrs;
using test::contains;
using test::error_of;
using test::Values;

struct PlainTap {
  int64_t place;
  double weight;
};

std::vector<PlainTap> plain_taps(const ResampleAttrs& o, int axis, int64_t in, int64_t out, int64_t i) {
  const double step = o.steps[static_cast<size_t>(axis)], index = static_cast<double>(i);
  const auto inside = [&](double place) {
    return static_cast<int64_t>(std::clamp(place, 0., static_cast<double>(in - 1)));
  };
  if (o.mode == "nearest") return {{inside(std::floor(index * step)), 1}};
  if (o.mode == "nearest-exact") return {{inside(std::floor((index + 0.5) * step)), 1}};
  const double position = o.align_corners ? index * step : (index + 0.5) * step - 0.5;
  std::vector<PlainTap> taps;
  if (o.mode == "linear") {
    if (in == out) return {{i, 1}};
    const double low = std::floor(position), share = position - low;
    return {{inside(low), 1 - share}, {inside(low + 1), share}};
  }
  const double a = -0.75;
  for (double place = std::floor(position) - 1; place <= std::floor(position) + 2; ++place) {
    const double d = std::abs(position - place);
    taps.push_back({inside(place), d <= 1 ? (a + 2) * d * d * d - (a + 3) * d * d + 1
                                          : a * d * d * d - 5 * a * d * d + 8 * a * d - 4 * a});
  }
  return taps;
}

/// One axis after the other: along each, element i of the result is a sum of elements of x, or element i of a
/// gradient is added to elements of the operand's.
Values plain_resample(const NDArray& x, const ResampleAttrs& o, bool transposed) {
  Values list = test::values(x);
  Shape shape = x.shape();
  for (int axis = 0; axis < shape.rank() - 2; ++axis) {
    const int64_t before = shape[2 + axis], after = o.size[axis];
    int64_t outer = 1, inner = 1;
    for (int d = 0; d < 2 + axis; ++d) outer *= shape[d];
    for (int d = 3 + axis; d < shape.rank(); ++d) inner *= shape[d];
    Values next(static_cast<size_t>(outer * after * inner));
    const auto at = [&](int64_t n, int64_t size, int64_t i, int64_t k) {
      return static_cast<size_t>((n * size + i) * inner + k);
    };
    for (int64_t i = 0; i < (transposed ? before : after); ++i)
      for (const PlainTap& tap :
           plain_taps(o, axis, transposed ? after : before, transposed ? before : after, i))
        for (int64_t n = 0; n < outer; ++n)
          for (int64_t k = 0; k < inner; ++k)
            next[at(n, after, transposed ? tap.place : i, k)] +=
                tap.weight * list[at(n, before, transposed ? i : tap.place, k)];
    list = next;
    shape[2 + axis] = after;
  }
  return list;
}

void expect_plain(const NDArray& x, const ResampleAttrs& o, bool transposed, const std::string& what) {
  const Operator& op = *find_operator(transposed ? "resample_backward" : "resample");
  test::expect_values(plain_resample(x, o, transposed), call(op, o, x), what, 8);
}

TEST(InterpolateOp, AgreesWithAPlainLoopForAllSamplesTypesAndLayouts) {
  for (const bool transposed : {false, true}) {
    const char* const name = transposed ? "resample_backward" : "resample";
    test::each_sample(name, [&](const Operator&, const Sample& sample) {
      for (const NDArray& x : test::layouts(sample.inputs[0]))
        expect_plain(x, sample.attrs.get<ResampleAttrs>(), transposed, sample.label);
    });
  }
}

// Sizes beside blocks of 16 elements and beside vectors, steps above and below 1.
void expect_plain_for_all_sizes() {
  for (const char* mode : {"linear", "cubic", "nearest-exact"})
    for (const int64_t in : {1, 2, 7, 16, 33})
      for (const int64_t out : {1, 5, 16, 31, 100})
        for (const bool corners : {false, true}) {
          if (corners && std::string(mode) == "nearest-exact") continue;
          const double step = corners
                                  ? out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0
                                  : static_cast<double>(in) / static_cast<double>(out);
          ResampleAttrs o{.size = {3, out}, .steps = {1.5, step}, .mode = mode, .align_corners = corners};
          const std::string what =
              std::string(mode) + ' ' + std::to_string(in) + " to " + std::to_string(out);
          for (const DType type : {f32, f64}) {
            expect_plain(test::numbers({2, 1, 4, in}, type), o, false, what);
            o.size = {4, in};
            expect_plain(test::numbers({2, 1, 3, out}, type), o, true, what);
            o.size = {3, out};
          }
        }
}

TEST(InterpolateOp, AgreesWithAPlainLoopForAllSizes) {
  test::with_every_instruction_set([](int64_t) { expect_plain_for_all_sizes(); });
}

// More rows in a sum than are added at once, along one outer axis and along two.
TEST(InterpolateOp, AgreesWithAPlainLoopForSumsOfManyRows) {
  for (const char* mode : {"linear", "cubic", "nearest"}) {
    ResampleAttrs o{.size = {2, 21}, .steps = {0.05, 0.7}, .mode = mode};
    for (const DType type : {f32, f16}) {
      expect_plain(test::numbers({1, 2, 40, 30}, type), o, true, mode);
      expect_plain(test::numbers({1, 2, 30, 40}, type).swap_axes(2, 3), o, true, mode);
    }
    o = {.size = {2, 3, 5}, .steps = {0.25, 0.3, 0.5}, .mode = mode};
    expect_plain(test::numbers({2, 1, 8, 10, 10}, f32), o, true, mode);
    expect_plain(test::numbers({2, 1, 8, 10, 10}, f32), o, false, mode);
  }
}

// An element of the result must not depend on elements that it has no tap at, not even by 0 * infinity.
TEST(InterpolateOp, AnInfinityReachesItsNeighboursOnly) {
  NDArray dy = zeros({1, 1, 4, 64});
  dy.select(2, 0).select(2, 0).copy_from(full({1, 1}, std::numeric_limits<double>::infinity()));
  const Operator& backward = *find_operator("resample_backward");
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    const Values dx =
        test::values(call(backward, ResampleAttrs{.size = {2, 40}, .steps = {0.5, 0.625}, .mode = mode}, dy));
    for (size_t i = 0; i < dx.size(); ++i)
      EXPECT_EQ(i % 40 >= 4 || std::isfinite(dx[i]), std::isfinite(dx[i])) << mode << i;
  }
}

// As in PyTorch: whatever the factor, and without a tap of weight 0 at a neighbour.
TEST(InterpolateOp, ALinearAxisThatKeepsItsSizeIsCopied) {
  NDArray x = test::numbers({1, 1, 3, 4}, f32);
  x[{0, 0, 1, 1}] = std::numeric_limits<float>::infinity();
  const NDArray same = interpolate(x, {.size = PerAxis{3, 4}, .mode = "bilinear"});
  EXPECT_EQ(test::values(x), test::values(same));
  const NDArray line = arange(4).to(f32).reshape({1, 1, 4});
  const NDArray scaled = interpolate(line, {.scale_factor = {1.2}, .mode = "linear"});
  EXPECT_EQ(test::values(line), test::values(scaled));
  const ResampleAttrs o{.size = 4, .steps = {1 / 1.2}, .mode = "linear"};
  EXPECT_EQ(test::values(line), test::values(call(*find_operator("resample_backward"), o, line)));
}

TEST(InterpolateOp, TheGradientIsTheTranspose) {
  const Operator &forward = *find_operator("resample"), &backward = *find_operator("resample_backward");
  for (const char* mode : {"nearest", "linear", "cubic"}) {
    ResampleAttrs o{.size = {22, 14}, .steps = {0.4, 1 / 0.7}, .mode = mode};
    const NDArray x = test::numbers({2, 3, 9, 20}, f64, 1), dy = test::numbers({2, 3, 22, 14}, f64, 2);
    const double one = sum(call(forward, o, x) * dy).item<double>();
    o.size = {9, 20};
    EXPECT_NEAR(one, sum(x * call(backward, o, dy)).item<double>(), 1e-10) << mode;
  }
}

TEST(InterpolateOp, HalfPrecisionIsRoundedOnce) {
  for (const DType type : {f16, bf16}) {
    const NDArray x = test::numbers({1, 2, 5, 6}, type);
    const InterpolateOptions o{.size = PerAxis{7, 13}, .mode = "bicubic"};
    EXPECT_EQ(test::values(interpolate(x.to(f32), o).to(type)), test::values(interpolate(x, o)));
  }
}

TEST(InterpolateOp, ImagesWithoutElements) {
  EXPECT_EQ(Shape({0, 3, 8, 8}),
            interpolate(zeros({0, 3, 4, 4}), {.scale_factor = {2}, .mode = "bilinear"}).shape());
  EXPECT_EQ(Shape({2, 0, 8}), interpolate(zeros({2, 0, 4}), {.scale_factor = {2}, .mode = "linear"}).shape());
}

TEST(InterpolateOp, WrongAttributesAreNamed) {
  const auto refused = [](const NDArray& x, const ResampleAttrs& o) {
    return error_of<InvalidArgument>([&] { call(*find_operator("resample"), o, x); });
  };
  const NDArray x = ones({1, 1, 4, 4});
  EXPECT_TRUE(contains(refused(ones({1, 4}), {.steps = {1}}), "[resample] expected images, channels"));
  EXPECT_TRUE(contains(refused(x.to(i32), {.steps = {1, 1}}), "[resample] expected floating-point elements"));
  EXPECT_TRUE(contains(refused(x, {.steps = {1}}), "[resample] expected 2 steps, got 1"));
  EXPECT_TRUE(contains(refused(x, {.steps = {1, -1}}), "expected steps from 0 to 2^31 - 1, got -1"));
  EXPECT_TRUE(contains(refused(x, {.steps = {1, std::nan("")}}), "expected steps from 0"));
  EXPECT_TRUE(contains(refused(x, {.steps = {1, 1}, .mode = "area"}), "got \"area\""));
  EXPECT_TRUE(
      contains(refused(x, {.size = {1, 0}, .steps = {1, 1}}), "[resample] expected a size of at least 1"));
  EXPECT_TRUE(contains(refused(zeros({1, 1, 0, 4}), {.steps = {1, 1}}), "expected spatial sizes from 1"));
}

}  // namespace
}  // namespace mx
