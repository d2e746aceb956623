// Copies the parts of several images that lie at one place, so that a vector holds one position of each.
// Included once per instruction set.
#if defined(MX_CONVOLUTION_GATHER_INL_H_) == defined(HWY_TARGET_TOGGLE)
#  ifdef MX_CONVOLUTION_GATHER_INL_H_
#    undef MX_CONVOLUTION_GATHER_INL_H_
#  else
#    define MX_CONVOLUTION_GATHER_INL_H_
#  endif

#  include <algorithm>
#  include <cstdint>
#  include <type_traits>

#  include "operators/kernels/convolution_image-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

/// The part of a channel's plane that begins at `first`, which may lie outside of the images. The elements
/// outside are 0.
struct PlanePart {
  Spatial size, space;  // of the images
  Spatial first, extent;
};

/// Gathers parts of planes of up to kLanes<T> images. `image_stride` is the distance of the images.
template <class S, class T>
class Gather {
 public:
  /// Elements of `spare` for runs of `longest` positions.
  static constexpr int64_t spare_elements(int64_t longest) { return kL * (longest + kL); }

  Gather(int64_t images, int64_t image_stride, T* spare)
      : images_(images), image_stride_(image_stride), spare_(spare) {}

  /// Writes a vector for each position of the part. `from` is the element of the first image at (0, 0, 0).
  void plane(const S* from, const PlanePart& p, T* to) const {
    const RowPart row(p.first[2], 1, p.extent[2], p.size[2]);
    const int64_t inside = row.end - row.before;
    // Whole rows that follow each other in the images and in the part are one run.
    const bool joined = row.before == 0 && row.end == p.extent[2] && p.extent[2] == p.size[2] &&
                        p.space[2] == 1 && p.space[1] == p.size[2];
    for (int64_t d = 0; d < p.extent[0]; ++d)
      for (int64_t h = 0; h < p.extent[1];) {
        T* const at = to + (d * p.extent[1] + h) * p.extent[2] * kL;
        const int64_t x0 = p.first[0] + d, x1 = p.first[1] + h;
        if (x0 < 0 || x0 >= p.size[0] || x1 < 0 || x1 >= p.size[1] || inside <= 0) {
          std::fill_n(at, p.extent[2] * kL, T{0});
          ++h;
          continue;
        }
        const int64_t rows = joined ? std::min(p.extent[1] - h, p.size[1] - x1) : 1;
        std::fill_n(at, row.before * kL, T{0});
        run(from + x0 * p.space[0] + x1 * p.space[1] + (row.first + row.before) * p.space[2], p.space[2],
            rows * inside, at + row.before * kL);
        std::fill_n(at + row.end * kL, (p.extent[2] - row.end) * kL, T{0});
        h += rows;
      }
  }

 private:
  static constexpr int64_t kL = kLanes<T>;

  /// Gathers `n` positions that are `step` elements apart.
  void run(const S* from, int64_t step, int64_t n, T* to) const {
    if constexpr (std::is_same_v<S, T>) {
      if (step == 1 && images_ == kL) return transpose_columns(to, kL, from, image_stride_, n);
    }
    const int64_t pitch = n + kL;
    for (int64_t i = 0; i < kL; ++i) {
      if (i < images_) {
        read_run(spare_ + i * pitch, from + i * image_stride_, step, n);
      } else {
        std::fill_n(spare_ + i * pitch, n, T{0});
      }
    }
    transpose_columns(to, kL, spare_, pitch, n);
  }

  const int64_t images_, image_stride_;
  T* const spare_;
};

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // MX_CONVOLUTION_GATHER_INL_H_
