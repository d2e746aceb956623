// Powers with one exponent, for the distances of general order. Internal.
#pragma once

#include <algorithm>
#include <cstdint>

#include "operators/kernels/tables.h"

namespace mx::kernels {

/// Raises elements to the power `exponent`, with the accuracy of the operator pow. T is float or double.
template <class T>
class PowerRow {
 public:
  explicit PowerRow(double exponent) : plain_(power_row(kType, exponent)) {
    if (plain_ != nullptr) return;
    general_ = binary_vector_row(BinaryOp::pow, kType);
    if (general_ == nullptr) general_ = binary_library_row(BinaryOp::pow, kType);
    std::fill_n(exponents_, kPiece, static_cast<T>(exponent));
  }
  /// x[i] = x[i] to the power, for n elements.
  void operator()(T* x, int64_t n) const {
    if (plain_ != nullptr) {
      const void* const in[] = {x};
      return plain_(x, in, n);
    }
    for (int64_t i = 0; i < n; i += kPiece) {
      const void* const in[] = {x + i, exponents_};
      general_(x + i, in, std::min(kPiece, n - i));
    }
  }

 private:
  static constexpr DType kType = sizeof(T) == 4 ? DType::f32 : DType::f64;
  static constexpr int64_t kPiece = 256;
  Row plain_, general_ = nullptr;
  T exponents_[kPiece];
};

}  // namespace mx::kernels
