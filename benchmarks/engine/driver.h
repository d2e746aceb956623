// The driver: runs every case of every system in rounds, each in its own process, and prints medians.
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
  int quiet_s = 0;      ///< before a round, wait up to this long until other programs leave the machine idle
  bool quick = false;
  bool verify = false;
};

/// Runs the plan and prints its records. Returns the exit status: 0, or 1 if a check found violations or a
/// measurement of our own engine failed. Throws std::invalid_argument for an unknown name.
int run_plan(const Plan& plan);

}  // namespace mx::bench
