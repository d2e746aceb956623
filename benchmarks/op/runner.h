// Shared by the operator benchmarks: options, processes, timing, output. A program describes its system and
// calls run_op_bench() from main().
//
// Each number of threads is measured in its own process, which is confined to as many processors before it
// starts. An OpenMP runtime looks at both when it is loaded, so it cannot use more.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "benchmarks/op_cases.h"

namespace mx::bench {

/// One call of an operation on memory that the call object owns.
using OpCall = std::function<void()>;

struct OpSystem {
  std::string bench;  ///< in the records: "op", "eager", "limits"
  std::string name;
  std::vector<OpCase> cases;
  /// NAME=VALUE entries for the measuring process. An entry is not used if the caller's environment has NAME.
  std::function<std::vector<std::string>(int threads)> environment{};
  /// Called once in the measuring process, before the cases.
  std::function<void(int threads)> start{};
  /// Creates the operands of a case and returns the call to time; an empty function if the system does not
  /// have the case.
  std::function<OpCall(const OpCase&, int threads)> prepare{};
  /// Returns the work of one call after it has been prepared; empty: OpCase::work.
  std::function<double(const OpCase&)> work{};
  /// For a case with the unit "x", returns the call to compare with: its time is divided by that of
  /// prepare()'s call.
  std::function<OpCall(const OpCase&, int threads)> prepare_other{};
  std::vector<int> threads = {1, 2};
  /// True for the program of the limits. It runs together with other programs: if --cases names only their
  /// cases, all limits are measured.
  bool limits = false;
};

/// Prints a record for each case and number of threads, and on stderr the cases that the system does not
/// have. Returns the exit status of the program. Options: --cases A,B (names, or ops), --threads 1,2, --as
/// NAME, --min-ms N, --samples N, --list, --smoke.
int run_op_bench(int argc, char** argv, const OpSystem& system);

/// Returns `count` pseudo-random numbers in (-2, 2); the same for the same seed.
std::vector<float> op_input(int64_t count, uint32_t seed);
/// Writes such numbers to existing memory.
void fill_op_input(float* out, int64_t count, uint32_t seed);
/// Returns `count` indices below `limit` in random order.
std::vector<int64_t> op_indices(int64_t count, int64_t limit, uint32_t seed);

}  // namespace mx::bench
