// The messages for values that a kernel refuses: the same from a kernel of the CPU and of a GPU.
#pragma once

#include <cstdint>
#include <string>

#include "engine/base/check.h"
#include "ndarray/shape.h"

namespace mx::kernels::detail {

/// Returns the position of element i, in row-major order, in an array of this shape.
inline Shape position_of(int64_t i, const Shape& shape) {
  Shape position = Shape::filled(shape.rank(), 0);
  for (int d = shape.rank() - 1; d >= 0; i /= shape[d--]) position[d] = i % shape[d];
  return position;
}

/// An index outside [lowest, size).
inline std::string bad_index(const char* op, int64_t lowest, int64_t size, int axis, int64_t index,
                             const Shape& position) {
  return mx::detail::concat("[", op, "] expected indices from ", lowest, " to ", size - 1, " into axis ",
                            axis, " of size ", size, ", got ", index, " at position ", position);
}

/// A label that is neither a class nor `ignore`.
inline std::string bad_label(const char* op, int64_t classes, int64_t ignore, int64_t label,
                             const Shape& position) {
  return mx::detail::concat("[", op, "] expected labels from 0 to ", classes - 1, " (", classes,
                            " classes) or ", ignore, " to ignore, got ", label, " at position ", position);
}

/// An index of the gradient of max_pool that is no element of its plane.
inline std::string bad_pool_index(int64_t elements, int64_t index, int64_t plane) {
  return mx::detail::concat("[max_pool_backward] expected indices from 0 to ", elements - 1, ", got ", index,
                            " in plane ", plane);
}

inline std::string bad_probability(double probability, int64_t element) {
  return mx::detail::concat("[random_bernoulli] expected probabilities from 0 to 1, got ", probability,
                            " at element ", element);
}

}  // namespace mx::kernels::detail
