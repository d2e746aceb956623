// Each convolution operator is linear in both operands, so its gradients are the other two operators.
#include "operators/convolution_gradient.h"

#include <vector>

#include "operators/convolution.h"
#include "operators/convolution_shape.h"
#include "operators/reduce.h"

namespace mx::detail {
namespace {

template <class A>
ConvolutionSizes sizes_of(const A& attrs, const Shape& x) {
  return {x.rank() - 2, attrs.stride, attrs.padding, attrs.dilation, attrs.groups};
}

/// The elements that x has at its end beyond what a convolution to the size of dy needs.
PerAxis output_padding(const ConvolutionSizes& s, const Shape& x, const Shape& dy, const Shape& weight) {
  std::vector<int64_t> more;
  for (int a = 0; a < s.axes; ++a) more.push_back(x[2 + a] - s.backward(a, dy[2 + a], weight[2 + a]));
  return PerAxis(more);
}

PerAxis kernel_of(const Shape& weight) {
  return PerAxis(std::span<const int64_t>(weight.begin() + 2, weight.end()));
}

/// y without the last positions, so that its spatial sizes are those of `shape`.
NDArray narrowed(NDArray y, const Shape& shape) {
  for (int a = 2; a < shape.rank(); ++a)
    if (y.shape()[a] != shape[a]) y = y.slice(a, Slice{0, shape[a]});
  return y;
}

NDArray sum_over_positions(const NDArray& head) {
  Shape axes{0};
  for (int a = 2; a < head.rank(); ++a) axes.push_back(a);
  return sum(head, axes);
}

template <class A>
NDArray weights(const NDArray& x, const NDArray& dy, const Shape& weight, const A& a) {
  return convolution_weights(x, dy, {kernel_of(weight), a.stride, a.padding, a.dilation, a.groups});
}

template <class A>
NDArray transposed(const NDArray& dy, const NDArray& weight, const Shape& x, const A& a) {
  const PerAxis more = output_padding(sizes_of(a, x), x, dy.shape(), weight.shape());
  return convolution_transpose(dy, weight, {a.stride, a.padding, a.dilation, a.groups, more});
}

template <class A>
NDArray forward(const NDArray& x, const NDArray& weight, const A& a) {
  return convolution(x, weight, {a.stride, a.padding, a.dilation, a.groups});
}

}  // namespace

void gradient_convolution(GradientContext& g) {
  const auto& a = g.attr<ConvolutionAttrs>();
  if (g.wanted(0)) g.set(0, transposed(g.head(), g.input(1), g.input_shape(0), a));
  if (g.wanted(1)) g.set(1, weights(g.input(0), g.head(), g.input_shape(1), a));
  if (g.inputs() == 3 && g.wanted(2)) g.set(2, sum_over_positions(g.head()));
}

void gradient_convolution_transpose(GradientContext& g) {
  const auto& a = g.attr<ConvolutionTransposeAttrs>();
  if (g.wanted(0)) g.set(0, narrowed(forward(g.head(), g.input(1), a), g.input_shape(0)));
  if (g.wanted(1)) g.set(1, weights(g.head(), g.input(0), g.input_shape(1), a));
  if (g.inputs() == 3 && g.wanted(2)) g.set(2, sum_over_positions(g.head()));
}

void gradient_convolution_weights(GradientContext& g) {
  const auto& a = g.attr<ConvolutionWeightsAttrs>();
  if (g.wanted(0)) g.set(0, transposed(g.input(1), g.head(), g.input_shape(0), a));
  if (g.wanted(1)) g.set(1, narrowed(forward(g.input(0), g.head(), a), g.input_shape(1)));
}

}  // namespace mx::detail
