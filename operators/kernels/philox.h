// Philox4x32-10: random words as a pure function of a key and a counter.
//
// Source: Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC 2011; the constants
// are the paper's. It passes BigCrush. Different counters of 128 bits give different results of 128 bits.
#pragma once

#include <array>
#include <cstdint>

namespace mx::kernels {

using PhiloxWords = std::array<uint32_t, 4>;

constexpr PhiloxWords philox(PhiloxWords counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t a = uint64_t{0xD2511F53} * counter[0], b = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(b >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(b),
               static_cast<uint32_t>(a >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(a)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

/// Returns the words of one block of a stream. `kind` separates streams that use the same seed and positions
/// but different numbers of words per element; `attempt` separates repeated attempts.
constexpr PhiloxWords philox_block(uint64_t seed, uint64_t block, uint32_t kind, uint32_t attempt = 0) {
  return philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32), kind, attempt},
                static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
}

}  // namespace mx::kernels
