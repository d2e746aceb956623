// Random arrays with the shape, the type and the device of another array.
//
//   NDArray noisy = x + 0.1 * randn_like(x);
//
// The numbers come from the default generator of the array's device (operators/random.h). Throws
// InvalidArgument for an array whose type is not floating point.
#pragma once

#include <source_location>

#include "operators/random.h"

namespace mx {

/// Uniform in [0, 1), as rand().
inline NDArray rand_like(const NDArray& a, std::source_location where = std::source_location::current()) {
  return rand(a.shape(), a.dtype(), a.context(), where);
}
/// Normal with mean 0 and standard deviation 1, as randn().
inline NDArray randn_like(const NDArray& a, std::source_location where = std::source_location::current()) {
  return randn(a.shape(), a.dtype(), a.context(), where);
}

}  // namespace mx
