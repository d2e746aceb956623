// CallHeader: the description of a call, the first message of each call between two ranks. Internal.
//
// Layout: 256 bytes, in the byte order of the machine; all ranks of a job run on machines with the same one.
//
// Thread-safety: a value without shared state.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "comm/communicator.h"

namespace mx::comm {

struct CallHeader {
  static constexpr uint32_t kMagic = 0x4d584331;  // "1CXM" in little-endian memory
  static constexpr size_t kLongestText = 208;

  uint32_t magic = kMagic;
  uint8_t collective = 0, type = 0, reduction = 0, order = 0;
  uint64_t number =
      0;  ///< of the call: collectives of this group, or sends and receives between the two ranks
  uint64_t count = 0;
  int32_t peer = 0;  ///< root of a broadcast; 0 otherwise, also of send and receive
  uint8_t algorithm = 0;
  uint8_t failed = 0;  ///< 1: the sender has given up this call; `text` says why
  uint16_t text_bytes = 0;
  uint64_t text_hash = 0;  ///< of the whole text, of which `text` has only the beginning
  uint64_t reserved = 0;
  char text[kLongestText] = {};  ///< CallOptions::what

  /// Describes a call. `algorithm` is any number that must be equal on all ranks.
  static CallHeader of(const Request& request, uint64_t number, uint8_t algorithm);
  /// Says that the sender has given up the call, and why.
  static CallHeader failure(std::string_view text);

  /// Returns whether two ranks make the same call. A send matches a receive.
  bool matches(const CallHeader& other) const;
  /// "call 7, allreduce of 10 x f32 'fc1.weight'"
  std::string describe() const;
};

static_assert(sizeof(CallHeader) == 256);

}  // namespace mx::comm
