// MemoryWatch: keeps the memory of a training loop small and compares it after the first steps with that at
// the end. Memory that grows with every step is a leak.
//
// Thread-safety: one thread at a time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "ndarray/ndarray.h"

namespace mx::examples {

class MemoryWatch {
 public:
  /// Counts a step.
  void step() { step({}); }
  /// The same, and waits for the loss of the step kAhead steps ago. Without that, a program that pushes steps
  /// faster than the engine runs them has the arrays of hundreds of operations in memory.
  void step(const NDArray& loss);
  int64_t steps() const { return steps_; }
  /// Returns "memory 80 MB after 100 steps, 81 MB at the end"; an empty text if fewer than 100 steps were
  /// counted.
  std::string text() const;

 private:
  static constexpr size_t kAhead = 2;

  int64_t steps_ = 0;
  double early_mb_ = 0;
  std::array<NDArray, kAhead> losses_;  // of the last steps
};

}  // namespace mx::examples
