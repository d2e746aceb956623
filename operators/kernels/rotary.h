// Rotary position embedding (operators/rotary.h has the formula).
//
// Types: x and y of the same type, f32, f64, f16 or bf16, with any strides. Angles are computed in f64. f16
// and bf16 are computed in f32 and rounded once. y may be x.
//
// Thread-safety: any thread may call.
#pragma once

#include <cmath>
#include <cstdint>

#include "ndarray/launch.h"
#include "ndarray/tensor.h"

namespace mx::kernels {

struct RotaryParams {
  double theta = 10000;
  int64_t offset = 0;
  int64_t dims = 0;  ///< even, at most the width
  bool interleaved = false;
  bool inverse = false;
};

/// Row number l of x (.., length, width) is at position offset + l.
void rotary(const KernelArgs& args, const Tensor& y, const Tensor& x, const RotaryParams& options);

/// The angle of pair i at a position. Also for GPUs.
template <class T>
constexpr T rotary_angle(T position, int64_t pair, int64_t dims, T theta) {
  return position * std::pow(theta, T{-2} * static_cast<T>(pair) / static_cast<T>(dims));
}

}  // namespace mx::kernels
