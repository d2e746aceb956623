#include "operators/convolution.h"

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <string_view>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/kernels/copy.h"
#include "operators/convolution_gradient.h"
#include "operators/convolution_shape.h"
#include "operators/cuda_kernels.h"
#include "operators/kernels/convolution.h"
#include "operators/scratch.h"
#include "operators/temporary.h"

namespace mx {
namespace {

using detail::Converted;
using detail::ConvolutionSizes;
using kernels::Correlation;

// Multiplications up to which the calling thread computes a convolution itself, as for products of matrices.
constexpr int64_t kDirectProducts = 1 << 18;

std::atomic<bool>& winograd_flag() {
  static std::atomic<bool> allowed = [] {
    const char* const value = std::getenv("MX_WINOGRAD");
    return value == nullptr || std::string_view(value) != "0";
  }();
  return allowed;
}

template <class A>
ConvolutionSizes sizes_of(const A& attrs, int rank) {
  return {rank - 2, attrs.stride, attrs.padding, attrs.dilation, attrs.groups};
}

DType checked_types(InferContext& c) {
  DType dtype = c.dtype(0);
  for (size_t i = 0; i < c.inputs(); ++i) {
    MX_CHECK(is_floating(c.dtype(i)), InvalidArgument, "[", c.name(),
             "] expected floating-point elements, got ", c.dtype(i));
    dtype = promote(dtype, c.dtype(i));
  }
  return dtype;
}

void check_kernel(const char* op, const Shape& x, const Shape& weight) {
  MX_CHECK(weight.rank() == x.rank(), InvalidArgument, "[", op,
           "] expected a weight with as many dimensions as x, got shapes ", weight, " and ", x);
  for (int a = 2; a < weight.rank(); ++a)
    MX_CHECK(weight[a] >= 1, InvalidArgument, "[", op,
             "] expected a kernel of at least 1 element per axis, got a weight of shape ", weight);
}

void check_positions(const char* op, const Shape& images) {
  for (int a = 2; a < images.rank(); ++a)
    MX_CHECK(images[a] >= 1, InvalidArgument, "[", op, "] expected spatial sizes of 1 or more, got shape ",
             images);
}

void check_bias(InferContext& c, int64_t channels) {
  if (c.inputs() == 3)
    MX_CHECK(c.shape(2) == Shape{channels}, InvalidArgument, "[", c.name(), "] expected a bias of shape ",
             Shape{channels}, ", got ", c.shape(2));
}

void infer_convolution(InferContext& c) {
  const Shape &x = c.shape(0), &weight = c.shape(1);
  const DType dtype = checked_types(c);
  const ConvolutionSizes s = sizes_of(c.attr<ConvolutionAttrs>(), x.rank());
  s.check(c.name(), x.rank());
  check_kernel(c.name(), x, weight);
  MX_CHECK(s.groups > 1 || weight[1] == x[1], InvalidArgument, "[", c.name(), "] expected images with ",
           weight[1], " channels (dimension 1), as the weight has, got ", x[1], " in shapes ", x, " and ",
           weight);
  MX_CHECK(x[1] % s.groups == 0 && weight[0] % s.groups == 0 && weight[1] == x[1] / s.groups, InvalidArgument,
           "[", c.name(), "] expected x (images, in, ...) and a weight (out, in / groups, ...), where ",
           s.groups, " groups divide in and out, got shapes ", x, " and ", weight);
  check_bias(c, weight[0]);
  Shape y{x[0], weight[0]};
  for (int a = 0; a < s.axes; ++a) {
    y.push_back(s.forward(a, x[2 + a], weight[2 + a]));
    MX_CHECK(y.back() > 0, InvalidArgument, "[", c.name(),
             "] expected a kernel that is not larger than the padded x, got a kernel of ", weight[2 + a],
             " with dilation ", s.dilation[a], " for size ", x[2 + a], " with padding ", s.padding[a],
             " in shapes ", weight, " and ", x);
  }
  c.output(y, dtype);
}

void infer_transpose(InferContext& c) {
  const Shape &x = c.shape(0), &weight = c.shape(1);
  const DType dtype = checked_types(c);
  const auto& attrs = c.attr<ConvolutionTransposeAttrs>();
  const ConvolutionSizes s = sizes_of(attrs, x.rank());
  s.check(c.name(), x.rank());
  attrs.output_padding.check(c.name(), "output padding", s.axes, 0);
  check_kernel(c.name(), x, weight);
  check_positions(c.name(), x);
  MX_CHECK(x[1] % s.groups == 0 && weight[0] == x[1], InvalidArgument, "[", c.name(),
           "] expected x (images, in, ...) and a weight (in, out / groups, ...), where ", s.groups,
           " groups divide in, got shapes ", x, " and ", weight);
  check_bias(c, weight[1] * s.groups);
  Shape y{x[0], weight[1] * s.groups};
  for (int a = 0; a < s.axes; ++a) {
    MX_CHECK(attrs.output_padding[a] < std::max(s.stride[a], s.dilation[a]), InvalidArgument, "[", c.name(),
             "] expected an output padding less than stride ", s.stride[a], " or dilation ", s.dilation[a],
             ", got ", attrs.output_padding[a]);
    y.push_back(s.backward(a, x[2 + a], weight[2 + a]) + attrs.output_padding[a]);
    MX_CHECK(y.back() >= 0, InvalidArgument, "[", c.name(), "] expected a padding that leaves a result, got ",
             s.padding[a], " for shapes ", x, " and ", weight);
  }
  checked_numel(y, size_of(dtype), c.name());
  c.output(y, dtype);
}

void infer_weights(InferContext& c) {
  const Shape &x = c.shape(0), &dy = c.shape(1);
  const DType dtype = checked_types(c);
  const auto& attrs = c.attr<ConvolutionWeightsAttrs>();
  const ConvolutionSizes s = sizes_of(attrs, x.rank());
  s.check(c.name(), x.rank());
  check_positions(c.name(), dy);
  attrs.kernel.check(c.name(), "kernel", s.axes, 1);
  MX_CHECK(dy.rank() == x.rank() && dy[0] == x[0] && x[1] % s.groups == 0 && dy[1] % s.groups == 0,
           InvalidArgument, "[", c.name(), "] expected x (images, in, ...) and dy (images, out, ...), where ",
           s.groups, " groups divide in and out, got shapes ", x, " and ", dy);
  Shape weight{dy[1], x[1] / s.groups};
  for (int a = 0; a < s.axes; ++a) {
    const int64_t kernel = attrs.kernel[a], more = x[2 + a] - s.backward(a, dy[2 + a], kernel);
    MX_CHECK(s.forward(a, x[2 + a], kernel) >= dy[2 + a] && more < std::max(s.stride[a], s.dilation[a]),
             InvalidArgument, "[", c.name(), "] expected dy of the size that the convolution of x has, ",
             s.forward(a, x[2 + a], kernel), " along spatial axis ", a, ", got shapes ", x, " and ", dy);
    weight.push_back(kernel);
  }
  checked_numel(weight, size_of(dtype), c.name());
  c.output(weight, dtype);
}

double numel_of(const Shape& shape) {
  double n = 1;
  for (const int64_t size : shape) n *= static_cast<double>(size);
  return n;
}

/// Multiplications: each element of `images` takes part in one for each weight of its channel.
int64_t products(const Shape& images, const Shape& weight) {
  const double per_channel = numel_of(weight) / static_cast<double>(std::max<int64_t>(1, weight[0]));
  return static_cast<int64_t>(std::min(numel_of(images) * per_channel, 9e18));
}

int64_t work_convolution(const InferContext& c) { return products(c.output_shape(0), c.shape(1)); }
int64_t work_transpose(const InferContext& c) { return products(c.shape(0), c.shape(1)); }
int64_t work_weights(const InferContext& c) { return products(c.shape(1), c.output_shape(0)); }

void run_one(const KernelArgs& args, Correlation c, const Tensor* bias) {
  if (bias != nullptr) {
    c.bias = bias->data;
    c.bias_stride = bias->strides[0];
  }
  if (!winograd()) c.winograd = kernels::UseWinograd::never;
  const Scratch scratch(args, kernels::correlate_scratch(c));
  kernels::correlate(c, scratch.data());
}

void run_convolution(const KernelArgs& args) {
  const Tensor& y = args.out[0];
  const Converted x(args.in[0], y.dtype), weight(args.in[1], y.dtype),
      bias(args.in[args.in.size() - 1], y.dtype);
  const auto sizes = sizes_of(args.attr<ConvolutionAttrs>(), y.rank());
  run_one(args, detail::forward_correlation(sizes, *x, *weight, y), args.in.size() == 3 ? &*bias : nullptr);
}

void run_transpose(const KernelArgs& args) {
  const Tensor& x = args.out[0];
  const Converted y(args.in[0], x.dtype), weight(args.in[1], x.dtype),
      bias(args.in[args.in.size() - 1], x.dtype);
  const auto sizes = sizes_of(args.attr<ConvolutionTransposeAttrs>(), x.rank());
  std::vector<Correlation> parts;
  bool all_have_terms = true;
  detail::each_backward_correlation(sizes, *y, *weight, x, [&](const Correlation& c) {
    parts.push_back(c);
    all_have_terms = all_have_terms && kernels::has_terms(c);
  });
  // The parts are interleaved in memory, so that those without terms are filled faster together with the
  // others.
  const bool filled = !all_have_terms && args.in.size() < 3;
  if (filled) kernels::fill(x, 0);
  for (const Correlation& c : parts)
    if (!filled || kernels::has_terms(c)) run_one(args, c, args.in.size() == 3 ? &*bias : nullptr);
}

void run_weights(const KernelArgs& args) {
  const Tensor& weight = args.out[0];
  const Converted x(args.in[0], weight.dtype), dy(args.in[1], weight.dtype);
  const auto sizes = sizes_of(args.attr<ConvolutionWeightsAttrs>(), weight.rank());
  Correlation c = detail::forward_correlation(sizes, *x, weight, *dy);
  if (!winograd()) c.winograd = kernels::UseWinograd::never;
  const Scratch scratch(args, kernels::correlate_weights_scratch(c));
  kernels::correlate_weights(c, scratch.data());
}

constexpr detail::RecordList<DType, kDTypes> kFloating = {f32, f64, f16, bf16};

constexpr Operator kConvolution = {
    .kernel = {"convolution", run_convolution, cuda::convolution, kDirectProducts},
    .doc =
        "Convolution of x (images, in, spatial..) with a weight (out, in / groups, kernel..), plus bias "
        "(out,), "
        "in one to three spatial dimensions.",
    .family = "convolution",
    .inputs = {"x", "weight", "bias?"},
    .attrs = &kAttrType<ConvolutionAttrs>,
    .infer = infer_convolution,
    .gradient = detail::gradient_convolution,
    .gradient_uses = {.inputs = bit_set(0, 1), .crosswise = true},
    .dtypes = kFloating,
    .work = work_convolution,
};

constexpr Operator kConvolutionTranspose = {
    .kernel = {"convolution_transpose", run_transpose, cuda::convolution_transpose, kDirectProducts},
    .doc =
        "Transposed convolution of x (images, in, spatial..) with a weight (in, out / groups, kernel..), "
        "plus bias "
        "(out,): the gradient of a convolution with respect to its input.",
    .family = "convolution",
    .inputs = {"x", "weight", "bias?"},
    .attrs = &kAttrType<ConvolutionTransposeAttrs>,
    .infer = infer_transpose,
    .gradient = detail::gradient_convolution_transpose,
    .gradient_uses = {.inputs = bit_set(0, 1), .crosswise = true},
    .dtypes = kFloating,
    .work = work_transpose,
};

constexpr Operator kConvolutionWeights = {
    .kernel = {"convolution_weights", run_weights, cuda::convolution_weights, kDirectProducts},
    .doc =
        "Gradient of a convolution with respect to its weight, from x (images, in, spatial..) and dy "
        "(images, out, "
        "spatial..).",
    .family = "convolution",
    .inputs = {"x", "dy"},
    .outputs = {"dweight"},
    .attrs = &kAttrType<ConvolutionWeightsAttrs>,
    .infer = infer_weights,
    .gradient = detail::gradient_convolution_weights,
    .gradient_uses = {.inputs = bit_set(0, 1), .crosswise = true},
    .dtypes = kFloating,
    .work = work_weights,
};

/// Calls an operator; one image without a dimension of images gets one for the call.
NDArray call_on_images(const Operator& op, const Attrs& attrs, const Arg& x, const NDArray& weight,
                       const NDArray* bias) {
  const bool one = x.array.rank() == weight.rank() - 1;
  const NDArray images = one ? x.array.expand_dims(0) : x.array;
  const Arg from(images, x.where);
  const NDArray y = bias != nullptr ? call(op, attrs, from, weight, *bias) : call(op, attrs, from, weight);
  return one ? y.squeeze(0) : y;
}

}  // namespace

namespace detail {
OperatorFamily family_convolution() { return {&kConvolution, &kConvolutionTranspose, &kConvolutionWeights}; }
}  // namespace detail

NDArray convolution(const Arg& x, const NDArray& weight, const ConvolutionAttrs& attrs) {
  return call_on_images(kConvolution, attrs, x, weight, nullptr);
}
NDArray convolution(const Arg& x, const NDArray& weight, const NDArray& bias, const ConvolutionAttrs& attrs) {
  return call_on_images(kConvolution, attrs, x, weight, &bias);
}
NDArray convolution_transpose(const Arg& x, const NDArray& weight, const ConvolutionTransposeAttrs& attrs) {
  return call_on_images(kConvolutionTranspose, attrs, x, weight, nullptr);
}
NDArray convolution_transpose(const Arg& x, const NDArray& weight, const NDArray& bias,
                              const ConvolutionTransposeAttrs& attrs) {
  return call_on_images(kConvolutionTranspose, attrs, x, weight, &bias);
}
NDArray convolution_weights(const Arg& x, const NDArray& dy, const ConvolutionWeightsAttrs& attrs) {
  return call(kConvolutionWeights, attrs, x, dy);
}

void set_winograd(bool allowed) { winograd_flag().store(allowed, std::memory_order_relaxed); }
bool winograd() { return winograd_flag().load(std::memory_order_relaxed); }

}  // namespace mx
