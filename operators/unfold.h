// Unfold and fold: the windows of images as columns, as torch.nn.functional.unfold and fold define them.
//
//   NDArray columns = unfold(x, {.kernel = 3, .padding = 1});        // (n, channels * 9, windows)
//   NDArray y = matmul(weight.reshape({out, -1}), columns);         // a convolution
//
// x is (images, channels, height, width); the functions also take one image without the first dimension. Row
// (c, i, j) of the columns has element (i, j) of channel c of all windows; windows are in row-major order of
// their positions. fold() is the transpose of unfold(): it adds up the elements of the windows, so
// fold(unfold(x)) is x times the number of windows in which each element is. Each is the gradient of the
// other. f16 and bf16 are added in f32 and rounded once; sums are in the row-major order of the windows'
// elements, so they have the same bits at any number of threads.
//
// Types are floating point. All throw InvalidArgument for other types, for numbers that no window has, for a
// window that is larger than the padded image, and fold() also for columns that do not fit the size.
#pragma once

#include "operators/operator.h"
#include "operators/per_axis.h"

namespace mx {

struct UnfoldAttrs {
  PerAxis kernel = 1;
  PerAxis dilation = 1;
  PerAxis padding = 0;
  PerAxis stride = 1;
  template <class V>
  static void fields(V&& v) {
    v("kernel", &UnfoldAttrs::kernel, "height and width of a window");
    v("dilation", &UnfoldAttrs::dilation, "distance between the elements of a window, per axis");
    v("padding", &UnfoldAttrs::padding, "zeros added on both sides, per axis");
    v("stride", &UnfoldAttrs::stride, "distance between windows, per axis");
  }
};

/// fold's attributes: those of the unfold() that it transposes, and the size of the images.
struct FoldAttrs {
  PerAxis size = 1;
  PerAxis kernel = 1;
  PerAxis dilation = 1;
  PerAxis padding = 0;
  PerAxis stride = 1;
  template <class V>
  static void fields(V&& v) {
    v("size", &FoldAttrs::size, "height and width of the result");
    v("kernel", &FoldAttrs::kernel, "height and width of a window");
    v("dilation", &FoldAttrs::dilation, "distance between the elements of a window, per axis");
    v("padding", &FoldAttrs::padding, "zeros that unfold() adds on both sides, per axis");
    v("stride", &FoldAttrs::stride, "distance between windows, per axis");
  }
};

/// Returns (images, channels * kernel[0] * kernel[1], windows).
NDArray unfold(const Arg& x, const UnfoldAttrs& attrs);
/// Returns (images, channels, size[0], size[1]).
NDArray fold(const Arg& columns, const FoldAttrs& attrs);

}  // namespace mx
