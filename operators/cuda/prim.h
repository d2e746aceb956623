// The algorithms over whole arrays that kernels take from CUB. The executor of tests has its own versions.
#pragma once

#include <bit>
#include <cstdint>

#include "ndarray/launch.h"

namespace mx::cuda {

/// Returns how many bits hold the numbers from 0 to count - 1.
inline int bits_for(int64_t count) {
  return count > 1 ? static_cast<int>(std::bit_width(static_cast<uint64_t>(count - 1))) : 0;
}

/// Sorts n pairs by the bits [first_bit, last_bit) of their keys, ascending and stable. The results must not
/// overlap the operands.
void sort_pairs(const KernelArgs& args, const uint64_t* keys, uint64_t* sorted_keys, const int64_t* values,
                int64_t* sorted_values, int64_t n, int first_bit, int last_bit);

/// sums[i] = x[0] + ... + x[i]. The result must not overlap the operand.
void running_sums(const KernelArgs& args, const int64_t* x, int64_t* sums, int64_t n);

}  // namespace mx::cuda
