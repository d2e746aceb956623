// Which results of a CUDA kernel can be compared with those of the CPU.
#pragma once

#include <string>

#include "tests/operators/registry_support.h"

namespace mx::test {

/// Returns false if several results are right for inputs in this layout. Broadcast inputs are matrices of
/// rank 1, whose orthogonal vectors are not unique, or disagree with other inputs in their values.
inline bool is_comparable(const Operator& op, Layout layout) {
  if (layout != Layout::broadcast) return true;
  const std::string name = op.name();
  return !op.sized_by_values && !op.partial && name != "linalg_qr" && name != "linalg_eigh" &&
         name != "linalg_svd";
}

}  // namespace mx::test
