// Checker: run by every operation when a benchmark verifies instead of timing. It knows which version of
// each variable an operation must find, and counts what is wrong: a wrong version (order), a reader or
// writer beside a writer (exclusion), a write that lands unseen (visibility), an operation that ran twice or
// never.
//
// Its counters are relaxed on purpose: they order nothing, so an executor that fails to order its
// operations is not repaired by being checked, and a thread sanitizer sees the race on the plain payload.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "benchmarks/engine/pattern.h"

namespace mx::bench {

class Checker {
 public:
  /// `ordered` false: only exclusion and completeness are checked, for programs pushed by several threads,
  /// whose order is not known beforehand. The pattern must outlive the checker.
  explicit Checker(const Pattern& pattern, bool ordered = true);

  /// Back to the state before the first operation. Not while operations run.
  void reset();

  /// The body of operation `i`. Any thread.
  void run(uint32_t i);

  /// Wrong observations so far, plus operations that did not run exactly once. Not while operations run.
  uint64_t violations() const;

 private:
  struct Variable {
    std::atomic<int32_t> inside{0};  // readers in it, or kWriter
    std::atomic<uint32_t> version{0};
    std::atomic<uint32_t> reads_of_version{0};
    uint32_t payload = 0;  // equals the version; plain, so that it needs the executor's ordering
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
