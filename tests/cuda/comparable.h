// Tells whether a result of a CUDA kernel can be compared with that of the CPU.
#pragma once

#include <set>
#include <string>

#include "tests/operators/registry_support.h"

namespace mx::test {

/// Returns false if several results are right for inputs in this layout. Broadcast inputs are matrices of
/// rank 1, whose orthogonal vectors are not unique and whose cofactors are rounding errors; or they disagree
/// with other inputs in their values.
inline bool is_comparable(const Operator& op, Layout layout) {
  static const std::set<std::string> not_unique = {"linalg_cofactor", "linalg_eig", "linalg_eigh",
                                                   "linalg_qr", "linalg_svd"};
  if (layout != Layout::broadcast) return true;
  return !op.sized_by_values && !op.partial && not_unique.count(op.name()) == 0;
}

}  // namespace mx::test
