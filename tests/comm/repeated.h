// Long data for tests that compute only its beginning: under sanitizers, computing each element takes most of
// their time.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <type_traits>
#include <utility>
#include <vector>

namespace mx::test {

/// Returns `count` elements that repeat `period`, which must not be empty. Use a length that divides no size
/// of a message or of a piece, such as a prime; otherwise a test does not see that a piece stands at another
/// one's place.
template <class T>
std::vector<T> repeated(std::vector<T> period, size_t count) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all = std::move(period);
  size_t filled = std::min(all.size(), count);
  all.resize(count);
  while (filled < count) {
    const size_t more = std::min(filled, count - filled);
    std::memcpy(all.data() + filled, all.data(), more * sizeof(T));
    filled += more;
  }
  return all;
}

}  // namespace mx::test
