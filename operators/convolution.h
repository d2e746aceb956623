// Convolutions of one, two and three dimensions, transposed convolutions, and the gradient with respect to
// the weights.
//
// Layouts are those of PyTorch: x is (images, channels, spatial...), a weight is (out, in / groups,
// kernel...), and the result is (images, out, spatial...). As there, the kernel is not flipped. Without a
// first dimension, x is one image, and so is the result.
//
// The three operators are each linear in both operands, and the gradients of each are the other two, so all
// derivatives exist. f16 and bf16 are computed in f32 and rounded once. All throw InvalidArgument for types
// that are not floating point, for shapes that do not fit, and for a kernel that is larger than the padded
// image; the message names the numbers. The result has the same bits at any number of threads.
//
// On the CPU, large convolutions in f32, f16 and bf16 whose kernel is 3 x 3 along the last two axes, with a
// stride and a dilation of 1 along these, use Winograd's method, which needs 16 products instead of 36: see
// set_winograd(). They are large with at least 32 channels of x, times the kernel's size along the first of
// three axes, 32 channels of the result per group, and so many results that the method is likely to be
// faster.
#pragma once

#include <cstdint>

#include "operators/operator.h"
#include "operators/per_axis.h"

namespace mx {

struct ConvolutionAttrs {
  PerAxis stride = 1;
  PerAxis padding = 0;  ///< zeros before the first and after the last element of an axis
  PerAxis dilation = 1;
  int64_t groups = 1;
  template <class V>
  static void fields(V&& v) {
    v("stride", &ConvolutionAttrs::stride, "the distance between positions of the kernel, per spatial axis");
    v("padding", &ConvolutionAttrs::padding, "zeros added on both sides, per spatial axis");
    v("dilation", &ConvolutionAttrs::dilation,
      "the distance between elements of the kernel, per spatial axis");
    v("groups", &ConvolutionAttrs::groups,
      "the number of groups of channels; each group of the result depends on one group of x");
  }
};

struct ConvolutionTransposeAttrs {
  PerAxis stride = 1;
  PerAxis padding = 0;  ///< elements removed on both sides of the result
  PerAxis dilation = 1;
  int64_t groups = 1;
  PerAxis output_padding = 0;  ///< elements that the result has more at the end of an axis
  template <class V>
  static void fields(V&& v) {
    v("stride", &ConvolutionTransposeAttrs::stride,
      "the distance between the copies of the kernel, per spatial axis");
    v("padding", &ConvolutionTransposeAttrs::padding, "elements removed on both sides, per spatial axis");
    v("dilation", &ConvolutionTransposeAttrs::dilation,
      "the distance between elements of the kernel, per spatial axis");
    v("groups", &ConvolutionTransposeAttrs::groups, "the number of groups of channels");
    v("output_padding", &ConvolutionTransposeAttrs::output_padding,
      "elements that the result has more at its end, per spatial axis; less than stride or dilation");
  }
};

struct ConvolutionWeightsAttrs {
  PerAxis kernel = 1;
  PerAxis stride = 1;
  PerAxis padding = 0;
  PerAxis dilation = 1;
  int64_t groups = 1;
  template <class V>
  static void fields(V&& v) {
    v("kernel", &ConvolutionWeightsAttrs::kernel, "the sizes of the kernel");
    v("stride", &ConvolutionWeightsAttrs::stride, "that of the convolution");
    v("padding", &ConvolutionWeightsAttrs::padding, "that of the convolution");
    v("dilation", &ConvolutionWeightsAttrs::dilation, "that of the convolution");
    v("groups", &ConvolutionWeightsAttrs::groups, "that of the convolution");
  }
};

/// The size of the result along an axis is (size + 2 padding - dilation (kernel - 1) - 1) / stride + 1,
/// rounded down. `bias` has one element for each channel of the result.
NDArray convolution(const Arg& x, const NDArray& weight, const ConvolutionAttrs& attrs = {});
NDArray convolution(const Arg& x, const NDArray& weight, const NDArray& bias,
                    const ConvolutionAttrs& attrs = {});

/// The transposed map: d(loss)/dx of a convolution from x = d(loss)/dy. The weight is that of the
/// convolution: (in, out / groups, kernel...). The size of the result along an axis is (size - 1) stride - 2
/// padding + dilation (kernel - 1) + 1 + output_padding.
NDArray convolution_transpose(const Arg& x, const NDArray& weight,
                              const ConvolutionTransposeAttrs& attrs = {});
NDArray convolution_transpose(const Arg& x, const NDArray& weight, const NDArray& bias,
                              const ConvolutionTransposeAttrs& attrs = {});

/// d(loss)/d(weight) of a convolution of x, from dy = d(loss)/dy. Both have a dimension of images.
NDArray convolution_weights(const Arg& x, const NDArray& dy, const ConvolutionWeightsAttrs& attrs);

/// Sets whether convolutions on the CPU may use Winograd's method (Lavin and Gray, "Fast Algorithms for
/// Convolutional Neural Networks", 2016), which they may unless the environment variable MX_WINOGRAD is 0. It
/// is up to twice as fast. The error of a result is relative to the largest element that it reads times the
/// largest weight: as small as that of the sum of products, unless all large elements meet small weights.
/// Gradients of weights may also be rounded differently by elements beside those that they read. If any
/// result is not finite, all are computed as sums of products, so infinities and NaN are where they belong.
/// GPUs never use it. Any thread may call; operations that were issued before may still see the new value.
void set_winograd(bool allowed);
bool winograd();

}  // namespace mx
