#include "operators/convolution.h"

#include <algorithm>

#include "operators/operators.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"
#include "tests/support/instruction_sets.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::Values;

/// The terms of a convolution, in doubles: calls f(element of x, of the weight, of y) for every product.
template <class A, class F>
void each_term(const Shape& x, const Shape& weight, const Shape& y, const A& a, const F& f) {
  const int axes = x.rank() - 2;
  const Strides xs = contiguous_strides(x), ws = contiguous_strides(weight), ys = contiguous_strides(y);
  const int64_t rows = weight[0] / a.groups, per_group = weight[1];
  for (int64_t i = 0; i < y.numel(); ++i)
    for (int64_t c = 0; c < per_group; ++c)
      for (int64_t t = 0; t < weight.numel() / std::max<int64_t>(1, weight[0] * weight[1]); ++t) {
        const int64_t out = i / ys[1] % y[1], group = out / rows;
        int64_t at = i / ys[0] * xs[0] + (group * per_group + c) * xs[1], w = out * ws[0] + c * ws[1] + t;
        bool inside = true;
        for (int d = 0; d < axes; ++d) {
          const int64_t o = i / ys[2 + d] % y[2 + d], k = t / ws[2 + d] % weight[2 + d];
          const int64_t position = o * a.stride[d] - a.padding[d] + k * a.dilation[d];
          inside = inside && position >= 0 && position < x[2 + d];
          at += position * xs[2 + d];
        }
        if (inside) f(static_cast<size_t>(at), static_cast<size_t>(w), static_cast<size_t>(i));
      }
}

void add_bias(Values& y, const Shape& shape, const NDArray& bias) {
  const Values b = test::values(bias);
  const int64_t positions = contiguous_strides(shape)[1];
  for (size_t i = 0; i < y.size(); ++i) y[i] += b[i / static_cast<size_t>(positions) % b.size()];
}

/// What one of the three operators should give.
Values expected(const Operator& op, const Sample& s, const Shape& result) {
  const NDArray &a = s.inputs[0], &b = s.inputs[1];
  const Values av = test::values(a), bv = test::values(b);
  Values y(static_cast<size_t>(result.numel()));
  if (op.name() == std::string("convolution")) {
    each_term(a.shape(), b.shape(), result, s.attrs.get<ConvolutionAttrs>(),
              [&](size_t x, size_t w, size_t o) { y[o] += av[x] * bv[w]; });
  } else if (op.name() == std::string("convolution_transpose")) {
    each_term(result, b.shape(), a.shape(), s.attrs.get<ConvolutionTransposeAttrs>(),
              [&](size_t x, size_t w, size_t o) { y[x] += av[o] * bv[w]; });
  } else {
    each_term(a.shape(), result, b.shape(), s.attrs.get<ConvolutionWeightsAttrs>(),
              [&](size_t x, size_t w, size_t o) { y[w] += av[x] * bv[o]; });
  }
  if (s.inputs.size() == 3) add_bias(y, result, s.inputs[2]);
  return y;
}

TEST(ConvolutionOp, AgreesWithAPlainLoopForAllSamplesAndTypes) {
  for (const char* name : {"convolution", "convolution_transpose", "convolution_weights"})
    test::each_sample(name, [&](const Operator& op, const Sample& s) {
      const NDArray y = call(op, s.attrs, s.inputs)[0];
      test::expect_values(expected(op, s, y.shape()), y, s.label, 16);
    });
}

TEST(ConvolutionOp, TakesEveryLayout) {
  const NDArray x = test::numbers({2, 3, 6, 5}, f32), weight = test::numbers({4, 3, 3, 2}, f32, 2);
  const Operator& op = *find_operator("convolution");
  const Values want = expected(op, {{x, weight}, ConvolutionAttrs{.padding = 1}}, {2, 4, 6, 6});
  for (const NDArray& view : test::layouts(x))
    test::expect_values(want, convolution(view, weight, {.padding = 1}), "x", 16);
  for (const NDArray& view : test::layouts(weight))
    test::expect_values(want, convolution(x, view, {.padding = 1}), "weight", 16);
  // The result of a call that writes into a view.
  NDArray wide = zeros({2, 4, 6, 13});
  NDArray out = wide.slice(3, Slice{1, {}, 2});
  const NDArray inputs[] = {x, weight};
  call_into(out, op, ConvolutionAttrs{.padding = 1}, inputs);
  test::expect_values(want, out, "a view as result", 16);
  EXPECT_EQ(0, max(abs(wide.slice(3, Slice{0, {}, 2}))).item<float>());
}

TEST(ConvolutionOp, OneImageNeedsNoDimensionOfImages) {
  const NDArray x = test::numbers({3, 6, 5}, f64), weight = test::numbers({4, 3, 3, 3}, f64, 2);
  const NDArray y = convolution(x, weight);
  EXPECT_EQ((Shape{4, 4, 3}), y.shape());
  test::expect_values(test::values(convolution(x.expand_dims(0), weight)), y, "one image");
  EXPECT_EQ((Shape{3, 6, 5}), convolution_transpose(y, weight).shape());
}

TEST(ConvolutionOp, NothingToSum) {
  EXPECT_EQ((Shape{0, 4, 3}), convolution(zeros({0, 2, 5}), zeros({4, 2, 3})).shape());
  EXPECT_EQ((Shape{2, 0, 3}), convolution(zeros({2, 2, 5}), zeros({0, 2, 3})).shape());
  test::expect_values({1, 1, 2, 2}, convolution(zeros({1, 0, 3}), zeros({2, 0, 2}), array({1.f, 2.f})),
                      "bias");
  test::expect_values({0, 0}, convolution_weights(zeros({0, 1, 4}), zeros({0, 2, 4}), {.kernel = 1}),
                      "no images");
  // Positions between the copies of a kernel that is smaller than the stride get the bias alone.
  test::expect_values({3, 1, 1, 4, 1, 1},
                      convolution_transpose(array({{{1.f, 1.5f}}}), array({{{2.f}}}), array({1.f}),
                                            {.stride = 3, .output_padding = 2}),
                      "gaps");
}

TEST(ConvolutionOp, NansStayWhereTheyBelong) {
  NDArray x = zeros({1, 1, 1, 40});
  x.slice(3, Slice{20, 21}).fill_(std::nan(""));
  const Values y = test::values(convolution(x, ones({1, 1, 1, 3}), {.padding = {0, 1}}));
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(i >= 19 && i <= 21, std::isnan(y[i])) << i;
  // An infinite value beyond the end of a row of dy must not reach the sums of that row.
  NDArray image = ones({1, 1, 3, 5});
  image.slice(2, Slice{2, 3}).fill_(test::kInfinity);
  const NDArray first = image.slice(2, Slice{0, 2});
  test::expect_values({10}, convolution_weights(first, ones({1, 1, 2, 5}), {.kernel = 1}), "rows");
}

TEST(ConvolutionOp, WinogradCanBeTurnedOff) {
  const NDArray x = test::numbers({4, 32, 16, 16}, f32), weight = test::numbers({32, 32, 3, 3}, f32, 2);
  const auto results = [&](bool allowed) {
    set_winograd(allowed);
    EXPECT_EQ(allowed, winograd());
    const NDArray y = convolution(x, weight, {.padding = 1});
    const std::vector<Values> all = {test::values(y),
                                     test::values(convolution_transpose(x, weight, {.padding = 1})),
                                     test::values(convolution_weights(x, x, {.kernel = 3, .padding = 1}))};
    set_winograd(true);
    return all;
  };
  test::with_every_instruction_set([&](int64_t set) {
    const auto with = results(true), without = results(false);
    for (size_t i = 0; i < with.size(); ++i) {
      double difference = 0, largest = 0;
      for (size_t j = 0; j < with[i].size(); ++j) {
        difference = std::max(difference, std::abs(with[i][j] - without[i][j]));
        largest = std::max(largest, std::abs(without[i][j]));
      }
      // The method needs vectors.
      EXPECT_EQ(set != HWY_SCALAR, difference > 0) << "convolution " << i << " of 3";
      EXPECT_LT(difference, 1e-5 * largest) << i;
    }
  });
}

TEST(ConvolutionOp, ErrorsNameWhatCame) {
  const NDArray x = zeros({2, 4, 8, 8}), w = zeros({6, 4, 3, 3});
  const auto text = [](const auto& f) { return error_of<InvalidArgument>(f); };
  EXPECT_TRUE(contains(text([&] {
                         convolution(zeros({2, 4, 8, 8}, i32), w);
                       }),
                       "floating-point elements, got i32"));
  EXPECT_TRUE(contains(text([&] { convolution(zeros({2, 3, 8, 8}), w); }), "(2, 3, 8, 8) and (6, 4, 3, 3)"));
  EXPECT_TRUE(contains(text([&] {
                         convolution(zeros({2, 3, 8, 8}), w);
                       }),
                       "images with 4 channels (dimension 1), as the weight has, got 3"));
  EXPECT_TRUE(contains(text([&] { convolution(x, w, {.stride = 0}); }), "a stride of at least 1"));
  EXPECT_TRUE(contains(text([&] { convolution(x, w, {.padding = -1}); }), "a padding of at least 0"));
  EXPECT_TRUE(contains(text([&] { convolution(x, w, {.dilation = {1, 0}}); }), "got (1, 0)"));
  EXPECT_TRUE(contains(text([&] {
                         convolution(x, w, {.stride = {1, 2, 3}});
                       }),
                       "a stride of 1 or 2 numbers"));
  EXPECT_TRUE(contains(text([&] { convolution(x, w, {.groups = 3}); }), "3 groups"));
  EXPECT_TRUE(contains(text([&] { convolution(x, w, {.groups = 0}); }), "got 0"));
  EXPECT_TRUE(contains(text([&] { convolution(x, w, zeros({5})); }), "a bias of shape (6,), got (5,)"));
  EXPECT_TRUE(contains(text([&] { convolution(x, w, {.dilation = 4}); }),
                       "a kernel of 3 with dilation 4 for size 8"));
  EXPECT_TRUE(contains(text([&] { convolution(zeros({2, 4}), zeros({3, 4})); }), "3 to 5 dimensions"));
  EXPECT_TRUE(contains(text([&] { convolution(x, zeros({6, 4, 0, 3})); }), "at least 1 element per axis"));
  EXPECT_TRUE(contains(text([&] {
                         convolution_transpose(x, zeros({4, 2, 3, 3}), {.stride = 2, .output_padding = 2});
                       }),
                       "an output padding less than stride 2"));
  EXPECT_TRUE(contains(text([&] { convolution_transpose(x, w); }), "(2, 4, 8, 8) and (6, 4, 3, 3)"));
  EXPECT_TRUE(contains(text([&] {
                         convolution_weights(x, zeros({2, 6, 5, 6}), {.kernel = 3});
                       }),
                       "6 along spatial axis 0"));
  EXPECT_TRUE(contains(text([] { PerAxis({1, 2, 3, 4}); }), "1 to 3 numbers, got 4"));
}

}  // namespace
}  // namespace mx
