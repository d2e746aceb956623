// What the operator benchmarks have in common: options, processes, timing, output. A program describes its
// system and calls run_op_bench() from main().
//
// Each number of threads is measured in a process of its own, which is confined to as many processors before
// it starts; so an OpenMP runtime, which looks at both when it is loaded, cannot take more.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "benchmarks/op_cases.h"

namespace mx::bench {

/// One call of an operation, on memory that it owns.
using OpCall = std::function<void()>;

struct OpSystem {
  std::string bench;  ///< in the records: "op", "eager", "limits"
  std::string name;
  std::vector<OpCase> cases;
  /// NAME=VALUE for the measuring process, where the caller's environment has no NAME.
  std::function<std::vector<std::string>(int threads)> environment{};
  /// Once in the measuring process, before the cases.
  std::function<void(int threads)> start{};
  /// Makes the operands of a case and returns the call to time; an empty one if the system has no such thing.
  std::function<OpCall(const OpCase&, int threads)> prepare{};
  /// The work of one call, once it is prepared; empty: OpCase::work.
  std::function<double(const OpCase&)> work{};
  /// The call that a case in the unit "x" is compared with: its time divided by that of prepare()'s call.
  std::function<OpCall(const OpCase&, int threads)> prepare_other{};
  std::vector<int> threads = {1, 2};
  /// Limits stand beside whatever others measure: --cases that names nothing but others' cases leaves out
  /// none of these.
  bool limits = false;
};

/// Prints a record for each case and number of threads, and on stderr which cases the system has not; the
/// exit status of the program. Options:
/// --cases A,B (names, or ops), --threads 1,2, --as NAME, --min-ms N, --samples N, --list, --smoke.
int run_op_bench(int argc, char** argv, const OpSystem& system);

/// `count` numbers that look random in (-2, 2); the same for the same seed.
std::vector<float> op_input(int64_t count, uint32_t seed);
/// The same into memory that exists.
void fill_op_input(float* out, int64_t count, uint32_t seed);
/// `count` indices in random order below `limit`.
std::vector<int64_t> op_indices(int64_t count, int64_t limit, uint32_t seed);

}  // namespace mx::bench
