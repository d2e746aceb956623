// How the dimensions of a reduction are walked: those that stay and those that are reduced, each joined where
// memory allows and ordered so that the closest elements come first.
#pragma once

#include <cstdint>

#include "ndarray/tensor.h"

namespace mx::kernels {

/// Joined dimensions; number 0 is the innermost. There is always one.
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
  int64_t in_offset = 0, out_offset = 0;  ///< of the first element in walking order

  /// `axes` are normalised and ascending; out has the kept dimensions, with or without ones for the others.
  /// `ordered` keeps the reduced dimensions in row-major order, which argmax needs; otherwise memory decides.
  ReducePlan(const Tensor& in, const Tensor& out, const Shape& axes, bool ordered);

  /// Whether outputs that lie side by side should be computed together: when the reduced elements are further
  /// apart than they, and there are enough of them to fill vectors.
  bool by_columns() const;
};

}  // namespace mx::kernels
