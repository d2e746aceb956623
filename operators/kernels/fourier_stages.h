// The stages of a Fourier transform, compiled for every instruction set. Internal to fourier.cc.
#pragma once

#include <cstdint>

namespace mx::kernels::detail {

inline constexpr int64_t kLargestRadix = 31;

/// The numbers of one stage of the algorithm of Stockham, for `lanes` transforms at once. Element (r, q, k)
/// of the input is at r + s (q + m k), that of the output at r + s (p q + k), for r < s, q < m, k < p; each
/// is a row of `lanes` numbers. A result depends only on the numbers in its own lane.
struct FourierStage {
  const double *x_re, *x_im;
  double *y_re, *y_im;
  int64_t s, m, p, lanes;
  const double *roots_re, *roots_im;  // exp(-2 pi i k / n) for the whole length n = s m p
};

/// p is 2, 4 or an odd number up to kLargestRadix.
void run_stage(const FourierStage& stage);

}  // namespace mx::kernels::detail
