// The driver: asks every system every question, in rounds, each in a process of its own, and prints medians.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mx::bench {

struct Plan {
  std::vector<std::string> cases;    ///< names or groups; empty: all
  std::vector<std::string> systems;  ///< empty: all that were built
  std::vector<int> threads = {1, 2};
  uint32_t ops = 1'000'000;
  uint32_t wave_side = 0;
  int rounds = 5;
  int timeout_s = 120;  ///< of one child
  int quiet_s = 0;  ///< before a round, wait up to this long for other programs to leave the machine alone
  bool quick = false;
  bool verify = false;
};

/// Runs the plan and prints its records. Returns the exit status: 0; 1 when a check found violations, or a
/// measurement of our own failed; throws std::invalid_argument for a name that nothing has.
int run_plan(const Plan& plan);

}  // namespace mx::bench
