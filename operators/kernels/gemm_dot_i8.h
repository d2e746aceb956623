// Products of i8 and u8 by the processor's dot instruction for bytes (AVX512_VNNI), which multiplies four
// unsigned bytes by four signed ones and adds the products to a sum of 32 bits, without saturation. Internal
// to gemm.
//
// One operand must be unsigned and the other signed, so one of them is moved by 128, and the sum corrected:
//
//   i8   a b = (a + 128) b - 128 b     the columns of B are summed for it
//   u8   a b = a (b - 128) + 128 a     the rows of A are summed for it
//
// The sums are exact modulo 2^32, so results are those of the plain loop, bit for bit.
#pragma once

#include <cstdint>

#include "operators/kernels/gemm_dot.h"

namespace mx::kernels {

/// Returns true if this processor has the instruction.
bool has_byte_dot();

/// sums (rows, cols) = A B, or sums + A B if `add` is set. Elements of A and B are i8, or u8 if `is_unsigned`
/// is set; strides in elements.
struct ByteDot {
  const void* a;
  int64_t a_rs, a_cs;
  const void* b;
  int64_t b_rs, b_cs;
  int64_t rows, cols, k;
  uint32_t* sums;
  int64_t sums_rs;  ///< at least `cols`, rounded up to a multiple of kDotCols
  bool add, is_unsigned;
  uint32_t* a_room;  ///< 14 * ((k + 3) / 4 + 1) words
  uint32_t* b_room;  ///< (k + 3) / 4 + 1 words for each column, their number rounded up like that of `sums`
};
/// Precondition: has_byte_dot(), k > 0.
void byte_dot(const ByteDot& product);

}  // namespace mx::kernels
