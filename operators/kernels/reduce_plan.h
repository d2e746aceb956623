// The order in which a reduction walks its dimensions, the kept and the reduced ones. Of each kind,
// dimensions are merged if their layout in memory allows it, and ordered so that the smallest strides are
// innermost.
#pragma once

#include <cstdint>

#include "ndarray/tensor.h"

namespace mx::kernels {

/// Merged dimensions; number 0 is the innermost. There is at least one.
struct WalkedDims {
  int rank = 0;
  int64_t shape[kMaxRank];
  int64_t in[kMaxRank];   ///< strides of the input, in elements
  int64_t out[kMaxRank];  ///< strides of the result; 0 for reduced dimensions

  int64_t in_offset(int64_t index) const { return offset(index, in); }
  int64_t out_offset(int64_t index) const { return offset(index, out); }

 private:
  int64_t offset(int64_t index, const int64_t* strides) const {
    int64_t result = 0;
    for (int i = 0; i < rank - 1; ++i) {
      result += index % shape[i] * strides[i];
      index /= shape[i];
    }
    return result + index * strides[rank - 1];
  }
};

struct ReducePlan {
  WalkedDims kept, reduced;
  int64_t kept_count = 1, reduced_count = 1;
  int64_t in_offset = 0, out_offset = 0;  ///< of the first element in this order

  /// `axes` are normalised and ascending. out has the kept dimensions; reduced ones are missing or have size
  /// 1. With `ordered` the reduced dimensions keep row-major order, which argmax needs; otherwise strides
  /// decide.
  ReducePlan(const Tensor& in, const Tensor& out, const Shape& axes, bool ordered);

  /// Returns true if adjacent outputs should be computed together: if the reduced elements are further apart
  /// in memory than the outputs, and there are enough outputs to fill vectors.
  bool by_columns() const;
};

}  // namespace mx::kernels
