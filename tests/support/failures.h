// Arrays whose operation failed, and a wait that ignores failures.
#pragma once

#include <stdexcept>

#include "ndarray/launch.h"

namespace mx::test {

/// Returns an array whose operation fails with "no such luck".
inline NDArray failed_array(const Shape& shape = {3}) {
  static const Kernel fail = {"fail", [](const KernelArgs&) { throw std::runtime_error("no such luck"); }};
  NDArray array = empty(shape);
  mx::detail::ArrayImpl* const out[] = {&array.impl()};
  launch({.kernel = &fail, .outputs = out});
  return array;
}

/// Waits until all operations have ended. Ignores their failures, which other operations may have caused.
inline void settle() {
  try {
    wait_all();
  } catch (const Error&) {
  }
}

}  // namespace mx::test
