// Checker: run by every operation when a benchmark verifies instead of timing. It knows the version of each
// variable that an operation must find. It counts violations: a wrong version (order), a reader or writer at
// the same time as a writer (exclusion), a write that the next operation does not see (visibility), and an
// operation that ran twice or never.
//
// Its counters are relaxed on purpose. They order nothing, so checking does not repair an executor that fails
// to order its operations, and a thread sanitizer detects the race on the plain payload.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "benchmarks/engine/pattern.h"

namespace mx::bench {

class Checker {
 public:
  /// With `ordered` == false only exclusion and completeness are checked. This is for programs pushed by
  /// several threads, whose order is not known beforehand. The pattern must outlive the checker.
  explicit Checker(const Pattern& pattern, bool ordered = true);

  /// Restores the state before the first operation. Must not be called while operations run.
  void reset();

  /// Runs the body of operation `i`. Thread-safety: any thread.
  void run(uint32_t i);

  /// Returns the number of wrong observations so far, plus the number of operations that did not run exactly
  /// once. Must not be called while operations run.
  uint64_t violations() const;

 private:
  struct Variable {
    std::atomic<int32_t> inside{0};  // number of readers inside, or kWriter
    std::atomic<uint32_t> version{0};
    std::atomic<uint32_t> reads_of_version{0};
    uint32_t payload = 0;  // equals the version; not atomic, so that only the executor can order its accesses
  };
  struct Expected {
    uint32_t read_versions[3] = {0, 0, 0};
    uint32_t write_version = 0;
    uint32_t reads_before_write = 0;
  };
  bool enter(uint32_t i);
  bool leave(uint32_t i);

  const Pattern& pattern_;
  bool ordered_;
  std::vector<Expected> expected_;
  std::vector<Variable> variables_;
  std::vector<std::atomic<uint8_t>> runs_;
  std::atomic<uint64_t> wrong_{0};
};

}  // namespace mx::bench
