// The vectorised parts of random.h, each selected at run time for the processor. They work on whole vectors
// and may write beyond the requested end. So all elements go through the same instructions, and the bits of
// an element do not depend on whether it is in a full vector or in the remainder.
#pragma once

#include <cstdint>

namespace mx::kernels::detail {

/// Elements of 4 bytes beyond the end that the functions below may write, or read and ignore.
inline constexpr int64_t kVectorSlack = 64;

/// Writes the words of `blocks` blocks from `first` on, 4 per block: those of philox_block(seed, block,
/// kind).
void random_words(uint64_t seed, uint64_t first, uint32_t kind, int64_t blocks, uint32_t* words);

/// Converts n words to n floats in [0, 1), multiples of 2^-24.
void to_uniform(const uint32_t* words, int64_t n, float* values);
/// Converts n pairs of words to n doubles in [0, 1), multiples of 2^-53.
void to_uniform(const uint32_t* words, int64_t n, double* values);

/// Converts n words (for double: n pairs of words) to n normal numbers by Box and Muller. n is even, because
/// two neighbours are computed from the same two words or pairs.
void to_normal(const uint32_t* words, int64_t n, float* values);
void to_normal(const uint32_t* words, int64_t n, double* values);

/// Converts n pairs of words to -log(u), u in (0, 1).
void to_exponential(const uint32_t* words, int64_t n, double* values);

}  // namespace mx::kernels::detail
