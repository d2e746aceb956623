#include "operators/pooling.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "operators/cuda_kernels.h"
#include "operators/elementwise_binary.h"
#include "operators/indexing.h"
#include "operators/kernels/pooling.h"
#include "operators/pooling_windows.h"
#include "operators/reduce.h"

namespace mx {
namespace {

using detail::PoolSizes;

constexpr int64_t kDirectElements = 4096;

PoolSizes sizes_of(const MaxPoolAttrs& a, const Shape& x) {
  return {x.rank() - 2, a.kernel, a.stride, a.padding, a.dilation, a.ceil_mode};
}
template <class A>
PoolSizes sizes_of(const A& a, const Shape& x) {
  return {x.rank() - 2, a.kernel, a.stride, a.padding, 1, a.ceil_mode};
}

void check_input(const InferContext& c, size_t i) {
  MX_CHECK(is_floating(c.dtype(i)), InvalidArgument, "[", c.name(),
           "] expected floating-point elements, got ", c.dtype(i));
  MX_CHECK(c.shape(i).rank() >= 3 && c.shape(i).rank() <= 5, InvalidArgument, "[", c.name(),
           "] expected images, channels and 1 to 3 spatial axes, got shape ", c.shape(i));
}

/// Images and channels of x, and other spatial sizes.
Shape resized(const Shape& x, const PerAxis& size) {
  Shape y = x;
  for (int a = 2; a < x.rank(); ++a) y[a] = size[a - 2];
  return y;
}

PerAxis spatial_sizes(const Shape& x) { return PerAxis(std::span<const int64_t>(x.begin() + 2, x.end())); }

void check_sizes(const InferContext& c, const PerAxis& size) {
  size.check(c.name(), "size", c.shape(0).rank() - 2, 0);
}

template <class A>
Shape pooled(const InferContext& c, const A& attrs, const Shape& x) {
  const PoolSizes sizes = sizes_of(attrs, x);
  sizes.check(c.name());
  Shape y = x;
  for (int a = 0; a < sizes.axes; ++a) y[2 + a] = sizes.windows(c.name(), a, x[2 + a]);
  return y;
}

void check_divisor(const InferContext& c, int64_t divisor) {
  MX_CHECK(divisor >= 0, InvalidArgument, "[", c.name(),
           "] expected a divisor of 1 or more, or 0 for none, got ", divisor);
}

void infer_max_pool(InferContext& c) {
  check_input(c, 0);
  const Shape y = pooled(c, c.attr<MaxPoolAttrs>(), c.shape(0));
  c.output(y, c.dtype(0));
  c.output(y, i64);
}

void infer_avg_pool(InferContext& c) {
  check_input(c, 0);
  check_divisor(c, c.attr<AvgPoolAttrs>().divisor_override);
  c.output(pooled(c, c.attr<AvgPoolAttrs>(), c.shape(0)), c.dtype(0));
}

void infer_avg_pool_backward(InferContext& c) {
  check_input(c, 0);
  const auto& attrs = c.attr<AvgPoolBackwardAttrs>();
  check_divisor(c, attrs.divisor_override);
  check_sizes(c, attrs.size);
  const Shape dx = resized(c.shape(0), attrs.size), y = pooled(c, attrs, dx);
  MX_CHECK(y == c.shape(0), InvalidArgument, "[", c.name(), "] expected dy of shape ", y,
           " for an input of shape ", dx, ", got ", c.shape(0));
  c.output(dx, c.dtype(0));
}

void check_adaptive(const InferContext& c, const Shape& from) {
  for (int a = 2; a < from.rank(); ++a)
    MX_CHECK(from[a] > 0, InvalidArgument, "[", c.name(), "] expected spatial sizes of 1 or more, got ",
             from);
}

template <int kOutputs>
void infer_adaptive(InferContext& c) {
  check_input(c, 0);
  check_sizes(c, c.attr<PoolSizeAttrs>().size);
  check_adaptive(c, c.shape(0));
  const Shape y = resized(c.shape(0), c.attr<PoolSizeAttrs>().size);
  c.output(y, c.dtype(0));
  if (kOutputs == 2) c.output(y, i64);
}

void infer_adaptive_backward(InferContext& c) {
  check_input(c, 0);
  check_sizes(c, c.attr<PoolSizeAttrs>().size);
  const Shape dx = resized(c.shape(0), c.attr<PoolSizeAttrs>().size);
  check_adaptive(c, dx);
  c.output(dx, c.dtype(0));
}

void infer_max_pool_backward(InferContext& c) {
  check_input(c, 0);
  check_sizes(c, c.attr<PoolSizeAttrs>().size);
  MX_CHECK(c.dtype(1) == i64 && c.shape(1) == c.shape(0), InvalidArgument, "[", c.name(),
           "] expected i64 indices of dy's shape ", c.shape(0), ", got ", c.dtype(1), ' ', c.shape(1));
  const Shape dx = resized(c.shape(0), c.attr<PoolSizeAttrs>().size);
  checked_numel(dx, size_of(c.dtype(0)), c.name());
  c.output(dx, c.dtype(0));
}

void run_max_pool(const KernelArgs& args) {
  const Tensor& x = args.in[0];
  kernels::max_pool(args.out[0], args.out[1], x,
                    sizes_of(args.attr<MaxPoolAttrs>(), x.shape).list(x.shape, false));
}

void run_adaptive_max_pool(const KernelArgs& args) {
  kernels::max_pool(args.out[0], args.out[1], args.in[0],
                    detail::adaptive_windows(args.in[0].shape, args.out[0].shape));
}

void run_max_pool_backward(const KernelArgs& args) {
  kernels::max_pool_backward(args.out[0], args.in[0], args.in[1]);
}

template <class A>
kernels::PoolWindows avg_windows(const A& attrs, const Shape& x) {
  kernels::PoolWindows windows = sizes_of(attrs, x).list(x, attrs.count_include_pad);
  windows.divisor = static_cast<double>(attrs.divisor_override);
  return windows;
}

void run_avg_pool(const KernelArgs& args) {
  kernels::avg_pool(args.out[0], args.in[0], avg_windows(args.attr<AvgPoolAttrs>(), args.in[0].shape));
}

void run_avg_pool_backward(const KernelArgs& args) {
  kernels::avg_pool_backward(args.out[0], args.in[0],
                             avg_windows(args.attr<AvgPoolBackwardAttrs>(), args.out[0].shape));
}

void run_adaptive_avg_pool(const KernelArgs& args) {
  kernels::avg_pool(args.out[0], args.in[0], detail::adaptive_windows(args.in[0].shape, args.out[0].shape));
}

void run_adaptive_avg_pool_backward(const KernelArgs& args) {
  kernels::avg_pool_backward(args.out[0], args.in[0],
                             detail::adaptive_windows(args.out[0].shape, args.in[0].shape));
}

void gradient_max_pool(GradientContext& g) {
  if (g.head(0).defined())
    g.set(0, max_pool_backward(g.head(0), g.output(1), spatial_sizes(g.input_shape(0))));
}

/// The plane's elements at the indices: the transpose of max_pool_backward.
NDArray taken(const NDArray& x, const NDArray& indices) {
  const Shape& shape = indices.shape();
  const auto planes = [](const NDArray& a) {
    int64_t elements = 1;
    for (int i = 2; i < a.rank(); ++i) elements *= a.shape()[i];
    return a.reshape({a.shape()[0], a.shape()[1], elements});
  };
  return gather(planes(x), planes(indices), 2).reshape(shape);
}

void gradient_max_pool_backward(GradientContext& g) {
  if (g.wanted(0)) g.set(0, taken(g.head(), g.input(1)));
}

void gradient_avg_pool(GradientContext& g) {
  const auto& a = g.attr<AvgPoolAttrs>();
  g.set(0, avg_pool_backward(g.head(), {spatial_sizes(g.input_shape(0)), a.kernel, a.stride, a.padding,
                                        a.ceil_mode, a.count_include_pad, a.divisor_override}));
}

void gradient_avg_pool_backward(GradientContext& g) {
  const auto& a = g.attr<AvgPoolBackwardAttrs>();
  g.set(0, avg_pool(g.head(),
                    {a.kernel, a.stride, a.padding, a.ceil_mode, a.count_include_pad, a.divisor_override}));
}

void gradient_adaptive_avg_pool(GradientContext& g) {
  g.set(0, adaptive_avg_pool_backward(g.head(), spatial_sizes(g.input_shape(0))));
}

void gradient_adaptive_avg_pool_backward(GradientContext& g) {
  g.set(0, adaptive_avg_pool(g.head(), spatial_sizes(g.input_shape(0))));
}

constexpr detail::RecordList<DType, kDTypes> kFloating = {f32, f64, f16, bf16};

constexpr Operator kMaxPool = {
    .kernel = {"max_pool", run_max_pool, cuda::max_pool, kDirectElements, false},
    .doc =
        "The largest element of each window of x (images, channels, spatial..), and its position in the "
        "plane.",
    .family = "pooling",
    .inputs = {"x"},
    .outputs = {"y", "indices"},
    .attrs = &kAttrType<MaxPoolAttrs>,
    .infer = infer_max_pool,
    .gradient = gradient_max_pool,
    .gradient_uses = {.outputs = bit_set(1)},
    .dtypes = kFloating,
};

constexpr Operator kMaxPoolBackward = {
    .kernel = {"max_pool_backward", run_max_pool_backward, cuda::max_pool_backward, kDirectElements},
    .doc = "Zeros of other spatial sizes, with each element of dy added at its index in the plane.",
    .family = "pooling",
    .inputs = {"dy", "indices"},
    .outputs = {"dx"},
    .attrs = &kAttrType<PoolSizeAttrs>,
    .infer = infer_max_pool_backward,
    .gradient = gradient_max_pool_backward,
    .gradient_uses = {.inputs = bit_set(1)},
    .dtypes = kFloating,
};

constexpr Operator kAdaptiveMaxPool = {
    .kernel = {"adaptive_max_pool", run_adaptive_max_pool, cuda::adaptive_max_pool, kDirectElements, false},
    .doc = "The largest element of each of `size` windows that cover x, and its position in the plane.",
    .family = "pooling",
    .inputs = {"x"},
    .outputs = {"y", "indices"},
    .attrs = &kAttrType<PoolSizeAttrs>,
    .infer = infer_adaptive<2>,
    .gradient = gradient_max_pool,
    .gradient_uses = {.outputs = bit_set(1)},
    .dtypes = kFloating,
};

constexpr Operator kAvgPool = {
    .kernel = {"avg_pool", run_avg_pool, cuda::avg_pool, kDirectElements},
    .doc = "The mean of each window of x (images, channels, spatial..).",
    .family = "pooling",
    .inputs = {"x"},
    .attrs = &kAttrType<AvgPoolAttrs>,
    .infer = infer_avg_pool,
    .gradient = gradient_avg_pool,
    .dtypes = kFloating,
};

constexpr Operator kAvgPoolBackward = {
    .kernel = {"avg_pool_backward", run_avg_pool_backward, cuda::avg_pool_backward, kDirectElements},
    .doc = "Gradient of avg_pool with respect to its input.",
    .family = "pooling",
    .inputs = {"dy"},
    .outputs = {"dx"},
    .attrs = &kAttrType<AvgPoolBackwardAttrs>,
    .infer = infer_avg_pool_backward,
    .gradient = gradient_avg_pool_backward,
    .dtypes = kFloating,
};

constexpr Operator kAdaptiveAvgPool = {
    .kernel = {"adaptive_avg_pool", run_adaptive_avg_pool, cuda::adaptive_avg_pool, kDirectElements},
    .doc = "The mean of each of `size` windows that cover x.",
    .family = "pooling",
    .inputs = {"x"},
    .attrs = &kAttrType<PoolSizeAttrs>,
    .infer = infer_adaptive<1>,
    .gradient = gradient_adaptive_avg_pool,
    .dtypes = kFloating,
};

constexpr Operator kAdaptiveAvgPoolBackward = {
    .kernel = {"adaptive_avg_pool_backward", run_adaptive_avg_pool_backward, cuda::adaptive_avg_pool_backward,
               kDirectElements},
    .doc = "Gradient of adaptive_avg_pool with respect to its input, which has spatial sizes `size`.",
    .family = "pooling",
    .inputs = {"dy"},
    .outputs = {"dx"},
    .attrs = &kAttrType<PoolSizeAttrs>,
    .infer = infer_adaptive_backward,
    .gradient = gradient_adaptive_avg_pool_backward,
    .dtypes = kFloating,
};

/// True for one image without a dimension of images: two dimensions, or as many as `numbers` and one.
bool is_one_image(const NDArray& x, const PerAxis& numbers) {
  return x.rank() == 2 || (numbers.count() > 1 && x.rank() == numbers.count() + 1);
}

/// Calls f(x with a dimension of images).
template <class F>
NDArray on_images(const Arg& x, const PerAxis& numbers, const F& f) {
  if (!is_one_image(x.array, numbers)) return f(x);
  const NDArray images = x.array.expand_dims(0);
  return f(Arg(images, x.where)).squeeze(0);
}

MaxPool both(const Operator& op, const Attrs& attrs, const Arg& x, const PerAxis& numbers) {
  const bool one = is_one_image(x.array, numbers);
  const NDArray images = one ? x.array.expand_dims(0) : x.array;
  std::vector<NDArray> results = call(op, attrs, {&images, 1}, x.where);
  if (one) return {results[0].squeeze(0), results[1].squeeze(0)};
  return {std::move(results[0]), std::move(results[1])};
}

}  // namespace

namespace detail {
OperatorFamily family_pooling() {
  return {&kMaxPool,         &kAdaptiveMaxPool, &kMaxPoolBackward,        &kAvgPool,
          &kAvgPoolBackward, &kAdaptiveAvgPool, &kAdaptiveAvgPoolBackward};
}
}  // namespace detail

MaxPool max_pool_with_indices(const Arg& x, const MaxPoolAttrs& attrs) {
  return both(kMaxPool, attrs, x, attrs.kernel);
}
NDArray max_pool(const Arg& x, const MaxPoolAttrs& attrs) { return max_pool_with_indices(x, attrs).values; }

NDArray max_pool_backward(const Arg& dy, const NDArray& indices, const PerAxis& size) {
  return call(kMaxPoolBackward, PoolSizeAttrs{size}, dy, indices);
}

NDArray max_unpool(const Arg& x, const NDArray& indices, const PerAxis& size) try {
  const NDArray& a = x.array;
  MX_CHECK(a.rank() >= 3 && a.rank() <= 5 && indices.shape() == a.shape(), InvalidArgument,
           "[max_unpool] expected x (images, channels, spatial...) and indices of its shape, got ", a.shape(),
           " and ", indices.shape());
  size.check("max_unpool", "size", a.rank() - 2, 0);
  const Shape shape = resized(a.shape(), size);
  int64_t windows = 1, elements = 1;
  for (int i = 2; i < a.rank(); ++i) windows *= a.shape()[i], elements *= shape[i];
  const Shape planes{a.shape()[0], a.shape()[1], windows};
  const NDArray base = detail::zeros_view({planes[0], planes[1], elements}, a.dtype(), a.context());
  return scatter(Arg(base, x.where), indices.reshape(planes), a.reshape(planes), 2).reshape(shape);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray avg_pool(const Arg& x, const AvgPoolAttrs& attrs) {
  return on_images(x, attrs.kernel, [&](const Arg& images) { return call(kAvgPool, attrs, images); });
}
NDArray avg_pool_backward(const Arg& dy, const AvgPoolBackwardAttrs& attrs) {
  return call(kAvgPoolBackward, attrs, dy);
}

NDArray adaptive_avg_pool(const Arg& x, const PerAxis& size) {
  return on_images(x, size,
                   [&](const Arg& images) { return call(kAdaptiveAvgPool, PoolSizeAttrs{size}, images); });
}
NDArray adaptive_avg_pool_backward(const Arg& dy, const PerAxis& size) {
  return call(kAdaptiveAvgPoolBackward, PoolSizeAttrs{size}, dy);
}
MaxPool adaptive_max_pool_with_indices(const Arg& x, const PerAxis& size) {
  return both(kAdaptiveMaxPool, PoolSizeAttrs{size}, x, size);
}
NDArray adaptive_max_pool(const Arg& x, const PerAxis& size) {
  return adaptive_max_pool_with_indices(x, size).values;
}

NDArray global_avg_pool(const Arg& x) { return adaptive_avg_pool(x, 1); }
NDArray global_max_pool(const Arg& x) { return adaptive_max_pool(x, 1); }

NDArray lp_pool(const Arg& x, RealArg p, const AvgPoolAttrs& attrs) try {
  MX_CHECK(p > 0, InvalidArgument, "[lp_pool] expected an exponent greater than 0, got ",
           static_cast<double>(p));
  MX_CHECK(attrs.padding.all(0) && attrs.count_include_pad && attrs.divisor_override == 0, InvalidArgument,
           "[lp_pool] expected no padding, no divisor_override, and count_include_pad = true, got padding ",
           to_string(attrs.padding), ", divisor_override ", attrs.divisor_override,
           " and count_include_pad = ", attrs.count_include_pad ? "true" : "false");
  AvgPoolAttrs sums = attrs;
  sums.divisor_override = 1;
  const NDArray powers = pow(x, static_cast<double>(p));
  return pow(Arg(avg_pool(Arg(powers, x.where), sums), x.where), 1 / static_cast<double>(p));
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

}  // namespace mx
