#include "operators/interpolate.h"

#include <algorithm>
#include <cmath>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "operators/cuda_kernels.h"
#include "operators/kernels/resample.h"
#include "operators/resample_attrs.h"

namespace mx {
namespace {

using detail::ResampleAttrs;

/// The step between sources, as in PyTorch: a given factor is not recomputed from the rounded size.
double step_of(int64_t in, int64_t out, double factor, bool align_corners) {
  if (align_corners) return out > 1 ? static_cast<double>(in - 1) / static_cast<double>(out - 1) : 0;
  return factor > 0 ? 1 / factor : static_cast<double>(in) / static_cast<double>(out);
}

void check_resample_input(const InferContext& c) {
  MX_CHECK(is_floating(c.dtype(0)), InvalidArgument, "[", c.name(),
           "] expected floating-point elements, got ", c.dtype(0));
  MX_CHECK(c.shape(0).rank() >= 3 && c.shape(0).rank() <= 5, InvalidArgument, "[", c.name(),
           "] expected images, channels and 1 to 3 spatial axes, got shape ", c.shape(0));
}

template <bool kTransposed>
void infer_resample(InferContext& c) {
  check_resample_input(c);
  const auto& attrs = c.attr<ResampleAttrs>();
  Shape y = c.shape(0);
  const int axes = detail::resample_axes(c.name(), attrs, y, kTransposed).count;
  for (int a = 0; a < axes; ++a) y[2 + a] = attrs.size[a];
  c.output(y, c.dtype(0));
}

template <bool kTransposed>
void run_resample(const KernelArgs& args) {
  const Tensor& x = args.in[0];
  const char* const op = kTransposed ? "resample_backward" : "resample";
  kernels::resample(args, args.out[0], x,
                    detail::resample_axes(op, args.attr<ResampleAttrs>(), x.shape, kTransposed));
}

void gradient_resample(GradientContext& g);
void gradient_resample_backward(GradientContext& g);

constexpr detail::RecordList<DType, kDTypes> kResampleTypes = {f32, f64, f16, bf16};

constexpr Operator kResample = {
    .kernel = {"resample", run_resample<false>, cuda::resample},
    .doc = "Interpolation of images to other sizes: each element is a weighted sum of its neighbours.",
    .family = "convolution",
    .inputs = {"x"},
    .attrs = &kAttrType<ResampleAttrs>,
    .infer = infer_resample<false>,
    .gradient = gradient_resample,
    .dtypes = kResampleTypes,
};

constexpr Operator kResampleBackward = {
    .kernel = {"resample_backward", run_resample<true>, cuda::resample_backward},
    .doc = "The gradient of resample, which is its transpose. size is that of resample's operand.",
    .family = "convolution",
    .inputs = {"dy"},
    .outputs = {"dx"},
    .attrs = &kAttrType<ResampleAttrs>,
    .infer = infer_resample<true>,
    .gradient = gradient_resample_backward,
    .dtypes = kResampleTypes,
};

/// The other of the two, for arrays of this size.
void transpose_resample(GradientContext& g, const Operator& op) {
  ResampleAttrs attrs = g.attr<ResampleAttrs>();
  const Shape& x = g.input_shape(0);
  int64_t size[PerAxis::kMost];
  for (int a = 0; a < x.rank() - 2; ++a) size[a] = x[2 + a];
  attrs.size = PerAxis({size, static_cast<size_t>(x.rank() - 2)});
  g.set(0, call(op, attrs, g.head()));
}
void gradient_resample(GradientContext& g) { transpose_resample(g, kResampleBackward); }
void gradient_resample_backward(GradientContext& g) { transpose_resample(g, kResample); }

void check_interpolation(const NDArray& x, const InterpolateOptions& o) {
  MX_CHECK(is_floating(x.dtype()), InvalidArgument, "[interpolate] expected floating-point elements, got ",
           x.dtype());
  MX_CHECK(x.rank() >= 3 && x.rank() <= 5, InvalidArgument,
           "[interpolate] expected images, channels and 1 to 3 spatial axes, got shape ", x.shape());
  const int axes = x.rank() - 2;
  const bool is_nearest = o.mode == "nearest" || o.mode == "nearest-exact";
  const int needed = o.mode == "linear"                            ? 1
                     : o.mode == "bilinear" || o.mode == "bicubic" ? 2
                     : o.mode == "trilinear"                       ? 3
                                                                   : 0;
  MX_CHECK(
      is_nearest || needed == axes, InvalidArgument,
      "[interpolate] expected \"nearest\", \"nearest-exact\", \"linear\" for 1 spatial axis, \"bilinear\" or "
      "\"bicubic\" for 2, or \"trilinear\" for 3, got \"",
      o.mode, "\" for shape ", x.shape());
  MX_CHECK(!is_nearest || !o.align_corners, InvalidArgument,
           "[interpolate] expected align_corners = false for mode \"", o.mode, "\", got true");
  MX_CHECK(o.size.has_value() == o.scale_factor.empty(), InvalidArgument,
           "[interpolate] expected either sizes or scale factors, got ",
           o.size.has_value() ? "both" : "neither");
  if (o.size) o.size->check("interpolate", "size", axes, 1);
  const auto factors = static_cast<int>(o.scale_factor.size());
  MX_CHECK(o.size || factors == 1 || factors == axes, InvalidArgument, "[interpolate] expected 1 or ", axes,
           " scale factors, got ", factors);
  for (const double factor : o.scale_factor)
    MX_CHECK(factor > 0 && std::isfinite(factor), InvalidArgument,
             "[interpolate] expected scale factors greater than 0, got ", factor);
  for (int a = 0; a < axes; ++a)
    MX_CHECK(x.shape()[2 + a] >= 1, InvalidArgument,
             "[interpolate] expected spatial sizes of 1 or more, got ", x.shape());
}

}  // namespace

namespace detail {
OperatorFamily family_interpolate() { return {&kResample, &kResampleBackward}; }
}  // namespace detail

NDArray interpolate(const Arg& x, const InterpolateOptions& o) try {
  check_interpolation(x.array, o);
  const bool named = o.mode == "nearest" || o.mode == "nearest-exact";
  ResampleAttrs attrs{.mode = named                 ? o.mode
                              : o.mode == "bicubic" ? "cubic"
                                                    : "linear",
                      .align_corners = o.align_corners};
  int64_t sizes[PerAxis::kMost];
  const int axes = x.array.rank() - 2;
  for (int a = 0; a < axes; ++a) {
    const int64_t in = x.array.shape()[2 + a];
    const double factor =
        o.size ? 0 : o.scale_factor[o.scale_factor.size() == 1 ? 0 : static_cast<size_t>(a)];
    const int64_t out = o.size ? (*o.size)[a] : static_cast<int64_t>(static_cast<double>(in) * factor);
    MX_CHECK(out >= 1, InvalidArgument,
             "[interpolate] expected a result of at least 1 element per axis, got factor ", factor,
             " for size ", in);
    sizes[a] = out;
    attrs.steps.push_back(step_of(in, out, factor, o.align_corners));
  }
  attrs.size = PerAxis({sizes, static_cast<size_t>(axes)});
  return call(kResample, attrs, x);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray pixel_shuffle(const Arg& x, IntArg factor) try {
  const Shape& s = x.array.shape();
  const int64_t r = factor;
  MX_CHECK(r >= 1 && r <= INT32_MAX && s.rank() == 4 && s[1] % (r * r) == 0, InvalidArgument,
           "[pixel_shuffle] expected (images, channels, height, width) with channels that the square of the "
           "factor divides, "
           "got factor ",
           r, " for shape ", s);
  return x.array.reshape({s[0], s[1] / (r * r), r, r, s[2], s[3]}, x.where)
      .transpose({0, 1, 4, 2, 5, 3})
      .reshape({s[0], s[1] / (r * r), s[2] * r, s[3] * r}, x.where);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray pixel_unshuffle(const Arg& x, IntArg factor) try {
  const Shape& s = x.array.shape();
  const int64_t r = factor;
  MX_CHECK(r >= 1 && r <= INT32_MAX && s.rank() == 4 && s[2] % r == 0 && s[3] % r == 0, InvalidArgument,
           "[pixel_unshuffle] expected (images, channels, height, width) with sizes that the factor divides, "
           "got factor ",
           r, " for shape ", s);
  return x.array.reshape({s[0], s[1], s[2] / r, r, s[3] / r, r}, x.where)
      .transpose({0, 1, 3, 5, 2, 4})
      .reshape({s[0], s[1] * r * r, s[2] / r, s[3] / r}, x.where);
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

}  // namespace mx
