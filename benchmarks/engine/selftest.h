// Shows that the checker detects broken executors.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mx::bench {

struct SelftestResult {
  std::string mutant, pattern;
  uint64_t violations = 0;
  bool must_be_caught = false;  ///< the executor is wrong on this pattern, so violations must not be 0
  bool must_be_clean = false;   ///< a correct executor: violations must be 0

  bool good() const { return must_be_caught ? violations != 0 : must_be_clean ? violations == 0 : true; }
};

/// Runs executors with a known fault, and a correct one, on every pattern.
std::vector<SelftestResult> run_selftest(uint32_t ops);

}  // namespace mx::bench
