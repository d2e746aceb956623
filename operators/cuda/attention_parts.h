// How the keys of attention are divided among blocks if there are few rows, as for the next token of a text.
#pragma once

#include <algorithm>
#include <cstdint>

namespace mx::cuda::attention_tiles {

/// Blocks that give every multiprocessor of a large GPU work. If there are fewer, they share the keys. The
/// number is the same for every GPU, so that results are too.
inline constexpr int64_t kEnoughBlocks = 256;
/// Keys of a part, at least and as its unit. A block pays for its start and for what it leaves in memory, so
/// it should have a few tiles.
inline constexpr int64_t kLeastPart = 256, kPartUnit = 64;

struct KeyParts {
  int64_t count, keys;  ///< each part has `keys` keys, the last one the rest
};

/// Divides `keys` keys; `blocks`: without division. One part: the division is not worth it.
inline KeyParts parts_of_keys(int64_t blocks, int64_t keys) {
  const int64_t most = std::min(kEnoughBlocks / std::max<int64_t>(1, blocks), keys / kLeastPart);
  if (most < 2) return {1, keys};
  const int64_t part = (keys + most - 1) / most, whole = (part + kPartUnit - 1) / kPartUnit * kPartUnit;
  return {(keys + whole - 1) / whole, whole};
}

}  // namespace mx::cuda::attention_tiles
