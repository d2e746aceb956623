// The vectorised pieces of random.h, each picked at run time for the processor. All of them work on whole
// vectors and may write past the end that they are asked for, so that an element's bits never depend on
// whether it fell into a vector or into a remainder.
#pragma once

#include <cstdint>

namespace mx::kernels::detail {

/// Elements of 4 bytes that the functions below may write, or read and then ignore, beyond the end.
inline constexpr int64_t kVectorSlack = 64;

/// The words of `blocks` blocks from `first` on: 4 per block, as philox_block(seed, block, kind) gives them.
void random_words(uint64_t seed, uint64_t first, uint32_t kind, int64_t blocks, uint32_t* words);

/// n words -> n floats in [0, 1): multiples of 2^-24.
void to_uniform(const uint32_t* words, int64_t n, float* values);
/// n pairs of words -> n doubles in [0, 1): multiples of 2^-53.
void to_uniform(const uint32_t* words, int64_t n, double* values);

/// n words (n pairs of words), n even -> n normal numbers by Box and Muller; two neighbours share theirs.
void to_normal(const uint32_t* words, int64_t n, float* values);
void to_normal(const uint32_t* words, int64_t n, double* values);

/// n pairs of words -> -log of a number in (0, 1).
void to_exponential(const uint32_t* words, int64_t n, double* values);

}  // namespace mx::kernels::detail
