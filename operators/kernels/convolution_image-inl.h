// Copies parts of images into the order in which convolutions read them. Included once per instruction set.
#if defined(MX_CONVOLUTION_IMAGE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#  ifdef MX_CONVOLUTION_IMAGE_INL_H_
#    undef MX_CONVOLUTION_IMAGE_INL_H_
#  else
#    define MX_CONVOLUTION_IMAGE_INL_H_
#  endif

#  include <algorithm>
#  include <cstdint>
#  include <type_traits>

#  include "operators/kernels/convolution_plan.h"
#  include "operators/kernels/gemm_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

/// to[i] = from[i], inline for short runs; converts.
template <class T, class S>
HWY_INLINE void copy_short(T* HWY_RESTRICT to, const S* HWY_RESTRICT from, int64_t n) {
  if constexpr (std::is_same_v<T, S>) {
    const Lanes<T> d;
    int64_t i = 0;
    for (; i + kLanes<T> <= n; i += kLanes<T>) hn::StoreU(hn::LoadU(d, from + i), d, to + i);
    for (; i < n; ++i) to[i] = from[i];
  } else {
    read_run(to, from, 1, n);
  }
}

/// to[i] = from[2 * i].
template <class T>
HWY_INLINE void copy_every_second(T* HWY_RESTRICT to, const T* HWY_RESTRICT from, int64_t n) {
  int64_t i = 0;
#  if HWY_TARGET != HWY_SCALAR
  const Lanes<T> d;
  // The last element of the second vector is not needed, so it must not be read at the end of a row.
  for (; i + kLanes<T> < n; i += kLanes<T>) {
    const auto low = hn::LoadU(d, from + 2 * i), high = hn::LoadU(d, from + 2 * i + kLanes<T>);
    hn::StoreU(hn::ConcatEven(d, high, low), d, to + i);
  }
#  endif
  for (; i < n; ++i) to[i] = from[2 * i];
}

/// Copies the elements first, first + step, .. (n of them) of a row of `size` elements; those outside of the
/// row are 0.
template <class T, class S>
void copy_row(T* HWY_RESTRICT to, const S* row, int64_t space, int64_t size, int64_t first, int64_t step,
              int64_t n) {
  const int64_t before = std::clamp<int64_t>(first < 0 ? divide_up(-first, step) : 0, 0, n);
  const int64_t end = std::clamp<int64_t>(first < size ? divide_up(size - first, step) : 0, before, n);
  for (int64_t i = 0; i < before; ++i) to[i] = T{0};
  if (end > before) {
    const S* const from = row + (first + before * step) * space;
    if (step * space == 1) {
      copy_short(to + before, from, end - before);
    } else if (std::is_same_v<T, S> && step * space == 2) {
      if constexpr (std::is_same_v<T, S>) copy_every_second(to + before, from, end - before);
    } else {
      read_run(to + before, from, step * space, end - before);
    }
  }
  for (int64_t i = end; i < n; ++i) to[i] = T{0};
}

/// Copies one channel of an image to a buffer. `first`: the coordinates of the buffer's first element.
template <class T, class S>
void copy_channel(const PatchBuffer& b, T* to, const S* image, const Spatial& size, const Spatial& space,
                  const Spatial& first) {
  for (int64_t d = 0; d < b.extent[0]; ++d) {
    if (!b.used[0][static_cast<size_t>(d % b.step[0])]) continue;
    for (int64_t h = 0; h < b.extent[1]; ++h) {
      if (!b.used[1][static_cast<size_t>(h % b.step[1])]) continue;
      T* const row = to + b.row(d, h);
      const int64_t x0 = first[0] + d, x1 = first[1] + h;
      if (x0 < 0 || x0 >= size[0] || x1 < 0 || x1 >= size[1]) {
        std::fill_n(row, b.pitch, T{0});
        continue;
      }
      const S* const from = image + x0 * space[0] + x1 * space[1];
      for (int64_t residue = 0; residue < b.step[2]; ++residue) {
        const int64_t slot = b.slot[static_cast<size_t>(residue)];
        if (slot >= 0)
          copy_row(row + slot * b.run, from, space[2], size[2], first[2] + residue, b.step[2], b.run);
      }
    }
  }
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // MX_CONVOLUTION_IMAGE_INL_H_
