// Pooling: the largest element or the mean of windows of images, in one to three spatial dimensions.
//
// x is (images, channels, spatial...) as in PyTorch; the functions also take one image without the first
// dimension. Types are floating point. All throw InvalidArgument for other types, for sizes that do not fit,
// for a window that is larger than the padded image, and for a padding of more than half of the window; the
// message names the numbers.
#pragma once

#include <cstdint>

#include "operators/operator.h"
#include "operators/per_axis.h"

namespace mx {

struct MaxPoolAttrs {
  PerAxis kernel = 1;
  PerAxis stride = 0;  ///< 0: the kernel
  PerAxis padding = 0;
  PerAxis dilation = 1;
  bool ceil_mode = false;  ///< true: also windows that reach beyond the end of the image
  template <class V>
  static void fields(V&& v) {
    v("kernel", &MaxPoolAttrs::kernel, "the sizes of the window");
    v("stride", &MaxPoolAttrs::stride, "the distance between windows, per spatial axis; 0: the kernel");
    v("padding", &MaxPoolAttrs::padding, "elements of -infinity added on both sides, per spatial axis");
    v("dilation", &MaxPoolAttrs::dilation, "the distance between elements of a window, per spatial axis");
    v("ceil_mode", &MaxPoolAttrs::ceil_mode, "rounds the number of windows up");
  }
};

struct AvgPoolAttrs {
  PerAxis kernel = 1;
  PerAxis stride = 0;  ///< 0: the kernel
  PerAxis padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;
  int64_t divisor_override = 0;  ///< 0: the number of elements
  template <class V>
  static void fields(V&& v) {
    v("kernel", &AvgPoolAttrs::kernel, "the sizes of the window");
    v("stride", &AvgPoolAttrs::stride, "the distance between windows, per spatial axis; 0: the kernel");
    v("padding", &AvgPoolAttrs::padding, "zeros added on both sides, per spatial axis");
    v("ceil_mode", &AvgPoolAttrs::ceil_mode, "rounds the number of windows up");
    v("count_include_pad", &AvgPoolAttrs::count_include_pad, "counts the zeros of the padding as elements");
    v("divisor_override", &AvgPoolAttrs::divisor_override,
      "divides the sums; 0: the number of elements does");
  }
};

/// avg_pool_backward's attributes: those of the pooling, and the spatial sizes of its input.
struct AvgPoolBackwardAttrs {
  PerAxis size = 1;
  PerAxis kernel = 1;
  PerAxis stride = 0;
  PerAxis padding = 0;
  bool ceil_mode = false;
  bool count_include_pad = true;
  int64_t divisor_override = 0;
  template <class V>
  static void fields(V&& v) {
    v("size", &AvgPoolBackwardAttrs::size, "the spatial sizes of the pooling's input");
    v("kernel", &AvgPoolBackwardAttrs::kernel, "that of the pooling");
    v("stride", &AvgPoolBackwardAttrs::stride, "that of the pooling");
    v("padding", &AvgPoolBackwardAttrs::padding, "that of the pooling");
    v("ceil_mode", &AvgPoolBackwardAttrs::ceil_mode, "that of the pooling");
    v("count_include_pad", &AvgPoolBackwardAttrs::count_include_pad, "that of the pooling");
    v("divisor_override", &AvgPoolBackwardAttrs::divisor_override, "that of the pooling");
  }
};

struct PoolSizeAttrs {
  PerAxis size = 1;
  template <class V>
  static void fields(V&& v) {
    v("size", &PoolSizeAttrs::size, "the spatial sizes of the result");
  }
};

struct MaxPool {
  NDArray values;
  NDArray indices;  ///< i64: the position in the plane, counted in row-major order
};

/// The largest element of each window. Of equal elements the index is that of the first; a NaN is larger than
/// any number.
MaxPool max_pool_with_indices(const Arg& x, const MaxPoolAttrs& attrs);
NDArray max_pool(const Arg& x, const MaxPoolAttrs& attrs);
/// d(loss)/dx of a pooling with these indices: an array with these spatial sizes, in which each element of dy
/// is added at its index. An index out of range is found when the operation runs: waiting for the result then
/// throws InvalidArgument.
NDArray max_pool_backward(const Arg& dy, const NDArray& indices, const PerAxis& size);
/// The partial inverse of max_pool_with_indices: zeros, with each element of x at its index.
NDArray max_unpool(const Arg& x, const NDArray& indices, const PerAxis& size);

/// The mean of each window.
NDArray avg_pool(const Arg& x, const AvgPoolAttrs& attrs);
NDArray avg_pool_backward(const Arg& dy, const AvgPoolBackwardAttrs& attrs);

/// Pooling to these spatial sizes: window o of n along an axis of size s is [floor(o s / n), ceil((o + 1) s /
/// n)).
NDArray adaptive_avg_pool(const Arg& x, const PerAxis& size);
NDArray adaptive_avg_pool_backward(const Arg& dy, const PerAxis& size);
MaxPool adaptive_max_pool_with_indices(const Arg& x, const PerAxis& size);
NDArray adaptive_max_pool(const Arg& x, const PerAxis& size);

/// Pooling of all positions: the result has spatial sizes of 1.
NDArray global_avg_pool(const Arg& x);
NDArray global_max_pool(const Arg& x);

/// The p-norm of each window, without absolute values: (sum of x^p)^(1/p), p > 0. Takes kernel, stride and
/// ceil_mode of `attrs`, as PyTorch does. Throws InvalidArgument if another one differs from its default.
NDArray lp_pool(const Arg& x, RealArg p, const AvgPoolAttrs& attrs);

}  // namespace mx
