// A hash of texts that is equal in all processes, which std::hash does not promise.
//
// Thread-safety: a function without state.
#pragma once

#include <cstdint>
#include <string_view>

namespace mx::comm {

/// FNV-1a with 64 bits (Fowler, Noll, Vo). Not for secrets.
constexpr uint64_t hash_text(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  return hash;
}

}  // namespace mx::comm
