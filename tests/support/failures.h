// Arrays whose operation failed, and waiting in spite of them.
#pragma once

#include <stdexcept>

#include "ndarray/launch.h"

namespace mx::test {

/// The operation that makes the array fails with "no such luck".
inline NDArray failed_array(const Shape& shape = {3}) {
  static const Kernel fail = {"fail", [](const KernelArgs&) { throw std::runtime_error("no such luck"); }};
  NDArray array = empty(shape);
  mx::detail::ArrayImpl* const out[] = {&array.impl()};
  launch({.kernel = &fail, .outputs = out});
  return array;
}

/// Everything has ended; what went wrong elsewhere is no concern of the test.
inline void settle() {
  try {
    wait_all();
  } catch (const Error&) {
  }
}

}  // namespace mx::test
