// Parts: the messages of a collective whose ranks all exchange with each other. Internal.
//
// Communicators over a library that sends and receives (MPI, NCCL) list the parts of a call with these
// functions and give each to the library. The lists contain a part of this rank with itself, because some
// libraries send to themselves; others copy it, or leave it out.
//
// Sizes are bytes. The functions only compute addresses, so buffers may be memory of a device.
//
// Thread-safety: functions without state.
#pragma once

#include <cstddef>
#include <vector>

#include "comm/communicator.h"

namespace mx::comm {

/// A message to and from one rank.
struct Part {
  const void* in = nullptr;  ///< in_bytes that go to the peer
  void* out = nullptr;       ///< place of out_bytes that come from it
  size_t in_bytes = 0, out_bytes = 0;
  int peer = 0;
};

inline char* offset_by(void* base, size_t bytes) { return static_cast<char*>(base) + bytes; }
inline const char* offset_by(const void* base, size_t bytes) {
  return static_cast<const char*>(base) + bytes;
}

/// Every rank sends each rank its slice of `in`, which has `request.count` elements. What comes from rank r
/// is a copy of this rank's slice; it goes to `received`, r slices behind its beginning.
std::vector<Part> parts_of_slices(const Request& request, int rank, int size, const void* in, void* received);
/// Every rank sends its slice `in` to all. The slices of all ranks become `out`, of `request.count` elements.
std::vector<Part> parts_of_gather(const Request& request, int rank, int size, const void* in, void* out);
/// `in` and `out` have a block of `request.count` elements for, and from, each rank.
std::vector<Part> parts_of_all_to_all(const Request& request, int size, const void* in, void* out);

}  // namespace mx::comm
