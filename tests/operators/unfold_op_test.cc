// Unfold and fold: a plain loop in float64, each the transpose of the other, PyTorch's values, errors.
#include "operators/unfold.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "operators/operators.h"
#include "tests/operators/registry_support.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::expect_error;
using test::Values;

/// Calls f(place in x, place in the columns) for each element of each window that is inside of the image.
template <class F>
void each_element(const Shape& x, const UnfoldAttrs& a, const F& f) {
  int64_t windows[2];
  for (int d = 0; d < 2; ++d)
    windows[d] = (x[2 + d] + 2 * a.padding[d] - a.dilation[d] * (a.kernel[d] - 1) - 1) / a.stride[d] + 1;
  size_t place = 0;
  for (int64_t n = 0; n < x[0]; ++n)
    for (int64_t c = 0; c < x[1]; ++c)
      for (int64_t i = 0; i < a.kernel[0]; ++i)
        for (int64_t j = 0; j < a.kernel[1]; ++j)
          for (int64_t oh = 0; oh < windows[0]; ++oh)
            for (int64_t ow = 0; ow < windows[1]; ++ow, ++place) {
              const int64_t h = oh * a.stride[0] - a.padding[0] + i * a.dilation[0];
              const int64_t w = ow * a.stride[1] - a.padding[1] + j * a.dilation[1];
              if (h >= 0 && h < x[2] && w >= 0 && w < x[3])
                f(static_cast<size_t>(((n * x[1] + c) * x[2] + h) * x[3] + w), place);
            }
}

UnfoldAttrs transposed_attrs(const FoldAttrs& a) { return {a.kernel, a.dilation, a.padding, a.stride}; }

TEST(UnfoldOp, AgreesWithAPlainLoopForAllSamplesAndTypes) {
  for (const DType type : {f32, f64, f16, bf16}) {
    const Operator &unfold_op = *find_operator("unfold"), &fold_op = *find_operator("fold");
    for (const Sample& sample : samples_of(unfold_op)) {
      const NDArray x = sample.inputs[0].to(type), y = call(unfold_op, sample.attrs, x);
      const Values in = test::values(x);
      Values expected(static_cast<size_t>(y.numel()), 0);
      each_element(x.shape(), sample.attrs.get<UnfoldAttrs>(),
                   [&](size_t from, size_t to) { expected[to] = in[from]; });
      test::expect_values(expected, y, sample.label, 0);
    }
    for (const Sample& sample : samples_of(fold_op)) {
      const NDArray columns = sample.inputs[0].to(type), y = call(fold_op, sample.attrs, columns);
      const Values in = test::values(columns);
      Values expected(static_cast<size_t>(y.numel()), 0);
      each_element(y.shape(), transposed_attrs(sample.attrs.get<FoldAttrs>()),
                   [&](size_t to, size_t from) { expected[to] += in[from]; });
      test::expect_values(expected, y, sample.label, 4);
    }
  }
}

// Values of torch.nn.functional.unfold(torch.arange(12.).reshape(1, 1, 3, 4), (2, 3), padding=(0, 1),
// stride=(1, 2)), and of fold() of them.
TEST(UnfoldOp, GivesWhatPyTorchGives) {
  const NDArray x = arange(12).to(f32).reshape({1, 1, 3, 4});
  const UnfoldAttrs attrs{.kernel = {2, 3}, .padding = {0, 1}, .stride = {1, 2}};
  const NDArray columns = unfold(x, attrs);
  EXPECT_EQ(Shape({1, 6, 4}), columns.shape());
  EXPECT_EQ((std::vector<float>{0, 1, 0, 5, 0, 2, 4, 6, 1, 3, 5, 7, 0, 5, 0, 9, 4, 6, 8, 10, 5, 7, 9, 11}),
            columns.to_vector<float>());
  const NDArray y = fold(columns, {{3, 4}, attrs.kernel, attrs.dilation, attrs.padding, attrs.stride});
  EXPECT_EQ((std::vector<float>{0, 2, 2, 3, 8, 20, 12, 14, 8, 18, 10, 11}), y.to_vector<float>());
}

TEST(UnfoldOp, ProductsWithColumnsAreConvolutions) {
  const NDArray x = test::numbers({2, 3, 6, 5}, f64), weight = test::numbers({4, 3, 3, 2}, f64);
  const NDArray y = matmul(weight.reshape({4, -1}), unfold(x, {.kernel = {3, 2}, .padding = 1}));
  const NDArray expected = convolution(x, weight, {.padding = 1});
  test::expect_values(test::values(expected), y.reshape(expected.shape()), "convolution", 100);
}

TEST(UnfoldOp, TakesOneImageAndEmptySizes) {
  const NDArray x = test::numbers({3, 4, 5}, f32);
  const NDArray columns = unfold(x, {.kernel = 2});
  EXPECT_EQ(Shape({12, 12}), columns.shape());
  EXPECT_EQ(test::content_of(unfold(x.expand_dims(0), {.kernel = 2})[0]), test::content_of(columns));
  EXPECT_EQ(Shape({3, 4, 5}), fold(columns, {.size = {4, 5}, .kernel = 2}).shape());
  EXPECT_EQ(Shape({0, 12, 12}), unfold(zeros({0, 3, 4, 5}), {.kernel = 2}).shape());
  EXPECT_EQ(Shape({2, 0, 12}), unfold(zeros({2, 0, 4, 5}), {.kernel = 2}).shape());
  EXPECT_EQ(std::vector<float>(2, 0),
            unfold(zeros({1, 1, 0, 1}), {.kernel = 1, .padding = {1, 0}}).to_vector<float>())
      << "padding only";
  EXPECT_EQ(Shape({0, 1, 4, 5}), fold(zeros({0, 4, 12}), {.size = {4, 5}, .kernel = 2}).shape());
}

TEST(UnfoldOp, NumbersOfWindowsBeyondInt64AreErrors) {
  const UnfoldAttrs wide{.kernel = 1, .padding = 2147483647};
  expect_error<InvalidArgument>("fewer than 2^63 windows", [&] { unfold(zeros({1, 1, 2, 2}), wide); });
  expect_error<InvalidArgument>("fewer than 2^63 windows", [&] {
    fold(zeros({1, 1, 0}), {.size = {2, 2}, .kernel = 1, .padding = 2147483647});
  });
}

TEST(UnfoldOp, BadNumbersAreNamed) {
  const NDArray x = zeros({2, 3, 4, 5});
  expect_error<InvalidArgument>("window of at most the padded image, 4", [&] { unfold(x, {.kernel = 5}); });
  expect_error<InvalidArgument>("[unfold]", [&] { unfold(x, {.kernel = 0}); });
  expect_error<InvalidArgument>("[unfold]", [&] { unfold(x, {.kernel = 1, .stride = 0}); });
  expect_error<InvalidArgument>("[unfold]", [&] { unfold(x, {.kernel = 1, .dilation = 0}); });
  expect_error<InvalidArgument>("[unfold]", [&] { unfold(x, {.kernel = 1, .padding = -1}); });
  expect_error<InvalidArgument>("[unfold]", [&] { unfold(x, {.kernel = {1, 1, 1}}); });
  expect_error<InvalidArgument>("floating-point", [&] { unfold(x.to(i32), {.kernel = 1}); });
  expect_error<InvalidArgument>("images, channels, height and width", [&] {
    unfold(zeros({4, 5}), {.kernel = 1});
  });
  expect_error<InvalidArgument>("12 windows", [&] {
    fold(zeros({2, 12, 11}), {.size = {4, 5}, .kernel = 2});
  });
  expect_error<InvalidArgument>("multiple of 4", [&] {
    fold(zeros({2, 13, 12}), {.size = {4, 5}, .kernel = 2});
  });
  expect_error<InvalidArgument>("[fold]", [&] { fold(zeros({2, 12, 12}), {.size = {-4, 5}, .kernel = 2}); });
}

}  // namespace
}  // namespace mx
