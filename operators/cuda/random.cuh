// Words of Philox for the kernels of random numbers: those of the CPU for the same seed and position.
#pragma once

#include <cstdint>

#include "ndarray/cuda/kernel.cuh"
#include "operators/kernels/random_fill.h"

namespace mx::cuda {

using kernels::philox_block;
using kernels::PhiloxWords;

// A key lies in device memory, so kernels read it.
struct KeyPlace {
  const int64_t* state;
  int64_t step;

  explicit KeyPlace(const Tensor& key) : state(key.as<int64_t>()), step(key.strides[0]) {}
  __device__ KeyPlace(const int64_t* words, int64_t distance) : state(words), step(distance) {}
  __device__ uint64_t seed() const { return static_cast<uint64_t>(state[0]); }
  __device__ uint64_t offset() const { return static_cast<uint64_t>(state[step]); }
};

__device__ inline uint64_t pair_of(const PhiloxWords& words, int i) {
  return words[static_cast<size_t>(2 * i)] | uint64_t{words[static_cast<size_t>(2 * i + 1)]} << 32;
}
__device__ inline double uniform53(uint64_t bits) { return static_cast<double>(bits >> 11) * 0x1p-53; }
__device__ inline float uniform24(uint32_t bits) { return static_cast<float>(bits >> 8) * 0x1p-24f; }

// Calls make(words, j) for element j of each block, and put(i, value) for the elements that are wanted.
template <int kWords, class Make, class Put>
__device__ inline void for_blocks(const KeyPlace& key, int64_t n, const Make& make, const Put& put) {
  constexpr int kPerBlock = 4 / kWords;
  const uint64_t offset = key.offset(), first = offset / kPerBlock;
  const int64_t skipped = static_cast<int64_t>(offset % kPerBlock);
  const int64_t blocks = (skipped + n + kPerBlock - 1) / kPerBlock;
  for (int64_t b = global_index(); b < blocks; b += global_size()) {
    const PhiloxWords words = philox_block(key.seed(), first + static_cast<uint64_t>(b), kWords);
    for (int j = 0; j < kPerBlock; ++j) {
      const int64_t i = b * kPerBlock + j - skipped;
      if (i >= 0 && i < n) put(i, make(words, j));
    }
  }
}

}  // namespace mx::cuda
