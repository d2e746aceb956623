// The layout of the heads of calls over MPI: see mpi_group.h. Internal to the module.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "comm/call_header.h"

namespace mx::comm {

// Messages are cut to pieces of this size, because MPI counts in int.
inline constexpr size_t kPieceBytes = size_t{1} << 30;
// Up to this size, values travel behind the head of a call, to all ranks.
inline constexpr size_t kSmallBytes = 16 * 1024;

enum Tag { kDataTag, kHeadTag, kPairTag };

// The start of a message: it is followed by the description of a call and the values.
struct HeadStart {
  uint32_t header = 0, values = 0;  // bytes
  uint64_t met = 0;                 // collectives in which the rank has met the others, before this call
};
constexpr size_t aligned(size_t bytes) { return (bytes + 15) / 16 * 16; }
inline constexpr size_t kMostHeadBytes = sizeof(HeadStart) + sizeof(CallHeader) + kSmallBytes;
static_assert(kMostHeadBytes % 16 == 0);

inline HeadStart start_of(const char* head) {
  HeadStart start;
  std::memcpy(&start, head, sizeof start);
  return start;
}
inline size_t values_offset(const HeadStart& start) { return sizeof start + aligned(start.header); }
inline size_t head_bytes(const HeadStart& start) { return values_offset(start) + aligned(start.values); }

}  // namespace mx::comm
