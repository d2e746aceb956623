#include "operators/kernels/unfold.h"

#include <algorithm>
#include <type_traits>

#include "ndarray/dtype.h"
#include "ndarray/kernels/parallel.h"
#include "operators/scratch.h"

namespace mx::kernels {
namespace {

constexpr int64_t kUnfoldGrain = 1 << 14;  // elements in a piece of a loop

int64_t unfold_grain(int64_t elements) {
  return std::max<int64_t>(1, kUnfoldGrain / std::max<int64_t>(elements, 1));
}

/// The windows whose element i is inside of the image.
struct InsideWindows {
  int64_t begin, end;
  InsideWindows(const UnfoldAxis& axis, int64_t i) {
    const int64_t before = axis.padding - i * axis.dilation;  // window o is at o * stride - before
    begin = before <= 0 ? 0 : std::min(axis.windows, (before + axis.stride - 1) / axis.stride);
    const int64_t room = axis.size + before;
    end = room <= 0 ? 0 : std::min(axis.windows, (room - 1) / axis.stride + 1);
    end = std::max(begin, end);
  }
};

template <class T>
void unfold_of(const Tensor& columns, const Tensor& x, const UnfoldAxes& axes) {
  const UnfoldAxis &height = axes[0], &width = axes[1];
  const int64_t channels = x.shape[1], rows = columns.shape[1];
  const int64_t step = columns.strides[2];
  const T* const from = static_cast<const T*>(x.data);
  T* const to = static_cast<T*>(columns.data);
  parallel_for(columns.shape[0] * rows, unfold_grain(columns.shape[2]), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      const int64_t image = row / rows, r = row % rows;
      const int64_t c = r / (height.kernel * width.kernel) % channels;
      const int64_t i = r / width.kernel % height.kernel, j = r % width.kernel;
      const InsideWindows inside_rows(height, i), inside(width, j);
      T* out = to + image * columns.strides[0] + r * columns.strides[1];
      for (int64_t oh = 0; oh < height.windows; ++oh, out += step * width.windows) {
        if (oh < inside_rows.begin || oh >= inside_rows.end) {
          for (int64_t ow = 0; ow < width.windows; ++ow) out[ow * step] = T(0);
          continue;
        }
        const int64_t h = oh * height.stride - height.padding + i * height.dilation;
        const T* const in = from + image * x.strides[0] + c * x.strides[1] + h * x.strides[2] +
                            (j * width.dilation - width.padding) * x.strides[3];
        const int64_t hop = width.stride * x.strides[3];
        for (int64_t ow = 0; ow < inside.begin; ++ow) out[ow * step] = T(0);
        for (int64_t ow = inside.begin; ow < inside.end; ++ow) out[ow * step] = in[ow * hop];
        for (int64_t ow = inside.end; ow < width.windows; ++ow) out[ow * step] = T(0);
      }
    }
  });
}

template <class T>
void sum_windows_of(const KernelArgs& args, const Tensor& y, const Tensor& columns, const UnfoldAxes& axes) {
  using C = std::conditional_t<std::is_same_v<T, double>, double, float>;
  const UnfoldAxis &height = axes[0], &width = axes[1];
  const int64_t channels = y.shape[1];
  const T* const from = static_cast<const T*>(columns.data);
  T* const to = static_cast<T*>(y.data);
  const int64_t work = width.size * height.kernel * width.kernel;
  parallel_for(y.shape[0] * channels * height.size, unfold_grain(work), [&](int64_t begin, int64_t end) {
    const Scratch memory(args, sizeof(C) * static_cast<size_t>(width.size));
    C* const sums = memory.as<C>();
    for (int64_t row = begin; row < end; ++row) {
      const int64_t h = row % height.size, c = row / height.size % channels,
                    image = row / height.size / channels;
      std::fill_n(sums, width.size, C(0));
      for (int64_t i = 0; i < height.kernel; ++i) {
        const int64_t place = h + height.padding - i * height.dilation;
        if (place < 0 || place % height.stride != 0 || place / height.stride >= height.windows) continue;
        const int64_t first = place / height.stride * width.windows;
        for (int64_t j = 0; j < width.kernel; ++j) {
          const InsideWindows inside(width, j);
          const T* const in = from + image * columns.strides[0] +
                              ((c * height.kernel + i) * width.kernel + j) * columns.strides[1] +
                              first * columns.strides[2];
          const int64_t left = j * width.dilation - width.padding;
          for (int64_t ow = inside.begin; ow < inside.end; ++ow)
            sums[ow * width.stride + left] += static_cast<C>(in[ow * columns.strides[2]]);
        }
      }
      T* const out = to + image * y.strides[0] + c * y.strides[1] + h * y.strides[2];
      for (int64_t w = 0; w < width.size; ++w) out[w * y.strides[3]] = static_cast<T>(sums[w]);
    }
  });
}

}  // namespace

void unfold(const Tensor& columns, const Tensor& x, const UnfoldAxes& axes) {
  if (columns.shape.numel() == 0) return;
  if (size_of(x.dtype) == 8)
    unfold_of<uint64_t>(columns, x, axes);
  else if (size_of(x.dtype) == 4)
    unfold_of<uint32_t>(columns, x, axes);
  else
    unfold_of<uint16_t>(columns, x, axes);
}

void fold(const KernelArgs& args, const Tensor& y, const Tensor& columns, const UnfoldAxes& axes) {
  if (y.shape.numel() == 0) return;
  if (y.dtype == f64)
    sum_windows_of<double>(args, y, columns, axes);
  else if (y.dtype == f32)
    sum_windows_of<float>(args, y, columns, axes);
  else if (y.dtype == f16)
    sum_windows_of<float16>(args, y, columns, axes);
  else
    sum_windows_of<bfloat16>(args, y, columns, axes);
}

}  // namespace mx::kernels
