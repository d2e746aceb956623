#include "operators/norm.h"

#include <algorithm>
#include <limits>
#include <memory>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "operators/arrange.h"
#include "operators/cuda_kernels.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/kernels/row_convert.h"
#include "operators/norm_form.h"
#include "operators/reduce.h"
#include "operators/select.h"
#include "operators/shape_ops.h"
#include "operators/temporary.h"

namespace mx {
namespace {

using detail::NormForm;
using detail::RunningStatisticsAttrs;

constexpr int64_t kDirectElements = 512;

/// The name of the record with the attributes A; kCentred: whether it subtracts the mean.
template <class A, bool kCentred>
constexpr const char* kName = nullptr;
template <>
constexpr const char* kName<BatchNormAttrs, true> = "batch_norm";
template <>
constexpr const char* kName<BatchNormBackwardAttrs, true> = "batch_norm_backward";
template <>
constexpr const char* kName<GroupNormAttrs, true> = "group_norm";
template <>
constexpr const char* kName<GroupNormBackwardAttrs, true> = "group_norm_backward";
template <>
constexpr const char* kName<LayerNormAttrs, true> = "layer_norm";
template <>
constexpr const char* kName<LayerNormBackwardAttrs, true> = "layer_norm_backward";
template <>
constexpr const char* kName<LayerNormAttrs, false> = "rms_norm";
template <>
constexpr const char* kName<LayerNormBackwardAttrs, false> = "rms_norm_backward";

NormForm form_of(const BatchNormAttrs&, const Shape& x, bool, const char* op) {
  return detail::batch_norm_form(x, op);
}
NormForm form_of(const BatchNormBackwardAttrs&, const Shape& x, bool, const char* op) {
  return detail::batch_norm_form(x, op);
}
template <class A>
requires requires(const A& attrs) { attrs.groups; }
NormForm form_of(const A& attrs, const Shape& x, bool, const char* op) {
  return detail::group_norm_form(x, attrs.groups, op);
}
template <class A>
requires requires(const A& attrs) { attrs.dims; }
NormForm form_of(const A& attrs, const Shape& x, bool centred, const char* op) {
  return detail::layer_norm_form(x, attrs.dims, centred, op);
}

void check_floating(const InferContext& c) {
  for (size_t i = 0; i < c.inputs(); ++i)
    MX_CHECK(is_floating(c.dtype(i)), InvalidArgument, "[", c.name(),
             "] expected floating-point elements, got ", c.dtype(i), " as input ", i);
}

void check_eps(const InferContext& c, double eps) {
  MX_CHECK(eps >= 0, InvalidArgument, "[", c.name(), "] expected an eps of 0 or more, got ", eps);
}

/// Checks weight and bias, the inputs from `first` on.
void check_parameters(const InferContext& c, size_t first, size_t most, const Shape& shape) {
  MX_CHECK(c.inputs() <= first + most, InvalidArgument, "[", c.name(), "] expected at most ", first + most,
           " inputs, got ", c.inputs());
  for (size_t i = first; i < c.inputs(); ++i)
    MX_CHECK(c.shape(i) == shape, InvalidArgument, "[", c.name(), "] expected a ",
             i == first ? "weight" : "bias", " of shape ", shape, ", got ", c.shape(i));
}

template <class A, bool kCentred>
void infer_forward(InferContext& c) {
  check_floating(c);
  const A& attrs = c.attr<A>();
  const NormForm form = form_of(attrs, c.shape(0), kCentred, c.name());
  check_eps(c, attrs.eps);
  check_parameters(c, 1, kCentred ? 2 : 1, form.params_plain);
  c.output(c.shape(0), c.dtype(0));
  if (kCentred) c.output(form.stats_plain, accumulation_type(c.dtype(0)));
  c.output(form.stats_plain, accumulation_type(c.dtype(0)));
}

template <class A, bool kCentred>
void infer_backward(InferContext& c) {
  check_floating(c);
  const A& attrs = c.attr<A>();
  MX_CHECK(c.shape(0) == c.shape(1), InvalidArgument, "[", c.name(),
           "] expected dy and x of the same shape, got ", c.shape(0), " and ", c.shape(1));
  const NormForm form = form_of(attrs, c.shape(1), kCentred, c.name());
  constexpr size_t kStatistics = kCentred ? 2 : 1;
  for (size_t i = 2; i < 2 + kStatistics; ++i)
    MX_CHECK(c.shape(i) == form.stats_plain, InvalidArgument, "[", c.name(),
             "] expected statistics of shape ", form.stats_plain, " for x of shape ", c.shape(1), ", got ",
             c.shape(i));
  check_parameters(c, 2 + kStatistics, 1, form.params_plain);
  const DType type = accumulation_type(c.dtype(1));
  c.output(c.shape(1), c.dtype(1));
  for (size_t i = 0; i < kStatistics; ++i) c.output(attrs.parameters ? form.params_plain : Shape{0}, type);
}

void infer_inference(InferContext& c) {
  check_floating(c);
  const NormForm form = detail::batch_norm_form(c.shape(0), c.name());
  check_eps(c, c.attr<BatchNormAttrs>().eps);
  for (size_t i = 1; i < 3; ++i)
    MX_CHECK(c.shape(i) == form.stats_plain, InvalidArgument, "[", c.name(), "] expected a ",
             i == 1 ? "mean" : "variance", " of shape ", form.stats_plain, ", got ", c.shape(i));
  check_parameters(c, 3, 2, form.params_plain);
  c.output(c.shape(0), c.dtype(0));
}

/// A tensor as the kernels take it: contiguous, and for statistics and parameters in the type of the
/// computation. The tensor itself, or a copy.
class Plain {
 public:
  explicit Plain(const Tensor& tensor) : Plain(tensor, tensor.dtype) {}
  Plain(const Tensor& tensor, DType dtype) : tensor_(tensor) {
    if (tensor.contiguous() && tensor.dtype == dtype) return;
    copy_ = std::make_unique<detail::Temporary>(dtype, tensor.shape);
    tensor_ = **copy_;
    kernels::copy(tensor_, tensor);
  }
  const Tensor& operator*() const { return tensor_; }

 private:
  std::unique_ptr<detail::Temporary> copy_;
  Tensor tensor_;
};

/// An optional input in that form.
class PlainInput {
 public:
  PlainInput(const KernelArgs& args, size_t i, DType dtype) {
    if (i < args.in.size()) plain_.emplace(args.in[i], dtype);
  }
  const Tensor* get() const { return plain_ ? &**plain_ : nullptr; }

 private:
  std::optional<Plain> plain_;
};

template <class A, bool kCentred>
void run_forward(const KernelArgs& args) {
  const Plain x(args.in[0]);
  const DType type = accumulation_type((*x).dtype);
  const A& attrs = args.attr<A>();
  const NormForm form = form_of(attrs, (*x).shape, kCentred, kName<A, kCentred>);
  const PlainInput weight(args, 1, type), bias(args, 2, type);
  const kernels::NormForward forward{.y = args.out[0],
                                     .mean = args.out[1],
                                     .rstd = args.out[kCentred ? 2 : 1],
                                     .x = *x,
                                     .weight = weight.get(),
                                     .bias = bias.get(),
                                     .eps = attrs.eps,
                                     .centred = kCentred};
  if constexpr (std::is_same_v<A, BatchNormAttrs>) {
    kernels::batch_norm(form.channel, forward);
  } else {
    kernels::group_norm(form.group, forward);
  }
}

template <class A, bool kCentred>
void run_backward(const KernelArgs& args) {
  const Plain dy(args.in[0]), x(args.in[1]);
  const DType type = accumulation_type((*x).dtype);
  const A& attrs = args.attr<A>();
  const NormForm form = form_of(attrs, (*x).shape, kCentred, kName<A, kCentred>);
  const Plain mean(args.in[2], type), rstd(args.in[kCentred ? 3 : 2], type);
  const PlainInput weight(args, kCentred ? 4 : 3, type);
  const kernels::NormBackward backward{.dx = args.out[0],
                                       .dweight = args.out[1],
                                       .dbias = args.out[kCentred ? 2 : 1],
                                       .dy = *dy,
                                       .x = *x,
                                       .mean = *mean,
                                       .rstd = *rstd,
                                       .weight = weight.get(),
                                       .parameters = attrs.parameters,
                                       .centred = kCentred};
  if constexpr (std::is_same_v<A, BatchNormBackwardAttrs>) {
    kernels::batch_norm_backward(form.channel, backward);
  } else {
    kernels::group_norm_backward(form.group, backward);
  }
}

void run_inference(const KernelArgs& args) {
  const Plain x(args.in[0]);
  const DType type = accumulation_type((*x).dtype);
  const NormForm form = detail::batch_norm_form((*x).shape, "batch_norm_inference");
  const Plain mean(args.in[1], type), variance(args.in[2], type);
  const PlainInput weight(args, 3, type), bias(args, 4, type);
  const Tensor& out = args.out[0];
  const auto compute = [&](const Tensor& y) {
    kernels::batch_norm_inference(form.channel, y, *x, *mean, *variance, weight.get(), bias.get(),
                                  args.attr<BatchNormAttrs>().eps);
  };
  if (out.contiguous()) return compute(out);
  const detail::Temporary y(out.dtype, out.shape);
  compute(*y);
  kernels::copy(out, *y);
}

void infer_running(InferContext& c) {
  const auto& attrs = c.attr<RunningStatisticsAttrs>();
  const Shape& shape = c.shape(0);
  for (size_t i = 0; i < 5; ++i) {
    if (i == 2) continue;
    MX_CHECK(is_floating(c.dtype(i)) && shape.rank() == 1 && c.shape(i) == shape, InvalidArgument, "[",
             c.name(), "] expected floating-point statistics of one shape (channels,), got ", c.dtype(i),
             " of shape ", c.shape(i), " as input ", i, " and shape ", shape, " as input 0");
  }
  MX_CHECK(c.dtype(2) == i64 && c.shape(2).numel() == 1, InvalidArgument, "[", c.name(),
           "] expected an i64 counter of one element, got ", c.dtype(2), " of shape ", c.shape(2));
  MX_CHECK(attrs.momentum >= 0 && attrs.momentum <= 1, InvalidArgument, "[", c.name(),
           "] expected a momentum from 0 to 1, got ", attrs.momentum);
  MX_CHECK(attrs.elements >= 2, InvalidArgument, "[", c.name(),
           "] expected at least 2 elements of each channel, for a variance, got ", attrs.elements);
  check_eps(c, attrs.eps);
  c.output({}, f32);
}

/// average += share * (f(value) - average) for the elements of two vectors.
template <class F>
void move_towards(const Tensor& average, const Tensor& value, double share, const F& f) {
  constexpr int64_t kTogether = 256;
  double from[kTogether], to[kTogether];
  for (int64_t i = 0; i < average.numel(); i += kTogether) {
    const int64_t n = std::min(kTogether, average.numel() - i), step = average.strides[0];
    kernels::load_run(to, average.data, average.dtype, i * step, step, n);
    kernels::load_run(from, value.data, value.dtype, i * value.strides[0], value.strides[0], n);
    for (int64_t k = 0; k < n; ++k) to[k] = (1 - share) * to[k] + share * f(from[k]);
    kernels::store_run(average.data, average.dtype, i * step, step, to, n);
  }
}

void run_running(const KernelArgs& args) {
  const auto& attrs = args.attr<RunningStatisticsAttrs>();
  int64_t& batches = *args.in[2].as<int64_t>();
  ++batches;
  const double share = attrs.cumulative ? 1 / static_cast<double>(batches) : attrs.momentum;
  const auto n = static_cast<double>(attrs.elements);
  move_towards(args.in[0], args.in[3], share, [](double mean) { return mean; });
  move_towards(args.in[1], args.in[4], share,
               [&](double rstd) { return std::max(0., 1 / (rstd * rstd) - attrs.eps) * (n / (n - 1)); });
  *args.out[0].as<float>() = static_cast<float>(share);
}

// The inputs that each gradient reads: the gradient of x reads the weight, those of the weight and of the
// bias do not.
constexpr uint64_t kForwardReads[] = {bit_set(0, 1), bit_set(0), bit_set(0)};
// Of x, mean, variance, weight and bias.
constexpr uint64_t kInferenceReads[] = {bit_set(2, 3), bit_set(2, 3), bit_set(0, 1, 2, 3), bit_set(0, 1, 2),
                                        0};

constexpr detail::RecordList<DType, kDTypes> kFloating = {f32, f64, f16, bf16};

constexpr Operator kBatchNorm = {
    .kernel = {kName<BatchNormAttrs, true>, run_forward<BatchNormAttrs, true>, cuda::batch_norm,
               kDirectElements},
    .doc = "Normalises each channel of x (N, C, ..) over the batch; mean and rstd are those of the channels.",
    .family = "normalisation",
    .inputs = {"x", "weight and bias..."},
    .outputs = {"y", "mean", "rstd"},
    .attrs = &kAttrType<BatchNormAttrs>,
    .infer = infer_forward<BatchNormAttrs, true>,
    .gradient = detail::gradient_batch_norm,
    .gradient_uses = {.inputs = bit_set(0, 1), .outputs = bit_set(1, 2), .by_gradient = kForwardReads},
    .dtypes = kFloating,
};

constexpr Operator kBatchNormBackward = {
    .kernel = {kName<BatchNormBackwardAttrs, true>, run_backward<BatchNormBackwardAttrs, true>,
               cuda::batch_norm_backward, kDirectElements},
    .doc = "Gradients of batch_norm with respect to x, weight and bias, from those of y.",
    .family = "normalisation",
    .inputs = {"dy", "x", "mean", "rstd", "weight?"},
    .outputs = {"dx", "dweight", "dbias"},
    .attrs = &kAttrType<BatchNormBackwardAttrs>,
    .infer = infer_backward<BatchNormBackwardAttrs, true>,
    .gradient = detail::gradient_batch_norm_backward,
    .gradient_uses = {.inputs = bit_set(0, 1, 2, 3, 4)},
    .dtypes = kFloating,
};

constexpr Operator kBatchNormInference = {
    .kernel = {"batch_norm_inference", run_inference, cuda::batch_norm_inference, kDirectElements},
    .doc = "Normalises each channel of x (N, C, ..) with given means and variances.",
    .family = "normalisation",
    .inputs = {"x", "mean", "variance", "weight and bias..."},
    .attrs = &kAttrType<BatchNormAttrs>,
    .infer = infer_inference,
    .gradient = detail::gradient_batch_norm_inference,
    .gradient_uses = {.inputs = bit_set(0, 1, 2, 3), .by_gradient = kInferenceReads},
    .dtypes = kFloating,
    .in_place = bit_set(0),
};

constexpr Operator kRunningStatistics = {
    .kernel = {"update_running_statistics", run_running, cuda::update_running_statistics, kDirectElements},
    .doc =
        "Counts a batch and moves running averages towards its mean and unbiased variance; returns the "
        "share of the batch.",
    .family = "normalisation",
    .inputs = {"running_mean", "running_variance", "batches", "mean", "rstd"},
    .outputs = {"share"},
    .attrs = &kAttrType<RunningStatisticsAttrs>,
    .infer = infer_running,
    .updates = bit_set(0, 1, 2),
};

constexpr Operator kGroupNorm = {
    .kernel = {kName<GroupNormAttrs, true>, run_forward<GroupNormAttrs, true>, cuda::group_norm,
               kDirectElements},
    .doc = "Normalises x (N, C, ..) over groups of channels, for each n.",
    .family = "normalisation",
    .inputs = {"x", "weight and bias..."},
    .outputs = {"y", "mean", "rstd"},
    .attrs = &kAttrType<GroupNormAttrs>,
    .infer = infer_forward<GroupNormAttrs, true>,
    .gradient = detail::gradient_group_norm,
    .gradient_uses = {.inputs = bit_set(0, 1), .outputs = bit_set(1, 2), .by_gradient = kForwardReads},
    .dtypes = kFloating,
};

constexpr Operator kGroupNormBackward = {
    .kernel = {kName<GroupNormBackwardAttrs, true>, run_backward<GroupNormBackwardAttrs, true>,
               cuda::group_norm_backward, kDirectElements},
    .doc = "Gradients of group_norm with respect to x, weight and bias, from those of y.",
    .family = "normalisation",
    .inputs = {"dy", "x", "mean", "rstd", "weight?"},
    .outputs = {"dx", "dweight", "dbias"},
    .attrs = &kAttrType<GroupNormBackwardAttrs>,
    .infer = infer_backward<GroupNormBackwardAttrs, true>,
    .gradient = detail::gradient_group_norm_backward,
    .gradient_uses = {.inputs = bit_set(0, 1, 2, 3, 4)},
    .dtypes = kFloating,
};

constexpr Operator kLayerNorm = {
    .kernel = {kName<LayerNormAttrs, true>, run_forward<LayerNormAttrs, true>, cuda::layer_norm,
               kDirectElements},
    .doc = "Normalises x over its last dimensions.",
    .family = "normalisation",
    .inputs = {"x", "weight and bias..."},
    .outputs = {"y", "mean", "rstd"},
    .attrs = &kAttrType<LayerNormAttrs>,
    .infer = infer_forward<LayerNormAttrs, true>,
    .gradient = detail::gradient_layer_norm,
    .gradient_uses = {.inputs = bit_set(0, 1), .outputs = bit_set(1, 2), .by_gradient = kForwardReads},
    .dtypes = kFloating,
};

constexpr Operator kLayerNormBackward = {
    .kernel = {kName<LayerNormBackwardAttrs, true>, run_backward<LayerNormBackwardAttrs, true>,
               cuda::layer_norm_backward, kDirectElements},
    .doc = "Gradients of layer_norm with respect to x, weight and bias, from those of y.",
    .family = "normalisation",
    .inputs = {"dy", "x", "mean", "rstd", "weight?"},
    .outputs = {"dx", "dweight", "dbias"},
    .attrs = &kAttrType<LayerNormBackwardAttrs>,
    .infer = infer_backward<LayerNormBackwardAttrs, true>,
    .gradient = detail::gradient_layer_norm_backward,
    .gradient_uses = {.inputs = bit_set(0, 1, 2, 3, 4)},
    .dtypes = kFloating,
};

constexpr Operator kRmsNorm = {
    .kernel = {kName<LayerNormAttrs, false>, run_forward<LayerNormAttrs, false>, cuda::rms_norm,
               kDirectElements},
    .doc = "Divides x by the root of the mean square over its last dimensions.",
    .family = "normalisation",
    .inputs = {"x", "weight?"},
    .outputs = {"y", "rstd"},
    .attrs = &kAttrType<LayerNormAttrs>,
    .infer = infer_forward<LayerNormAttrs, false>,
    .gradient = detail::gradient_rms_norm,
    .gradient_uses = {.inputs = bit_set(0, 1), .outputs = bit_set(1), .by_gradient = kForwardReads},
    .dtypes = kFloating,
};

constexpr Operator kRmsNormBackward = {
    .kernel = {kName<LayerNormBackwardAttrs, false>, run_backward<LayerNormBackwardAttrs, false>,
               cuda::rms_norm_backward, kDirectElements},
    .doc = "Gradients of rms_norm with respect to x and weight, from that of y.",
    .family = "normalisation",
    .inputs = {"dy", "x", "rstd", "weight?"},
    .outputs = {"dx", "dweight"},
    .attrs = &kAttrType<LayerNormBackwardAttrs>,
    .infer = infer_backward<LayerNormBackwardAttrs, false>,
    .gradient = detail::gradient_rms_norm_backward,
    .gradient_uses = {.inputs = bit_set(0, 1, 2, 3)},
    .dtypes = kFloating,
};

/// Calls an operator with weight and bias as far as there are any. A bias without a weight is added to y.
std::vector<NDArray> call_norm(const Operator& op, const Attrs& attrs, std::vector<NDArray> inputs,
                               const NDArray& weight, const NDArray& bias, const Shape& bias_shape,
                               std::source_location where) {
  if (weight.defined()) {
    inputs.push_back(weight);
    if (bias.defined()) inputs.push_back(bias);
  }
  std::vector<NDArray> results = call(op, attrs, inputs, where);
  if (bias.defined() && !weight.defined()) {
    const NDArray& y = results[0];
    results[0] = (y + bias.reshape(bias_shape, where)).to(y.dtype());
  }
  return results;
}

/// The shape of a vector of channels that broadcasts to x.
Shape channel_shape(const NDArray& x) {
  Shape shape = Shape::filled(std::max(x.rank() - 1, 1), 1);
  shape[0] = x.rank() > 1 ? x.shape()[1] : 1;
  return shape;
}

/// Checks that x ends in the dimensions `shape`; returns their number.
int64_t trailing_dims(const NDArray& x, const Shape& shape, const char* op) {
  bool ends = shape.rank() >= 1 && shape.rank() <= x.rank();
  for (int i = 0; ends && i < shape.rank(); ++i) ends = x.shape()[x.rank() - shape.rank() + i] == shape[i];
  MX_CHECK(ends, InvalidArgument, "[", op, "] expected an array whose last dimensions are ", shape,
           ", got shape ", x.shape());
  return shape.rank();
}

}  // namespace

namespace detail {
OperatorFamily family_norm() {
  return {&kBatchNorm, &kBatchNormBackward, &kBatchNormInference, &kRunningStatistics,
          &kGroupNorm, &kGroupNormBackward, &kLayerNorm,          &kLayerNormBackward,
          &kRmsNorm,   &kRmsNormBackward};
}
}  // namespace detail

NormResult batch_norm(const Arg& x, const NDArray& weight, const NDArray& bias, RealArg eps) {
  std::vector<NDArray> r =
      call_norm(kBatchNorm, BatchNormAttrs{eps}, {x.array}, weight, bias, channel_shape(x.array), x.where);
  return {std::move(r[0]), std::move(r[1]), std::move(r[2])};
}

NDArray batch_norm_inference(const Arg& x, const NDArray& mean, const NDArray& variance,
                             const NDArray& weight, const NDArray& bias, RealArg eps) {
  return call_norm(kBatchNormInference, BatchNormAttrs{eps}, {x.array, mean, variance}, weight, bias,
                   channel_shape(x.array), x.where)[0];
}

void update_running_statistics(const NDArray& running_mean, const NDArray& running_variance,
                               const NDArray& batches, const Arg& mean, const NDArray& rstd,
                               const RunningStatisticsOptions& options) {
  const NDArray inputs[] = {running_mean, running_variance, batches, mean.array, rstd};
  call(kRunningStatistics,
       RunningStatisticsAttrs{options.momentum.value_or(0), !options.momentum.has_value(), options.eps,
                              options.elements},
       inputs, mean.where);
}

NDArray layer_norm(const Arg& x, const Shape& shape, const NDArray& weight, const NDArray& bias,
                   RealArg eps) try {
  const int64_t dims = trailing_dims(x.array, shape, "layer_norm");
  return call_norm(kLayerNorm, LayerNormAttrs{dims, eps}, {x.array}, weight, bias, shape, x.where)[0];
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NormResult group_norm_with_statistics(const Arg& x, IntArg groups, const NDArray& weight, const NDArray& bias,
                                      RealArg eps) {
  std::vector<NDArray> r = call_norm(kGroupNorm, GroupNormAttrs{groups, eps}, {x.array}, weight, bias,
                                     channel_shape(x.array), x.where);
  return {std::move(r[0]), std::move(r[1]), std::move(r[2])};
}

NDArray group_norm(const Arg& x, IntArg groups, const NDArray& weight, const NDArray& bias, RealArg eps) {
  return group_norm_with_statistics(x, groups, weight, bias, eps).y;
}

NDArray instance_norm(const Arg& x, const NDArray& weight, const NDArray& bias, RealArg eps) try {
  MX_CHECK(x.array.rank() >= 2 && x.array.shape()[1] > 0, InvalidArgument,
           "[instance_norm] expected an array (batch, channels, ..) with channels, got shape ",
           x.array.shape());
  return group_norm(x, x.array.shape()[1], weight, bias, eps);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray rms_norm(const Arg& x, const Shape& shape, const NDArray& weight, std::optional<double> eps) try {
  const int64_t dims = trailing_dims(x.array, shape, "rms_norm");
  const double smallest = x.array.dtype() == f64 ? std::numeric_limits<double>::epsilon()
                                                 : double{std::numeric_limits<float>::epsilon()};
  return call_norm(kRmsNorm, LayerNormAttrs{dims, eps.value_or(smallest)}, {x.array}, weight, {}, shape,
                   x.where)[0];
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray lp_normalize(const Arg& x, RealArg p, IntArg axis, RealArg eps) {
  return x.array / maximum(norm(x, p, axis, true), double{eps});
}

NDArray local_response_norm(const Arg& x, IntArg size, const LocalResponseOptions& options) try {
  const NDArray& a = x.array;
  MX_CHECK(
      a.rank() >= 2 && size >= 1, InvalidArgument,
      "[local_response_norm] expected an array of rank 2 or more, (batch, channels, ..), and a size of 1 or "
      "more, got shape ",
      a.shape(), " and size ", int64_t{size});
  // A window begins size / 2 channels before its channel, as in PyTorch.
  std::vector<int64_t> widths(2 * static_cast<size_t>(a.rank()), 0);
  widths[2] = size / 2;
  widths[3] = (size - 1) / 2;
  NDArray total;
  const NDArray squares = pad(square(x), widths);
  for (int64_t i = 0; i < size; ++i) {
    const NDArray shifted = squares.slice(1, Slice{i, i + a.size(1)});
    total = i == 0 ? shifted : total + shifted;
  }
  return a / pow(total * (options.alpha / static_cast<double>(size)) + options.k, options.beta);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

}  // namespace mx
