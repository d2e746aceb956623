// A kernel with all that the executor has to watch, and its mutants: each has one error that must be
// reported.
#pragma once

#include <cstdint>

namespace mx::test {

enum class Mutant : uint8_t {
  none,
  missing_barrier,  ///< partial sums are read before all warps have written theirs
  early_exit,       ///< threads without elements leave before a barrier
  wrong_mask,       ///< a part of a warp makes an operation of the whole warp
  off_by_one,       ///< the last thread reads an element beyond the end
  misaligned,       ///< a load of 16 bytes from an address that is no multiple of 16
  unset_shared,     ///< reads a partial sum that no warp has written
  split_barrier,    ///< half of the threads wait at another barrier
  across_blocks,    ///< blocks add to one number without an atomic operation; the result happens to be right
  other_barrier,    ///< a block adds to a number before its barrier, another one after its own
};

/// sums[row] = sum of x[row * n] .. x[row * n + n - 1], n a multiple of 4 and of at most 1024, x at a
/// multiple of 16 bytes; total[0] = number of rows.
void row_sums(Mutant mutant, const float* x, int64_t rows, int64_t n, float* sums, int32_t* total);

}  // namespace mx::test
