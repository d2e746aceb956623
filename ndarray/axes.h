// Axes: an argument that lists the dimensions over which a reduction runs.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <span>
#include <vector>

#include "ndarray/shape.h"

namespace mx {

/// One axis or several: sum(x, 0), sum(x, {0, 2}). None means all: sum(x).
class Axes : public Shape {
 public:
  Axes() = default;
  template <detail::IntegerNumber T>
  Axes(T axis) : Shape{axis} {}
  Axes(IntArg axis) : Shape{axis} {}
  Axes(std::initializer_list<Extent> axes) : Shape(axes) {}
  Axes(std::span<const int64_t> axes) : Shape(axes) {}
  Axes(const std::vector<int64_t>& axes) : Shape(axes) {}
  Axes(const Shape& axes) : Shape(axes) {}
};

}  // namespace mx
