// How exact results of floating-point types have to be.
#pragma once

#include "ndarray/dtype.h"

namespace mx::test {

/// Returns how far a result computed in `type` may be from the exact one, relative to the largest magnitude
/// that occurs on the way; 0 for integers.
inline double tolerance(DType type) {
  switch (type) {
    case DType::f64:
      return 1e-12;
    case DType::f32:
      return 1e-5;
    case DType::f16:
      return 2e-3;
    case DType::bf16:
      return 1.6e-2;
    default:
      return 0;
  }
}

}  // namespace mx::test
