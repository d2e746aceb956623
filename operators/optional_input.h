// Optional inputs of kernels, which are the last ones. Internal.
#pragma once

#include <cstddef>

#include "ndarray/launch.h"

namespace mx::detail {

/// Returns input i; null if the call has not got it.
inline const Tensor* optional_input(const KernelArgs& args, size_t i) {
  return args.in.size() > i ? &args.in[i] : nullptr;
}

}  // namespace mx::detail
