#include "tests/support/random_program.h"

#include <algorithm>
#include <map>

namespace mx::test {

void SerialInterpreter::run(const Step& step) {
  State& state = states_[static_cast<size_t>(step.var)];
  switch (step.kind) {
    case Step::Kind::op:
      run_op(step);
      break;
    case Step::Kind::create:
      state = {{}, false, true};
      break;
    case Step::Kind::remove:
      state = {};
      break;
    case Step::Kind::recover:
      if (state.recoverable) state = {{}, false, true};
      break;
  }
}

void SerialInterpreter::run_op(const Step& step) {
  // Bits: 1 read, 2 write. 3 is an update, and so is a variable that stands in several lists.
  std::map<int, int> access;
  for (int v : step.reads) access[v] |= 1;
  for (int v : step.writes) access[v] |= 2;
  for (int v : step.updates) access[v] |= 3;
  std::set<int> causes;
  for (const auto& [v, how] : access) {
    if (how & 1) causes.insert(state(v).poison.begin(), state(v).poison.end());
  }
  if (causes.empty() && !step.fails) {
    compute(step, values_);
    for (const auto& [v, how] : access) {
      if (how == 2) states_[static_cast<size_t>(v)] = {{}, false, true};
    }
    return;
  }
  const bool skipped = !causes.empty();
  for (const auto& [v, how] : access) {
    State& state = states_[static_cast<size_t>(v)];
    if (how == 1) continue;
    if (!skipped) {
      state = {{step.id}, false, true};
    } else if (how == 2) {
      state = {causes, false, true};
    } else if (state.poison.empty()) {
      state = {causes, true, true};
    }
  }
}

RandomProgram make_random_program(const RandomProgramOptions& options) {
  std::mt19937_64 random(options.seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<uint64_t>(n)); };
  RandomProgram program;
  program.start_vars = options.live_vars;
  std::vector<int> live;
  for (int i = 0; i < options.live_vars; ++i) live.push_back(i);
  int next_var = options.live_vars;
  SerialInterpreter oracle(static_cast<size_t>(options.live_vars + options.steps));
  for (int v : live) {
    Step step;
    step.kind = Step::Kind::create;
    step.var = v;
    oracle.run(step);
  }
  const auto add = [&](Step step) {
    step.id = static_cast<int>(program.steps.size());
    oracle.run(step);
    program.steps.push_back(std::move(step));
  };
  const auto pick = [&] { return live[static_cast<size_t>(below(static_cast<int>(live.size())))]; };
  while (static_cast<int>(program.steps.size()) < options.steps) {
    // Poison spreads fast. Recover it now and then, so that most of the program computes values.
    const auto poisoned =
        std::count_if(live.begin(), live.end(), [&](int v) { return !oracle.state(v).poison.empty(); });
    if (poisoned > options.live_vars / 3) {
      for (int v : live) {
        if (oracle.state(v).poison.empty()) continue;
        Step step;
        step.var = v;
        step.kind = oracle.state(v).recoverable ? Step::Kind::recover : Step::Kind::op;
        if (step.kind == Step::Kind::op) step.writes = {v};
        add(step);
      }
    }
    Step step;
    const int kind = below(100);
    if (kind < 2) {
      const size_t at = static_cast<size_t>(below(static_cast<int>(live.size())));
      step.kind = Step::Kind::remove;
      step.var = live[at];
      add(step);
      step.kind = Step::Kind::create;
      step.var = live[at] = next_var++;
    } else if (kind < 4 && options.failures) {
      step.kind = Step::Kind::recover;
      step.var = pick();
    } else {
      const int reads = kind < 10 ? 0 : 2 + below(kind < 70 ? 3 : 18);
      for (int i = 0; i < reads; ++i) step.reads.push_back(pick());
      const int outputs = 1 + below(3);
      for (int i = 0; i < outputs; ++i) (below(2) == 0 ? step.writes : step.updates).push_back(pick());
      step.fails = options.failures && below(300) == 0;
      step.spin_us = below(4) == 0 ? below(4) : 0;
      step.priority = below(8) == 0 ? below(8) - 2 : 0;
      step.place = below(4) == 0 ? below(options.places) : 0;
    }
    add(step);
  }
  program.vars = static_cast<size_t>(next_var);
  return program;
}

}  // namespace mx::test
