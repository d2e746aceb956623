#include "kvstore/call_choice.h"

#include <algorithm>
#include <bit>
#include <iterator>

namespace mx::detail {

void CallChoice::add(size_t distance) {
  ready[distance / 64] |= uint64_t{1} << (distance % 64);
  if (preferred_count < kMostPreferred) preferred[preferred_count++] = static_cast<uint8_t>(distance);
}

size_t CallChoice::choose(std::span<const CallChoice> ranks) {
  CallChoice common = ranks[0];
  for (const CallChoice& rank : ranks)
    for (size_t w = 0; w < std::size(common.ready); ++w) common.ready[w] &= rank.ready[w];
  for (size_t i = 0; i < std::min<size_t>(common.preferred_count, kMostPreferred); ++i) {
    const size_t distance = common.preferred[i];
    if ((common.ready[distance / 64] >> (distance % 64) & 1) != 0) return distance;
  }
  // More calls are ready than rank 0 could list: the first of them.
  for (size_t w = 0; w < std::size(common.ready); ++w)
    if (common.ready[w] != 0) return 64 * w + static_cast<size_t>(std::countr_zero(common.ready[w]));
  return 0;
}

}  // namespace mx::detail
