#include "nn/data/warp.h"

#include <algorithm>
#include <cstring>

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/data/warp.cc"
#include <hwy/foreach_target.h>
// Must follow foreach_target.h, which includes this file once per target.
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mx::data::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

using Floats = hn::ScalableTag<float>;
using Places = hn::RebindToSigned<Floats>;

/// Computes all rows of the target. `source` has a border of `fill`: one pixel before and two after each row
/// and each column. So every position clamped to the border has four pixels around it.
void warp_rows(float* target, const float* source, int64_t height, int64_t width, const double* matrix) {
  const Floats d;
  const Places di;
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t pitch = width + 3;
  const auto zero = hn::Zero(d);
  const auto most_x = hn::Set(d, static_cast<float>(width + 1)),
             most_y = hn::Set(d, static_cast<float>(height + 1));
  const auto step_x = hn::Set(d, static_cast<float>(matrix[0])),
             step_y = hn::Set(d, static_cast<float>(matrix[3]));
  const auto row = hn::Set(di, static_cast<int32_t>(pitch));
  for (int64_t y = 0; y < height; ++y) {
    const auto row_y = static_cast<double>(y);
    // + 1: positions count from the first pixel of the border.
    const auto first_x = hn::Set(d, static_cast<float>(matrix[1] * row_y + matrix[2] + 1)),
               first_y = hn::Set(d, static_cast<float>(matrix[4] * row_y + matrix[5] + 1));
    for (int64_t x = 0; x < width; x += lanes) {
      const auto column = hn::Iota(d, static_cast<float>(x));
      const auto at_x = hn::Min(hn::Max(hn::MulAdd(step_x, column, first_x), zero), most_x);
      const auto at_y = hn::Min(hn::Max(hn::MulAdd(step_y, column, first_y), zero), most_y);
      const auto ix = hn::ConvertTo(di, at_x), iy = hn::ConvertTo(di, at_y);
      const auto wx = hn::Sub(at_x, hn::ConvertTo(d, ix)), wy = hn::Sub(at_y, hn::ConvertTo(d, iy));
      const auto place = hn::Add(hn::Mul(iy, row), ix);
      const auto a = hn::GatherIndex(d, source, place), b = hn::GatherIndex(d, source + 1, place);
      const auto c = hn::GatherIndex(d, source + pitch, place),
                 e = hn::GatherIndex(d, source + pitch + 1, place);
      const auto above = hn::MulAdd(wx, hn::Sub(b, a), a), below = hn::MulAdd(wx, hn::Sub(e, c), c);
      const auto value = hn::MulAdd(wy, hn::Sub(below, above), above);
      float* const to = target + y * width + x;
      if (width - x >= lanes) {
        hn::StoreU(value, d, to);
      } else {
        hn::BlendedStore(value, hn::FirstN(d, static_cast<size_t>(width - x)), d, to);
      }
    }
  }
}

}  // namespace mx::data::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::data {

HWY_EXPORT(warp_rows);

void warp_plane(float* target, const Tensor& source, const double* matrix, float fill, float* scratch) {
  const int64_t height = source.shape[0], width = source.shape[1], pitch = width + 3;
  if (height == 0 || width == 0) return;
  const int64_t down = source.strides[0], right = source.strides[1];
  std::fill_n(scratch, pitch, fill);
  for (int64_t y = 0; y < height; ++y) {
    const float* const from = source.as<const float>() + y * down;
    float* const to = scratch + (y + 1) * pitch;
    to[0] = fill;
    if (right == 1) {
      std::memcpy(to + 1, from, static_cast<size_t>(width) * sizeof(float));
    } else {
      for (int64_t x = 0; x < width; ++x) to[1 + x] = from[x * right];
    }
    to[width + 1] = to[width + 2] = fill;
  }
  std::fill_n(scratch + (height + 1) * pitch, 2 * pitch, fill);
  HWY_DYNAMIC_DISPATCH(warp_rows)(target, scratch, height, width, matrix);
}

}  // namespace mx::data
#endif
