#include "operators/convolution_shape.h"

#include <algorithm>
#include <numeric>

#include "engine/base/check.h"

namespace mx::detail {
namespace {

using kernels::Correlation;
using kernels::Images;
using kernels::Spatial;

/// The place of a spatial axis among the kernels' three: the last ones.
size_t place(int axes, int axis) { return static_cast<size_t>(3 - axes + axis); }

Images images_of(const Tensor& t, int axes, int64_t groups) {
  Images i;
  i.data = t.data;
  i.image = t.strides[0];
  i.channel = t.strides[1];
  i.group = t.shape[1] / groups * t.strides[1];
  for (int a = 0; a < axes; ++a) {
    i.size[place(axes, a)] = t.shape[2 + a];
    i.space[place(axes, a)] = t.strides[2 + a];
  }
  return i;
}

}  // namespace

void ConvolutionSizes::check(const char* op, int rank) const {
  MX_CHECK(rank >= 3 && rank <= 5, InvalidArgument, "[", op,
           "] expected x of 3 to 5 dimensions: images, channels and 1 to 3 spatial axes, got ", rank);
  stride.check(op, "stride", rank - 2, 1);
  padding.check(op, "padding", rank - 2, 0);
  dilation.check(op, "dilation", rank - 2, 1);
  MX_CHECK(groups >= 1, InvalidArgument, "[", op, "] expected 1 or more groups, got ", groups);
}

int64_t ConvolutionSizes::forward(int axis, int64_t size, int64_t kernel) const {
  const int64_t room = size + 2 * padding[axis] - dilation[axis] * (kernel - 1) - 1;
  return room < 0 ? 0 : room / stride[axis] + 1;
}

int64_t ConvolutionSizes::backward(int axis, int64_t size, int64_t kernel) const {
  return (size - 1) * stride[axis] - 2 * padding[axis] + dilation[axis] * (kernel - 1) + 1;
}

Correlation forward_correlation(const ConvolutionSizes& s, const Tensor& x, const Tensor& weight,
                                const Tensor& y) {
  Correlation c;
  c.dtype = x.dtype;
  c.images = x.shape[0];
  c.groups = s.groups;
  c.channels = weight.shape[1];
  c.rows = weight.shape[0] / s.groups;
  c.in = images_of(x, s.axes, s.groups);
  c.out = images_of(y, s.axes, s.groups);
  c.weights.data = weight.data;
  c.weights.group = c.rows * weight.strides[0];
  c.weights.row = weight.strides[0];
  c.weights.channel = weight.strides[1];
  for (int a = 0; a < s.axes; ++a) {
    const size_t p = place(s.axes, a);
    c.weights.tap[p] = weight.strides[2 + a];
    c.taps.count[p] = weight.shape[2 + a];
    c.taps.first[p] = -s.padding[a];
    c.taps.gap[p] = s.dilation[a];
    c.step[p] = s.stride[a];
  }
  return c;
}

Correlation backward_correlation(const ConvolutionSizes& s, const Tensor& y, const Tensor& weight,
                                 const Tensor& x, const Spatial& residue) {
  Correlation c;
  c.dtype = y.dtype;
  c.images = y.shape[0];
  c.groups = s.groups;
  c.channels = weight.shape[0] / s.groups;
  c.rows = weight.shape[1];
  c.in = images_of(y, s.axes, s.groups);
  c.out = images_of(x, s.axes, s.groups);
  c.weights.group = c.channels * weight.strides[0];
  c.weights.row = weight.strides[1];
  c.weights.channel = weight.strides[0];
  int64_t first_tap = 0, first_position = 0;
  for (int a = 0; a < s.axes; ++a) {
    // Position q of x is the sum over taps t of y[(q + padding - t * dilation) / stride], where that is
    // whole. With q = o * stride + residue these are the taps t = t0, t0 + period, ...
    const size_t p = place(s.axes, a);
    const int64_t stride = s.stride[a], dilation = s.dilation[a], r = residue[static_cast<size_t>(a)];
    const int64_t common = std::gcd(stride, dilation), period = stride / common, kernel = weight.shape[2 + a];
    int64_t t0 = 0;
    while (t0 < period && (r + s.padding[a] - t0 * dilation) % stride != 0) ++t0;
    const bool none = t0 == period || t0 >= kernel;
    c.taps.count[p] = none ? 0 : (kernel - t0 - 1) / period + 1;
    c.taps.first[p] = none ? 0 : (r + s.padding[a] - t0 * dilation) / stride;
    c.taps.gap[p] = -(dilation / common);
    if (!none) first_tap += t0 * weight.strides[2 + a];
    c.weights.tap[p] = period * weight.strides[2 + a];
    c.out.size[p] = std::max<int64_t>(0, (x.shape[2 + a] - r + stride - 1) / stride);
    first_position += r * x.strides[2 + a];
    c.out.space[p] = stride * x.strides[2 + a];
  }
  c.weights.data = element_at(weight.data, weight.dtype, first_tap);
  c.out.data = element_at(x.data, x.dtype, first_position);
  return c;
}

}  // namespace mx::detail
