// make_room(): reserves space for more elements, so that adding them later cannot fail. The cost is amortised
// constant. reserve() alone grows only to the size that is asked for, which makes a loop quadratic.
#pragma once

#include <algorithm>
#include <cstddef>

namespace mx {

template <class Vector>
void make_room(Vector& vector, size_t more = 1) {
  if (vector.capacity() - vector.size() < more)
    vector.reserve(std::max(vector.size() + more, 2 * vector.size()));
}

}  // namespace mx
