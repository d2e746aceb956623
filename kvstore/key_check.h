// Compares the keys of a call between all ranks: names, shapes and types. Internal.
//
// Each rank describes its keys by one line each. First the ranks exchange a hash and the length of the text,
// 16 bytes of each rank. Only if the hashes differ, they exchange the texts and name the first line that
// differs. All ranks see the same hashes, so all or none of them go on.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "kvstore/call_sequence.h"

namespace mx::detail {

/// A hash of bytes, equal on all machines of one byte order.
uint64_t hash_bytes(const void* data, size_t bytes, uint64_t seed = 0);

/// "\"w\" as f32 (3, 4)".
std::string describe_key(const std::string& key, const char* type, const std::string& shape);

/// Returns the call that compares the lines. It fails with ProtocolError, on all ranks, if they differ.
/// `op` begins the message.
CallSequence::Call compare_lines(const std::string& op, std::vector<std::string> lines,
                                 comm::CallOptions options);

}  // namespace mx::detail
