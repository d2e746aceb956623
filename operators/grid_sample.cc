#include "operators/grid_sample.h"

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "operators/compare.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/indexing.h"
#include "operators/matmul.h"
#include "operators/select.h"
#include "operators/shape_ops.h"

namespace mx {
namespace {

/// Returns positions along an axis, in pixels, from those from -1 to 1.
NDArray in_pixels(const NDArray& at, int64_t size, const GridSampleOptions& options) {
  const auto n = static_cast<double>(size);
  const NDArray known = where(isnan(at), -1, at);
  const NDArray pixels = options.align_corners ? (known + 1) * ((n - 1) / 2) : ((known + 1) * n - 1) * 0.5;
  // With zeros, positions from one pixel outside on read nothing. The limits keep infinities from the
  // conversion to integers.
  return options.padding_mode == "border" ? clip(pixels, 0, n - 1) : clip(pixels, -2, n + 1);
}

/// The pixels of one neighbour of each position.
class Pixels {
 public:
  Pixels(const NDArray& x, const NDArray& grid)
      : flat_(x.reshape({x.size(0), x.size(1), -1})),
        height_(x.size(2)),
        width_(x.size(3)),
        rows_(grid.size(1)),
        columns_(grid.size(2)) {}

  /// Returns x at these whole positions (images, rows, columns), as (images, channels, rows, columns); zeros
  /// outside.
  NDArray at(const NDArray& row, const NDArray& column) const {
    const NDArray inside = (row >= 0) & (row < height_) & (column >= 0) & (column < width_);
    const NDArray index = clip(row, 0, height_ - 1).to(i64) * width_ + clip(column, 0, width_ - 1).to(i64);
    const NDArray values = take_along_axis(flat_, index.reshape({index.size(0), 1, -1}), 2)
                               .reshape({flat_.size(0), flat_.size(1), rows_, columns_});
    return where(inside.expand_dims(1), values, 0);
  }

 private:
  NDArray flat_;
  int64_t height_, width_, rows_, columns_;
};

void check_grid_sample(const NDArray& x, const NDArray& grid, const GridSampleOptions& options) {
  MX_CHECK(
      x.rank() == 4 && grid.rank() == 4 && grid.size(3) == 2 && grid.size(0) == x.size(0), InvalidArgument,
      "[grid_sample] expected x (images, channels, height, width) and a grid (images, rows, columns, 2), "
      "got shapes ",
      x.shape(), " and ", grid.shape());
  MX_CHECK(x.size(2) > 0 && x.size(3) > 0, InvalidArgument,
           "[grid_sample] expected images with pixels, got shape ", x.shape());
  MX_CHECK(is_floating(x.dtype()) && is_floating(grid.dtype()), InvalidArgument,
           "[grid_sample] expected floating-point types, got ", x.dtype(), " and ", grid.dtype());
  MX_CHECK(options.mode == "bilinear" || options.mode == "nearest", InvalidArgument,
           "[grid_sample] expected the mode bilinear or nearest, got \"", options.mode, '"');
  MX_CHECK(options.padding_mode == "zeros" || options.padding_mode == "border", InvalidArgument,
           "[grid_sample] expected the padding mode zeros or border, got \"", options.padding_mode, '"');
}

}  // namespace

NDArray grid_sample(const Arg& x, const NDArray& grid, const GridSampleOptions& options) try {
  const NDArray& a = x.array;
  check_grid_sample(a, grid, options);
  const DType type = grid.dtype() == f64 ? f64 : f32;
  const auto positions = [&](int64_t which, int64_t size) {
    return in_pixels(grid.slice(3, Slice{which, which + 1}).squeeze(3).to(type), size, options);
  };
  const NDArray column = positions(0, a.size(3)), row = positions(1, a.size(2));
  const Pixels pixels(a, grid);
  if (options.mode == "nearest") return pixels.at(round(row.detach()), round(column.detach()));
  const NDArray top = floor(row.detach()), left = floor(column.detach());
  const NDArray down = row - top, right = column - left, up = 1 - down, to_left = 1 - right;
  const auto part = [&](const NDArray& at_row, const NDArray& at_column, const NDArray& weight) {
    return pixels.at(at_row, at_column) * weight.expand_dims(1);
  };
  const NDArray y = part(top, left, up * to_left) + part(top, left + 1, up * right) +
                    part(top + 1, left, down * to_left) + part(top + 1, left + 1, down * right);
  return y.dtype() == a.dtype() ? y : y.to(a.dtype());
} catch (const Error&) {
  detail::rethrow_at(x.where);
}

NDArray affine_grid(const Arg& theta, const Shape& size, bool align_corners) try {
  const NDArray& map = theta.array;
  MX_CHECK(map.rank() == 3 && map.size(1) == 2 && map.size(2) == 3 && is_floating(map.dtype()),
           InvalidArgument, "[affine_grid] expected floating-point maps (images, 2, 3), got ", map.dtype(),
           " of shape ", map.shape());
  MX_CHECK(size.rank() == 4 && size[0] == map.size(0) && size[2] > 0 && size[3] > 0, InvalidArgument,
           "[affine_grid] expected a size (images, channels, rows, columns) for ", map.size(0), " maps, got ",
           size);
  // The positions of n pixels.
  const auto line = [&](int64_t n) {
    const NDArray i = arange(n, map.dtype(), map.context());
    const auto count = static_cast<double>(n);
    if (!align_corners) return (i * 2 + 1) / count - 1;
    return n == 1 ? i : i * (2 / (count - 1)) - 1;
  };
  const int64_t rows = size[2], columns = size[3];
  const NDArray across = line(columns).reshape({1, columns}).broadcast_to({rows, columns});
  const NDArray along = line(rows).reshape({rows, 1}).broadcast_to({rows, columns});
  const NDArray points = stack({across, along, ones_like(across)}, 2).reshape({1, rows * columns, 3});
  return matmul(points, map.swap_axes(1, 2)).reshape({size[0], rows, columns, 2});
} catch (const Error&) {
  detail::rethrow_at(theta.where);
}

}  // namespace mx
