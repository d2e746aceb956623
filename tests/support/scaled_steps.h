// How often a test repeats what may go wrong in one of many orders.
#pragma once

namespace mx::test {

/// Returns the number of steps that a test should run: fewer under a sanitizer.
constexpr int scaled_steps(int steps) {
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
  return steps / 5;
#else
  return steps;
#endif
}

}  // namespace mx::test
