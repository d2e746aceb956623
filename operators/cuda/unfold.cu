// unfold and fold: one thread for each element of the result. A sum of fold is in the order of the CPU's.
#include "ndarray/cuda/element.cuh"
#include "operators/cuda_kernels.h"
#include "operators/kernels/unfold.h"
#include "operators/unfold.h"
#include "operators/unfold_axes.h"

namespace mx::cuda {
namespace {

constexpr int kUnfoldThreads = 256;

struct UnfoldPlan {
  kernels::UnfoldAxis height, width;
  int64_t channels;
  int64_t image[4], column[3];  // strides of both arrays
};

UnfoldPlan unfold_plan(const Tensor& image, const Tensor& columns, const kernels::UnfoldAxes& axes) {
  UnfoldPlan p{axes[0], axes[1], image.shape[1], {}, {}};
  for (int a = 0; a < 4; ++a) p.image[a] = image.strides[a];
  for (int a = 0; a < 3; ++a) p.column[a] = columns.strides[a];
  return p;
}

template <class Bits>
__global__ void __launch_bounds__(kUnfoldThreads)
    copy_windows(Bits* columns, const Bits* x, UnfoldPlan p, int64_t n) {
  for (int64_t at = global_index(); at < n; at += global_size()) {
    int64_t index = at;
    const int64_t ow = index % p.width.windows;
    index /= p.width.windows;
    const int64_t oh = index % p.height.windows;
    index /= p.height.windows;
    const int64_t j = index % p.width.kernel;
    index /= p.width.kernel;
    const int64_t i = index % p.height.kernel;
    index /= p.height.kernel;
    const int64_t c = index % p.channels, image = index / p.channels;
    const int64_t h = oh * p.height.stride - p.height.padding + i * p.height.dilation;
    const int64_t w = ow * p.width.stride - p.width.padding + j * p.width.dilation;
    const int64_t row = (c * p.height.kernel + i) * p.width.kernel + j, window = oh * p.width.windows + ow;
    const bool inside = h >= 0 && h < p.height.size && w >= 0 && w < p.width.size;
    columns[image * p.column[0] + row * p.column[1] + window * p.column[2]] =
        inside ? x[image * p.image[0] + c * p.image[1] + h * p.image[2] + w * p.image[3]] : Bits{0};
  }
}

/// The window whose element `i` is at `x` of the image, or -1.
__device__ inline int64_t window_at(const kernels::UnfoldAxis& axis, int64_t x, int64_t i) {
  const int64_t place = x + axis.padding - i * axis.dilation;
  if (place < 0 || place % axis.stride != 0) return -1;
  const int64_t window = place / axis.stride;
  return window < axis.windows ? window : -1;
}

template <class A>
__global__ void __launch_bounds__(kUnfoldThreads)
    sum_of_windows(Elements y, Elements columns, UnfoldPlan p, int64_t n) {
  for (int64_t at = global_index(); at < n; at += global_size()) {
    const int64_t w = at % p.width.size, h = at / p.width.size % p.height.size,
                  c = at / p.width.size / p.height.size % p.channels,
                  image = at / p.width.size / p.height.size / p.channels;
    A sum{0};
    for (int64_t i = 0; i < p.height.kernel; ++i) {
      const int64_t oh = window_at(p.height, h, i);
      if (oh < 0) continue;
      for (int64_t j = 0; j < p.width.kernel; ++j) {
        const int64_t ow = window_at(p.width, w, j);
        if (ow < 0) continue;
        const int64_t row = (c * p.height.kernel + i) * p.width.kernel + j;
        sum += load<A>(columns,
                       image * p.column[0] + row * p.column[1] + (oh * p.width.windows + ow) * p.column[2]);
      }
    }
    store(y, image * p.image[0] + c * p.image[1] + h * p.image[2] + w * p.image[3], sum);
  }
}

}  // namespace

void unfold(const KernelArgs& args) {
  const Tensor &columns = args.out[0], &x = args.in[0];
  const int64_t n = columns.numel();
  if (n == 0) return;
  const auto axes = detail::unfold_axes("unfold", args.attr<UnfoldAttrs>(), x.shape[2], x.shape[3]);
  const UnfoldPlan plan = unfold_plan(x, columns, axes);
  visit_size(x.dtype, [&](auto size) {
    using Bits = typename decltype(size)::type;
    if constexpr (sizeof(Bits) > 1)
      launch(stream_of(args), blocks_for(n, kUnfoldThreads, 1 << 16), kUnfoldThreads, 0, copy_windows<Bits>,
             columns.as<Bits>(), static_cast<const Bits*>(x.as<Bits>()), plan, n);
  });
}

void fold(const KernelArgs& args) {
  const Tensor &y = args.out[0], &columns = args.in[0];
  const int64_t n = y.numel();
  if (n == 0) return;
  const auto& attrs = args.attr<FoldAttrs>();
  const UnfoldPlan plan =
      unfold_plan(y, columns, detail::unfold_axes("fold", attrs, attrs.size[0], attrs.size[1]));
  visit_real(y.dtype, [&]<class A>() {
    launch(stream_of(args), blocks_for(n, kUnfoldThreads, 1 << 16), kUnfoldThreads, 0, sum_of_windows<A>,
           elements_of(y), elements_of(columns), plan, n);
  });
}

}  // namespace mx::cuda
