// Limits for direct calls: the number of elements up to which the calling thread computes an elementwise
// function itself. See docs/operators.md.
#pragma once

#include <cstdint>

#include "operators/kernels/binary.h"
#include "operators/kernels/unary.h"

namespace mx::detail {

struct ElementCost {
  /// The number of elements that one thread computes in about two microseconds, for the slowest type other
  /// than f64; at most 4096. For Kernel::direct_work.
  int64_t direct_elements;
  /// The cost of an f64 element in such elements. For Operator::work.
  int64_t f64_weight;
};

ElementCost element_cost(kernels::UnaryOp op);
ElementCost element_cost(kernels::BinaryOp op);

}  // namespace mx::detail
