// Random programs, and their meaning when operations run one after another.
//
// The interpreter is independent of the engine. It keeps a value for each variable and, for a poisoned
// variable, the set of failures that the poison may come from. Values are hashes of everything that was
// computed into them, so a single operation that runs out of order, not at all or twice changes them.
#pragma once

#include <cstdint>
#include <random>
#include <set>
#include <vector>

#include "tests/support/scaled_steps.h"

namespace mx::test {

inline uint64_t mix(uint64_t a, uint64_t b) {
  a ^= b + 0x9e3779b97f4a7c15 + (a << 6) + (a >> 2);
  a *= 0xff51afd7ed558ccd;
  return a ^ (a >> 33);
}

struct Step {
  enum class Kind { op, recover, create, remove } kind = Kind::op;
  int id = 0;
  std::vector<int> reads, writes, updates;  // variables; may repeat and overlap
  int var = 0;                              // for the other kinds
  bool fails = false;
  int spin_us = 0;
  int priority = 0;
  int place = 0;  // 0: CPU, 1: CPU's communication lane, 2 and more: virtual devices
};

/// Computes the operation on the values. This is the only code that the interpreter and the engine share.
inline void compute(const Step& step, std::vector<uint64_t>& values) {
  uint64_t hash = static_cast<uint64_t>(step.id);
  for (int v : step.reads) hash = mix(hash, values[static_cast<size_t>(v)]);
  for (int v : step.updates) hash = mix(hash, values[static_cast<size_t>(v)]);
  for (int v : step.writes) values[static_cast<size_t>(v)] = mix(hash, static_cast<uint64_t>(v));
  for (int v : step.updates) {
    uint64_t& value = values[static_cast<size_t>(v)];
    value = mix(value, hash);
  }
}

class SerialInterpreter {
 public:
  struct State {
    std::set<int> poison;  // the steps whose failure the variable may carry; empty if its value is good
    bool recoverable = false;
    bool live = false;
  };

  explicit SerialInterpreter(size_t vars) : values_(vars, 0), states_(vars) {}
  void run(const Step& step);
  const std::vector<uint64_t>& values() const { return values_; }
  const State& state(int var) const { return states_[static_cast<size_t>(var)]; }

 private:
  void run_op(const Step& step);
  std::vector<uint64_t> values_;
  std::vector<State> states_;
};

struct RandomProgramOptions {
  uint64_t seed = 1;
  int steps = 10'000;
  int live_vars = 40;
  int places = 2;        // see Step::place
  bool failures = true;  // with failures and recoveries
};

struct RandomProgram {
  std::vector<Step> steps;
  size_t vars = 0;  // number of variables ever created; the first live_vars exist at the start
  int start_vars = 0;
};

RandomProgram make_random_program(const RandomProgramOptions& options);

}  // namespace mx::test
