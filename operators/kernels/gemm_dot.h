// Products of bf16 by the processor's dot instruction for it (AVX512_BF16), which multiplies pairs and adds
// them in f32. Internal to gemm.
//
// Each element of C is a sum over k in one fixed order: pairs from the first on, the second product of a pair
// before the first. It does not depend on the other elements that are computed with it, so results have the
// same bits at any number of threads. They differ from those of processors without the instruction in the
// last place: the order is another, and the instruction takes numbers below 2^-126 as 0.
#pragma once

#include <cstdint>

namespace mx::kernels {

/// The columns of a tile; C's rows have room for a multiple of it.
inline constexpr int64_t kDotCols = 32;

/// Returns true if this processor has the instruction.
bool has_bf16_dot();

/// sums (rows, cols) = A B, or sums + A B if `add` is set. Elements of A and B are bf16, strides in elements.
struct Bf16Dot {
  const void* a;
  int64_t a_rs, a_cs;
  const void* b;
  int64_t b_rs, b_cs;
  int64_t rows, cols, k;
  float* sums;
  int64_t sums_rs;  ///< at least `cols`, rounded up to a multiple of kDotCols
  bool add;
  void* a_room;  ///< 14 * (k + 1) / 2 words of 32 bits
  void* b_room;  ///< as many words as B has pairs of elements, its columns rounded up
};
/// Precondition: has_bf16_dot().
void bf16_dot(const Bf16Dot& product);

}  // namespace mx::kernels
