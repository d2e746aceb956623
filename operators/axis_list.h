// AxisList: a compact list of axes for attributes. Internal.
//
// A Shape takes 104 bytes, because sizes need 64 bits each. Attrs stores attributes of up to 48 bytes without
// an allocation. Axes need only 16 bits each, so with an AxisList the attributes of a reduction fit.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>

#include "ndarray/attrs.h"
#include "ndarray/shape.h"

namespace mx::detail {

class AxisList {
 public:
  AxisList() = default;
  /// Throws InvalidArgument for a number that does not fit 16 bits; no array has such an axis.
  AxisList(const Shape& axes);
  AxisList(std::initializer_list<int64_t> axes)
      : AxisList(Shape(std::span<const int64_t>(axes.begin(), axes.size()))) {}

  operator Shape() const;
  int rank() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  int64_t operator[](int i) const { return axes_[i]; }

 private:
  int16_t rank_ = 0;
  int16_t axes_[kMaxRank]{};
};

// Makes an AxisList usable as a field of attributes; other code sees it as a Shape.
inline AttrValue attr_to_value(const AxisList& value) { return attr_to_value(Shape(value)); }
inline void attr_from_value(AxisList& target, const AttrValue& value, const char* name) {
  Shape axes;
  attr_from_value(axes, value, name);
  target = AxisList(axes);
}
template <>
constexpr const char* attr_type_name<AxisList>() {
  return attr_type_name<Shape>();
}

}  // namespace mx::detail
