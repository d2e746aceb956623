// How many elements of an elementwise function the caller may compute itself: see docs/operators.md.
#pragma once

#include <cstdint>

#include "operators/kernels/binary.h"
#include "operators/kernels/unary.h"

namespace mx::detail {

struct ElementCost {
  /// Elements that take about two microseconds on one thread, of the slowest type other than f64; at most
  /// 4096. (Kernel::direct_work)
  int64_t direct_elements;
  /// As how many of them an element of f64 counts (Operator::work).
  int64_t f64_weight;
};

ElementCost element_cost(kernels::UnaryOp op);
ElementCost element_cost(kernels::BinaryOp op);

}  // namespace mx::detail
