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
#  if HWY_TARGET <= HWY_AVX3
    if (i < n)
      hn::BlendedStore(hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(n - i)), d, from + i),
                       hn::FirstN(d, static_cast<size_t>(n - i)), d, to + i);
#  else
    for (; i < n; ++i) to[i] = from[i];
#  endif
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
  if (HWY_TARGET <= HWY_AVX3 && i < n) {
    const auto left = static_cast<size_t>(n - i), read = 2 * left - 1, most = static_cast<size_t>(kLanes<T>);
    const auto low = hn::MaskedLoad(hn::FirstN(d, std::min(read, most)), d, from + 2 * i);
    const auto high =
        read > most ? hn::MaskedLoad(hn::FirstN(d, read - most), d, from + 2 * i + kLanes<T>) : hn::Zero(d);
    hn::BlendedStore(hn::ConcatEven(d, high, low), hn::FirstN(d, left), d, to + i);
    return;
  }
#  endif
  for (; i < n; ++i) to[i] = from[2 * i];
}

/// The elements first, first + step, .. (n of them) of a row of an image. Those outside of the row are 0; the
/// others are [before, end). Made once for many rows, because it takes divisions.
struct RowPart {
  int64_t first, step, n, before, end;

  RowPart(int64_t the_first, int64_t the_step, int64_t count, int64_t size)
      : first(the_first), step(the_step), n(count) {
    before = std::clamp<int64_t>(first < 0 ? divide_up(-first, step) : 0, 0, n);
    end = std::clamp<int64_t>(first < size ? divide_up(size - first, step) : 0, before, n);
  }
};

template <class T, class S>
HWY_INLINE void copy_row(T* HWY_RESTRICT to, const S* row, int64_t space, const RowPart& part) {
  for (int64_t i = 0; i < part.before; ++i) to[i] = T{0};
  for (int64_t i = part.end; i < part.n; ++i) to[i] = T{0};
  if (part.end <= part.before) return;
  to += part.before;
  const int64_t n = part.end - part.before, stride = part.step * space;
  const S* const from = row + (part.first + part.before * part.step) * space;
  if constexpr (std::is_same_v<T, S>) {
    if (stride == 1) return copy_short(to, from, n);
    if (stride == 2) return copy_every_second(to, from, n);
  }
  read_run(to, from, stride, n);
}

/// Copies one residue of one channel. `first`: the coordinates of the buffer's first element.
template <class T, class S>
void copy_plane(const PatchBuffer& b, T* buffer, const S* image, const Spatial& size, const Spatial& space,
                const Spatial& first, const RowPart& part) {
  for (int64_t d = 0, d_residue = 0; d < b.extent[0]; ++d) {
    const bool d_used = b.used[0][static_cast<size_t>(d_residue)];
    if (++d_residue == b.step[0]) d_residue = 0;
    if (!d_used) continue;
    for (int64_t h = 0, h_residue = 0; h < b.extent[1]; ++h) {
      const bool h_used = b.used[1][static_cast<size_t>(h_residue)];
      if (++h_residue == b.step[1]) h_residue = 0;
      if (!h_used) continue;
      T* const to = buffer + b.row(d, h);
      const int64_t x0 = first[0] + d, x1 = first[1] + h;
      if (x0 < 0 || x0 >= size[0] || x1 < 0 || x1 >= size[1]) {
        for (int64_t i = 0; i < b.run; ++i) to[i] = T{0};
      } else {
        copy_row(to, image + x0 * space[0] + x1 * space[1], space[2], part);
      }
    }
  }
}

/// Copies channels of an image to a buffer. `first`: the coordinates of the buffer's first element.
template <class T, class S>
void copy_channels(const PatchBuffer& b, T* buffer, const S* image, int64_t channel_stride, int64_t channels,
                   const Spatial& size, const Spatial& space, const Spatial& first) {
  for (int64_t residue = 0; residue < b.step[2]; ++residue) {
    const int64_t slot = b.slot[static_cast<size_t>(residue)];
    if (slot < 0) continue;
    const RowPart part(first[2] + residue, b.step[2], b.run, size[2]);
    for (int64_t ch = 0; ch < channels; ++ch)
      copy_plane(b, buffer + ch * b.plane + slot * b.run, image + ch * channel_stride, size, space, first,
                 part);
  }
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // MX_CONVOLUTION_IMAGE_INL_H_
