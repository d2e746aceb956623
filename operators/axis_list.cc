#include "operators/axis_list.h"

#include "engine/base/check.h"

namespace mx::detail {

AxisList::AxisList(const Shape& axes) : rank_(static_cast<int16_t>(axes.rank())) {
  for (int i = 0; i < axes.rank(); ++i) {
    MX_CHECK(axes[i] >= INT16_MIN && axes[i] <= INT16_MAX, InvalidArgument,
             "[axes] expected an axis of an array of at most ", kMaxRank, " dimensions, got ", axes[i]);
    axes_[i] = static_cast<int16_t>(axes[i]);
  }
}

AxisList::operator Shape() const {
  Shape axes = Shape::filled(rank_, 0);
  for (int i = 0; i < rank_; ++i) axes[i] = axes_[i];
  return axes;
}

}  // namespace mx::detail
