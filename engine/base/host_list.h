// host_list(): a list whose length comes from a user, such as a number of rows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <vector>

#include "engine/base/check.h"

namespace mx {

/// Returns a list of n elements T(). Throws OutOfMemory, naming `op`, if there is no memory for them; the
/// standard library would throw std::bad_alloc or std::length_error.
template <class T>
std::vector<T> host_list(int64_t n, const char* op) {
  // No processor addresses so many bytes. Sanitizers end the program that asks for them, instead of throwing.
  constexpr uint64_t kNoMemoryBytes = uint64_t{1} << 52;
  try {
    if (static_cast<uint64_t>(n) < kNoMemoryBytes / sizeof(T)) return std::vector<T>(static_cast<size_t>(n));
  } catch (const std::bad_alloc&) {
  } catch (const std::length_error&) {
  }
  throw OutOfMemory(detail::concat("[", op, "] expected free memory for a list of ", n, " elements of ",
                                   sizeof(T), " bytes, got none"));
}

}  // namespace mx
