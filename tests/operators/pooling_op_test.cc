#include "operators/pooling.h"

#include <algorithm>
#include <cmath>

#include "operators/operators.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::kInfinity;
using test::kNan;
using test::Values;

/// Calls f(index of the window, element's index in x, elements in the window) for all windows of all planes.
/// along(axis, window) returns the positions of a window along a spatial axis, also those outside of x.
template <class Along, class F>
void each_window(const Shape& x, const Shape& y, const Along& along, const F& f) {
  const Strides xs = contiguous_strides(x), ys = contiguous_strides(y);
  for (int64_t i = 0; i < y.numel(); ++i) {
    std::vector<int64_t> elements{i / ys[1] * xs[1]};
    for (int a = 2; a < x.rank(); ++a) {
      std::vector<int64_t> next;
      for (const int64_t base : elements)
        for (const int64_t position : along(a - 2, i / ys[a] % y[a]))
          if (position >= 0 && position < x[a]) next.push_back(base + position * xs[a]);
      elements = next;
    }
    f(i, elements);
  }
}

template <class A>
auto windows_of(const A& a, int64_t gap_of_all = 1) {
  return [&a, gap_of_all](int axis, int64_t window) {
    const int64_t stride = a.stride[axis] == 0 ? a.kernel[axis] : a.stride[axis];
    int64_t gap = gap_of_all;
    if constexpr (requires { a.dilation; }) gap = a.dilation[axis];
    std::vector<int64_t> positions;
    for (int64_t k = 0; k < a.kernel[axis]; ++k)
      positions.push_back(window * stride - a.padding[axis] + k * gap);
    return positions;
  };
}

auto adaptive_windows_of(const Shape& x, const Shape& y) {
  return [&x, &y](int axis, int64_t window) {
    const double size = static_cast<double>(x[2 + axis]), count = static_cast<double>(y[2 + axis]);
    std::vector<int64_t> positions;
    const auto end = static_cast<int64_t>(std::ceil(static_cast<double>(window + 1) * size / count));
    for (auto i = static_cast<int64_t>(std::floor(static_cast<double>(window) * size / count)); i < end; ++i)
      positions.push_back(i);
    return positions;
  };
}

/// The number that divides the sum of a window, as PyTorch defines it.
double divisor_of(const AvgPoolAttrs& a, const Shape& x, const Shape& y, int64_t window, size_t elements) {
  if (a.divisor_override != 0) return static_cast<double>(a.divisor_override);
  if (!a.count_include_pad) return static_cast<double>(elements);
  const Strides ys = contiguous_strides(y);
  int64_t count = 1;
  for (int d = 2; d < x.rank(); ++d) {
    const int64_t stride = a.stride[d - 2] == 0 ? a.kernel[d - 2] : a.stride[d - 2];
    const int64_t start = window / ys[d] % y[d] * stride - a.padding[d - 2];
    count *= std::min(start + a.kernel[d - 2], x[d] + a.padding[d - 2]) - start;
  }
  return static_cast<double>(count);
}

void expect_largest(const NDArray& x, const MaxPool& pooled, const auto& along, const std::string& label) {
  const Values v = test::values(x), indices = test::values(pooled.indices);
  Values want(static_cast<size_t>(pooled.values.numel()), -kInfinity);
  const int64_t plane = contiguous_strides(x.shape())[1];
  each_window(x.shape(), pooled.values.shape(), along, [&](int64_t i, const std::vector<int64_t>& elements) {
    int64_t best = elements.empty() ? -1 : elements[0];
    for (const int64_t e : elements) {
      const double value = v[static_cast<size_t>(e)];
      if (value > v[static_cast<size_t>(best)] || std::isnan(value)) best = e;
    }
    if (best < 0) return;
    want[static_cast<size_t>(i)] = v[static_cast<size_t>(best)];
    EXPECT_EQ(best % plane, indices[static_cast<size_t>(i)]) << label << " window " << i;
  });
  test::expect_values(want, pooled.values, label);
}

TEST(PoolingOp, MaxAgreesWithAPlainLoopForAllSamplesAndTypes) {
  test::each_sample("max_pool", [](const Operator&, const Sample& s) {
    const auto& a = s.attrs.get<MaxPoolAttrs>();
    expect_largest(s.inputs[0], max_pool_with_indices(s.inputs[0], a), windows_of(a), s.label);
  });
  test::each_sample("adaptive_max_pool", [](const Operator&, const Sample& s) {
    const MaxPool pooled = adaptive_max_pool_with_indices(s.inputs[0], s.attrs.get<PoolSizeAttrs>().size);
    expect_largest(s.inputs[0], pooled, adaptive_windows_of(s.inputs[0].shape(), pooled.values.shape()),
                   s.label);
  });
}

TEST(PoolingOp, MaxTakesTheFirstOfEqualElementsAndTheLastNan) {
  const MaxPoolAttrs attrs{.kernel = {2, 3}, .stride = 1};
  const double least = -kInfinity;
  const NDArray ties =
      array({{1., 2., 1., 2.}, {2., 1., 2., 2.}, {least, least, least, least}, {least, least, least, least}});
  const NDArray same = ties.reshape({1, 1, 4, 4});
  expect_largest(same, max_pool_with_indices(same, attrs), windows_of(attrs), "equal");
  const NDArray some = array({{1., kNan, 1., 2.}, {kNan, 1., 2., kNan}, {3., 4., kNan, 1.}});
  const NDArray nans = some.reshape({1, 1, 3, 4});
  expect_largest(nans, max_pool_with_indices(nans, attrs), windows_of(attrs), "NaN");
  // The values of many windows, with many equal elements.
  const NDArray x = round(test::numbers({2, 3, 20, 37}, f32, 5) * 1.5f);
  for (const MaxPoolAttrs& a :
       {MaxPoolAttrs{.kernel = 3, .stride = 2, .padding = 1}, MaxPoolAttrs{.kernel = 2},
        MaxPoolAttrs{.kernel = 3, .stride = 2, .padding = 2, .dilation = 2, .ceil_mode = true}})
    expect_largest(x, max_pool_with_indices(x, a), windows_of(a), "rounded");
}

TEST(PoolingOp, PairsTakeTheFirstOfEqualElementsAndTheLastNanAtAnyWidth) {
  // Vectors compute f32; widths below, at and above those of vectors, and columns that no window has.
  for (const int64_t width : {2, 3, 8, 11, 16, 28, 31, 32, 35, 64, 67}) {
    NDArray x = round(test::numbers({2, 3, 6, width}, f32, static_cast<uint64_t>(width)) * 1.5f);
    x = where(x == 2.f, full({}, kNan), where(x == -2.f, full({}, -kInfinity), x));
    const MaxPoolAttrs attrs{.kernel = 2};
    const std::string label = "width " + std::to_string(width);
    expect_largest(x, max_pool_with_indices(x, attrs), windows_of(attrs), label);
    const NDArray view = x.transpose({0, 1, 3, 2});
    expect_largest(view, max_pool_with_indices(view, attrs), windows_of(attrs), label + ", transposed");
  }
}

/// Compares the gradient of a pooling by the largest element with a plain loop over the indices.
void expect_scattered(const NDArray& x, const MaxPoolAttrs& attrs, const std::string& label) {
  const MaxPool pooled = max_pool_with_indices(x, attrs);
  const NDArray dy = test::numbers(pooled.values.shape(), f32, 7);
  const NDArray dx = max_pool_backward(dy, pooled.indices, {x.size(2), x.size(3)});
  const Values indices = test::values(pooled.indices), gradient = test::values(dy);
  Values want(static_cast<size_t>(x.numel()));
  const Shape &xs = x.shape(), &ys = dy.shape();
  const auto plane = static_cast<size_t>(xs[2] * xs[3]), windows = static_cast<size_t>(ys[2] * ys[3]);
  for (size_t i = 0; i < gradient.size(); ++i)
    want[i / windows * plane + static_cast<size_t>(indices[i])] += gradient[i];
  test::expect_values(want, dx, label, 4);
}

TEST(PoolingOp, GradientsOfPairsGoToTheIndicesAtAnyWidth) {
  for (const int64_t width : {2, 3, 8, 9, 11, 16, 28, 31, 32, 35, 64, 67})
    for (const int64_t height : {2, 5, 6}) {
      const NDArray x = test::numbers({2, 3, height, width}, f32, static_cast<uint64_t>(width));
      const std::string label = detail::concat("height ", height, " width ", width);
      expect_scattered(x, {.kernel = 2}, label);
      // Windows of 3 x 3 that overlap, with as many results if the size is even.
      expect_scattered(x, {.kernel = 3, .stride = 2, .padding = 1}, label + ", overlapping");
    }
}

TEST(PoolingOp, MeansAgreeWithAPlainLoopForAllSamplesAndTypes) {
  test::each_sample("avg_pool", [](const Operator& op, const Sample& s) {
    const auto& a = s.attrs.get<AvgPoolAttrs>();
    const NDArray &x = s.inputs[0], y = call(op, s.attrs, x);
    const Values v = test::values(x);
    Values want(static_cast<size_t>(y.numel()));
    each_window(x.shape(), y.shape(), windows_of(a), [&](int64_t i, const std::vector<int64_t>& elements) {
      for (const int64_t e : elements) want[static_cast<size_t>(i)] += v[static_cast<size_t>(e)];
      want[static_cast<size_t>(i)] /= divisor_of(a, x.shape(), y.shape(), i, elements.size());
    });
    test::expect_values(want, y, s.label, 8);
  });
  test::each_sample("adaptive_avg_pool", [](const Operator& op, const Sample& s) {
    const NDArray &x = s.inputs[0], y = call(op, s.attrs, x);
    const Values v = test::values(x);
    Values want(static_cast<size_t>(y.numel()));
    each_window(x.shape(), y.shape(), adaptive_windows_of(x.shape(), y.shape()),
                [&](int64_t i, const std::vector<int64_t>& elements) {
                  for (const int64_t e : elements)
                    want[static_cast<size_t>(i)] +=
                        v[static_cast<size_t>(e)] / static_cast<double>(elements.size());
                });
    test::expect_values(want, y, s.label, 8);
  });
}

TEST(PoolingOp, BackwardAgreesWithAPlainLoopForAllSamplesAndTypes) {
  test::each_sample("avg_pool_backward", [](const Operator& op, const Sample& s) {
    const auto& b = s.attrs.get<AvgPoolBackwardAttrs>();
    const AvgPoolAttrs a{b.kernel, b.stride, b.padding, b.ceil_mode, b.count_include_pad, b.divisor_override};
    const NDArray &dy = s.inputs[0], dx = call(op, s.attrs, dy);
    const Values v = test::values(dy);
    Values want(static_cast<size_t>(dx.numel()));
    each_window(dx.shape(), dy.shape(), windows_of(a), [&](int64_t i, const std::vector<int64_t>& elements) {
      const double divisor = divisor_of(a, dx.shape(), dy.shape(), i, elements.size());
      for (const int64_t e : elements) want[static_cast<size_t>(e)] += v[static_cast<size_t>(i)] / divisor;
    });
    test::expect_values(want, dx, s.label, 8);
  });
  test::each_sample("adaptive_avg_pool_backward", [](const Operator& op, const Sample& s) {
    const NDArray &dy = s.inputs[0], dx = call(op, s.attrs, dy);
    const Values v = test::values(dy);
    Values want(static_cast<size_t>(dx.numel()));
    each_window(dx.shape(), dy.shape(), adaptive_windows_of(dx.shape(), dy.shape()),
                [&](int64_t i, const std::vector<int64_t>& elements) {
                  for (const int64_t e : elements)
                    want[static_cast<size_t>(e)] +=
                        v[static_cast<size_t>(i)] / static_cast<double>(elements.size());
                });
    test::expect_values(want, dx, s.label, 8);
  });
  test::each_sample("max_pool_backward", [](const Operator& op, const Sample& s) {
    const NDArray dx = call(op, s.attrs, s.inputs)[0];
    const Values dy = test::values(s.inputs[0]), indices = test::values(s.inputs[1]);
    Values want(static_cast<size_t>(dx.numel()));
    const size_t windows = 3, plane = 8;
    for (size_t i = 0; i < dy.size(); ++i)
      want[i / windows * plane + static_cast<size_t>(indices[i])] += dy[i];
    test::expect_values(want, dx, s.label, 4);
  });
}

TEST(PoolingOp, UnpoolingPutsEveryElementBack) {
  const NDArray x = test::numbers({2, 3, 4, 6}, f64);
  const MaxPool pooled = max_pool_with_indices(x, {.kernel = 2});
  const NDArray back = max_unpool(pooled.values, pooled.indices, {4, 6});
  test::expect_values(test::values(where(equal(back, x), x, 0)), back, "only elements of x, at their places");
  EXPECT_EQ(pooled.values.numel(), sum(not_equal(back, 0)).to(i64).item<int64_t>());
}

TEST(PoolingOp, OtherPoolingsAreThoseOfTheirDefinition) {
  const NDArray x = abs(test::numbers({2, 3, 5, 7}, f64)) + 0.5;
  test::expect_values(test::values(mean(x, {2, 3}, true)), global_avg_pool(x), "mean", 4);
  test::expect_values(test::values(max(x, {2, 3}, true)), global_max_pool(x), "max");
  test::expect_values(test::values(sqrt(avg_pool(x * x, {.kernel = 2}) * 4.)), lp_pool(x, 2, {.kernel = 2}),
                      "lp", 8);
  // One image without a dimension of images.
  test::expect_values(test::values(avg_pool(x, {.kernel = {2, 2}}).select(0, 1)),
                      avg_pool(x.select(0, 1), {.kernel = {2, 2}}), "one");
}

TEST(PoolingOp, TakesEveryLayout) {
  const NDArray x = test::numbers({2, 3, 6, 5}, f32);
  const MaxPoolAttrs attrs{.kernel = 3, .stride = 2, .padding = 1};
  for (const NDArray& view : test::layouts(x)) {
    expect_largest(view, max_pool_with_indices(view, attrs), windows_of(attrs), "max");
    test::expect_values(test::values(avg_pool(x, {.kernel = 2})), avg_pool(view, {.kernel = 2}), "avg");
  }
}

TEST(PoolingOp, ErrorsNameWhatCame) {
  const NDArray x = zeros({1, 2, 4, 4});
  const auto text = [](const auto& f) { return error_of<InvalidArgument>(f); };
  EXPECT_TRUE(contains(text([] {
                         max_pool(zeros({1, 2, 4}, i32), {.kernel = 2});
                       }),
                       "floating-point elements, got i32"));
  EXPECT_TRUE(
      contains(text([&] { max_pool(x, {.kernel = 5}); }), "a kernel of 5 with dilation 1 for size 4"));
  EXPECT_TRUE(contains(text([&] { max_pool(x, {.kernel = 0}); }), "a kernel of at least 1"));
  EXPECT_TRUE(contains(text([&] { max_pool(x, {.kernel = 2, .stride = -1}); }), "a stride of at least 0"));
  EXPECT_TRUE(
      contains(text([&] { avg_pool(x, {.kernel = 3, .padding = 2}); }), "at most half of the kernel"));
  EXPECT_TRUE(contains(text([&] {
                         avg_pool(x.expand_dims(4), {.kernel = {1, 2}});
                       }),
                       "a kernel of 1 or 3 numbers"));
  EXPECT_TRUE(contains(text([&] { avg_pool(x, {.kernel = 2, .divisor_override = -1}); }), "a divisor"));
  for (const AvgPoolAttrs& attrs :
       {AvgPoolAttrs{.kernel = 2, .padding = 1}, AvgPoolAttrs{.kernel = 2, .divisor_override = 3},
        AvgPoolAttrs{.kernel = 2, .count_include_pad = false}})
    EXPECT_TRUE(contains(text([&] { lp_pool(x, 2, attrs); }), "[lp_pool] expected no padding"));
  EXPECT_TRUE(contains(text([&] { avg_pool(zeros({1, 2, 0, 4}), {.kernel = 1}); }), "for size 0"));
  EXPECT_TRUE(contains(text([] { adaptive_avg_pool(zeros({1, 2, 0}), 1); }), "spatial sizes of 1 or more"));
  EXPECT_TRUE(contains(text([&] { adaptive_max_pool(x, -1); }), "a size of at least 0"));
  const NDArray bad = max_pool_backward(ones({1, 1, 1}), full({1, 1, 1}, 4, i64), 4);
  EXPECT_TRUE(contains(text([&] { bad.wait(); }), "expected indices from 0 to 3, got 4"));
}

}  // namespace
}  // namespace mx
