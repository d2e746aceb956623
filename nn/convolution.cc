#include "nn/convolution.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "nn/detail/call_site.h"
#include "nn/init.h"
#include "operators/convolution.h"
#include "operators/shape_ops.h"

namespace mx::nn {

ConvPadding::ConvPadding(const char* text, std::source_location where)
    : same_(std::strcmp(text, "same") == 0) {
  MX_CHECK(same_ || std::strcmp(text, "valid") == 0, InvalidArgument,
           "[ConvPadding] expected numbers, \"same\" or \"valid\", got \"", text, '"',
           mx::detail::called_at(where));
}

namespace detail {
namespace {

PadMode pad_mode_of(const char* name, const std::string& text) {
  if (text == "zeros") return PadMode::constant;
  if (text == "reflect") return PadMode::reflect;
  if (text == "replicate") return PadMode::edge;
  MX_CHECK(text == "circular", InvalidArgument, "[", name,
           "] expected a padding mode \"zeros\", \"reflect\", \"replicate\" or \"circular\", got \"", text,
           '"');
  return PadMode::wrap;
}

/// Checks what convolutions and transposed ones have in common.
template <class Options>
void check_options(const char* name, int axes, int64_t in, int64_t out, const PerAxis& kernel,
                   const Options& options) {
  MX_CHECK(in >= 1 && out >= 1, InvalidArgument, "[", name, "] expected 1 or more channels, got in = ", in,
           " and out = ", out);
  MX_CHECK(options.groups >= 1 && in % options.groups == 0 && out % options.groups == 0, InvalidArgument, "[",
           name, "] expected groups that divide in = ", in, " and out = ", out, ", got ", options.groups);
  kernel.check(name, "kernel", axes, 1);
  options.stride.check(name, "stride", axes, 1);
  options.dilation.check(name, "dilation", axes, 1);
  MX_CHECK(is_floating(options.dtype), InvalidArgument, "[", name, "] expected a floating-point type, got ",
           options.dtype);
}

Shape weight_shape(int64_t first, int64_t second, int axes, const PerAxis& kernel) {
  Shape shape{first, second};
  for (int a = 0; a < axes; ++a) shape.push_back(kernel[a]);
  return shape;
}

void reset(Parameter& weight, Parameter& bias, Generator* generator) {
  init::kaiming_uniform_(weight, {.a = std::sqrt(5.0)}, generator);
  if (!bias.defined()) return;
  const double bound = 1 / std::sqrt(static_cast<double>(init::fans_of(weight.shape()).in));
  init::uniform_(bias, -bound, bound, generator);
}

PerAxis kernel_of(const Parameter& weight) {
  return PerAxis(std::span<const int64_t>(weight.shape().begin() + 2, weight.shape().end()));
}

/// Throws InvalidArgument unless x is a batch of images or one image of that many spatial axes.
void check_rank(const char* name, int axes, const NDArray& x) {
  MX_CHECK(x.rank() == axes + 2 || x.rank() == axes + 1, InvalidArgument, "[", name, "] expected x of ",
           axes + 2, " dimensions, or of ", axes + 1, " for one image, got shape ", x.shape());
}

}  // namespace

ConvBase::ConvBase(const char* name, int axes, int64_t in, int64_t out, const PerAxis& kernel,
                   const ConvOptions& options, std::source_location where) try
    : name_(name), axes_(axes), options_(options) {
  check_options(name, axes, in, out, kernel, options);
  options.padding.numbers().check(name, "padding", axes, 0);
  pad_mode_of(name, options.padding_mode);
  MX_CHECK(!options.padding.same() || options.stride.all(1), InvalidArgument, "[", name,
           "] expected a stride of 1 for a padding of \"same\", got ", to_string(options.stride));
  weight = add_parameter(
      "weight", empty(weight_shape(out, in / options.groups, axes, kernel), options.dtype, options.context));
  if (options.bias) bias = add_parameter("bias", empty({out}, options.dtype, options.context));
  reset_parameters();
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray ConvBase::forward(const NDArray& x) {
  check_rank(name_, axes_, x);
  ConvolutionAttrs attrs{options_.stride, options_.padding.numbers(), options_.dilation, options_.groups};
  NDArray input = x;
  std::vector<int64_t> before, after;
  for (int a = 0; a < axes_; ++a) {
    const int64_t more = options_.dilation[a] * (weight.shape()[2 + a] - 1);
    before.push_back(options_.padding.same() ? more / 2 : options_.padding.numbers()[a]);
    after.push_back(options_.padding.same() ? more - more / 2 : before.back());
  }
  const PadMode mode = pad_mode_of(name_, options_.padding_mode);
  attrs.padding = PerAxis(before);
  if (mode != PadMode::constant || before != after) {
    // The operator pads with equally many zeros on both sides; anything else is padded before it.
    std::vector<int64_t> widths(static_cast<size_t>(2 * (x.rank() - axes_)));
    for (size_t a = 0; a < before.size(); ++a) widths.insert(widths.end(), {before[a], after[a]});
    input = pad(at_call(x), widths, mode);
    attrs.padding = 0;
  }
  const Arg from = at_call(input);
  return bias.defined() ? convolution(from, weight, bias, attrs) : convolution(from, weight, attrs);
}

void ConvBase::reset_parameters(Generator* generator) { reset(weight, bias, generator); }

std::string ConvBase::extra() const {
  const Shape& shape = weight.shape();
  std::string text = mx::detail::concat("in=", shape[1] * options_.groups, ", out=", shape[0],
                                        ", kernel=", to_string(kernel_of(weight)));
  if (!options_.stride.all(1)) text += ", stride=" + to_string(options_.stride);
  if (options_.padding.same()) text += ", padding=same";
  if (!options_.padding.numbers().all(0)) text += ", padding=" + to_string(options_.padding.numbers());
  if (!options_.dilation.all(1)) text += ", dilation=" + to_string(options_.dilation);
  if (options_.groups != 1) text += mx::detail::concat(", groups=", options_.groups);
  if (options_.padding_mode != "zeros") text += ", padding_mode=" + options_.padding_mode;
  return text + (bias.defined() ? "" : ", bias=false");
}

ConvTransposeBase::ConvTransposeBase(const char* name, int axes, int64_t in, int64_t out,
                                     const PerAxis& kernel, const ConvTransposeOptions& options,
                                     std::source_location where) try
    : name_(name), axes_(axes), options_(options) {
  check_options(name, axes, in, out, kernel, options);
  options.padding.check(name, "padding", axes, 0);
  options.output_padding.check(name, "output padding", axes, 0);
  for (int a = 0; a < axes; ++a)
    MX_CHECK(options.output_padding[a] < std::max(options.stride[a], options.dilation[a]), InvalidArgument,
             "[", name, "] expected an output padding less than the stride or the dilation, got ",
             to_string(options.output_padding));
  weight = add_parameter(
      "weight", empty(weight_shape(in, out / options.groups, axes, kernel), options.dtype, options.context));
  if (options.bias) bias = add_parameter("bias", empty({out}, options.dtype, options.context));
  reset_parameters();
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

NDArray ConvTransposeBase::forward(const NDArray& x) {
  check_rank(name_, axes_, x);
  const ConvolutionTransposeAttrs attrs{options_.stride, options_.padding, options_.dilation, options_.groups,
                                        options_.output_padding};
  const Arg from = at_call(x);
  return bias.defined() ? convolution_transpose(from, weight, bias, attrs)
                        : convolution_transpose(from, weight, attrs);
}

void ConvTransposeBase::reset_parameters(Generator* generator) { reset(weight, bias, generator); }

std::string ConvTransposeBase::extra() const {
  const Shape& shape = weight.shape();
  std::string text = mx::detail::concat("in=", shape[0], ", out=", shape[1] * options_.groups,
                                        ", kernel=", to_string(kernel_of(weight)));
  if (!options_.stride.all(1)) text += ", stride=" + to_string(options_.stride);
  if (!options_.padding.all(0)) text += ", padding=" + to_string(options_.padding);
  if (!options_.output_padding.all(0)) text += ", output_padding=" + to_string(options_.output_padding);
  if (!options_.dilation.all(1)) text += ", dilation=" + to_string(options_.dilation);
  if (options_.groups != 1) text += mx::detail::concat(", groups=", options_.groups);
  return text + (bias.defined() ? "" : ", bias=false");
}

}  // namespace detail
}  // namespace mx::nn
