// Random programs give bit for bit the results of a serial interpreter: in every mode, on the CPU and on
// virtual devices, from one pushing thread and from several.
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "engine/device/virtual/virtual_device.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/expect_state.h"
#include "tests/support/random_program.h"
#include "tests/support/spin.h"

namespace mx {
namespace {

using test::compute;
using test::make_random_program;
using test::RandomProgram;
using test::RandomProgramOptions;
using test::scaled_steps;
using test::SerialInterpreter;
using test::Step;

// Runs one program on one engine, pushed by one thread.
class Execution {
 public:
  Execution(Engine& engine, const RandomProgram& program)
      : engine_(engine),
        program_(program),
        oracle_(program.vars),
        values_(program.vars, 0),
        vars_(program.vars) {
    for (int v = 0; v < program.start_vars; ++v) {
      Step step;
      step.kind = Step::Kind::create;
      step.var = v;
      oracle_.run(step);
      vars_[static_cast<size_t>(v)] = engine_.new_var();
    }
  }

  /// Pushes the program. After about every `look_every` steps, waits for some variable and compares it; 0:
  /// never.
  void push_all(int look_every) {
    int countdown = look_every;
    for (const Step& step : program_.steps) {
      oracle_.run(step);
      push(step);
      if (look_every > 0 && --countdown == 0) {
        countdown = look_every;
        for (const std::vector<int>* list : {&step.writes, &step.reads, &step.updates}) {
          if (!list->empty()) check(list->front());
        }
      }
      if (testing::Test::HasFailure()) return;
    }
  }

  void check_all() {
    for (int v = 0; v < static_cast<int>(program_.vars); ++v) {
      if (oracle_.state(v).live) check(v);
      if (testing::Test::HasFailure()) return;
    }
  }

  void delete_all() {
    for (int v = 0; v < static_cast<int>(program_.vars); ++v) {
      if (oracle_.state(v).live) engine_.delete_var(vars_[static_cast<size_t>(v)]);
    }
  }

 private:
  std::vector<Var> handles(const std::vector<int>& ids) const {
    std::vector<Var> out;
    for (int v : ids) out.push_back(vars_[static_cast<size_t>(v)]);
    return out;
  }

  void push(const Step& step) {
    Var& var = vars_[static_cast<size_t>(step.var)];
    switch (step.kind) {
      case Step::Kind::create:
        var = engine_.new_var();
        return;
      case Step::Kind::remove:
        engine_.delete_var(var);
        return;
      case Step::Kind::recover:
        engine_.recover(var);
        return;
      case Step::Kind::op:
        break;
    }
    const std::vector<Var> reads = handles(step.reads), writes = handles(step.writes),
                           updates = handles(step.updates);
    PushOptions options{
        .reads = reads, .writes = writes, .updates = updates, .priority = step.priority, .name = "step"};
    if (step.place == 1) options.lane = StreamKind::comm;
    if (step.place >= 2) options.context = virt(step.place - 2);
    std::vector<uint64_t>* values = &values_;
    engine_.push(
        [&step, values](RunContext rc) {
          if (step.fails) {
            const auto spoil = [&step, values] {
              for (int v : step.writes) (*values)[static_cast<size_t>(v)] = 0xdead;
              for (int v : step.updates) (*values)[static_cast<size_t>(v)] = 0xdead;
            };
            // On a device, earlier readers may still be in flight, so only work on its stream may touch the
            // values.
            if (rc.stream() == nullptr) {
              spoil();
            } else {
              rc.stream()->submit([spoil](KernelContext&) { spoil(); });
            }
            throw std::runtime_error(test::failure_text(step.id));
          }
          if (rc.stream() == nullptr) {
            test::spin_for(step.spin_us);
            compute(step, *values);
            return;
          }
          rc.stream()->submit([&step, values](KernelContext&) {
            test::spin_for(step.spin_us);
            compute(step, *values);
          });
        },
        options);
  }

  void check(int v) {
    const auto i = static_cast<size_t>(v);
    test::expect_state(engine_, oracle_, v, vars_[i], values_[i]);
  }

  Engine& engine_;
  const RandomProgram& program_;
  SerialInterpreter oracle_;
  std::vector<uint64_t> values_;
  std::vector<Var> vars_;
};

void expect_drained(Engine& e) {
  try {
    e.wait_all();
  } catch (const OperationError&) {  // failures of the program itself
  }
  const EngineStats stats = e.stats();
  EXPECT_EQ(0u, stats.in_flight);
  EXPECT_EQ(0u, stats.vars);
}

using RandomPrograms = test::EngineTest;
INSTANTIATE_TEST_SUITE_P(Modes, RandomPrograms, ::testing::ValuesIn(test::all_cases()), test::CaseName());

void run_program(Engine& e, const RandomProgramOptions& options, int look_every) {
  SCOPED_TRACE(options.seed);
  const RandomProgram program = make_random_program(options);
  Execution execution(e, program);
  execution.push_all(look_every);
  execution.check_all();
  execution.delete_all();
  expect_drained(e);
}

TEST_P(RandomPrograms, EqualSerialExecution) {
  for (uint64_t seed = 1; seed <= 2 && !HasFailure(); ++seed) {
    run_program(e_, {.seed = seed, .steps = scaled_steps(10'000)}, 0);
  }
}

TEST_P(RandomPrograms, EqualSerialExecutionWhenLookedAtOnTheWay) {
  run_program(e_, {.seed = 11, .steps = scaled_steps(10'000)}, 17);
}

// Few variables give long queues and little parallelism; many variables give the opposite.
TEST_P(RandomPrograms, EqualSerialExecutionAtAnyDensity) {
  run_program(e_, {.seed = 21, .steps = scaled_steps(10'000), .live_vars = 4}, 0);
  run_program(e_, {.seed = 22, .steps = scaled_steps(10'000), .live_vars = 1000}, 0);
}

TEST_P(RandomPrograms, EqualSerialExecutionOnVirtualDevices) {
  for (int d = 0; d < 2; ++d) virtual_device(d).set_delay(5, 0, 30);
  for (uint64_t seed = 31; seed <= 32 && !HasFailure(); ++seed) {
    run_program(e_, {.seed = seed, .steps = scaled_steps(10'000), .places = 4}, seed == 31 ? 0 : 50);
  }
  for (int d = 0; d < 2; ++d) virtual_device(d).set_delay(0, 0, 0);
}

// Each thread runs a program over its own variables, and all programs go through one engine at the same time.
void run_eight_programs(Engine& e, int places, int steps) {
  constexpr size_t kThreads = 8;
  std::vector<RandomProgram> programs;
  for (size_t t = 0; t < kThreads; ++t) {
    programs.push_back(make_random_program({.seed = 41 + t, .steps = steps, .places = places}));
  }
  std::vector<std::unique_ptr<Execution>> executions(kThreads);
  std::vector<std::thread> threads;
  for (size_t t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      executions[t] = std::make_unique<Execution>(e, programs[t]);
      executions[t]->push_all(t % 2 == 0 ? 0 : 40);
      executions[t]->check_all();
      executions[t]->delete_all();
    });
  }
  for (std::thread& t : threads) t.join();
  expect_drained(e);
}

TEST_P(RandomPrograms, EqualSerialExecutionFromEightThreads) {
  run_eight_programs(e_, 2, scaled_steps(10'000));
}

TEST_P(RandomPrograms, EqualSerialExecutionFromEightThreadsOnVirtualDevices) {
  for (int d = 0; d < 2; ++d) virtual_device(d).set_delay(6, 0, 10);
  run_eight_programs(e_, 4, scaled_steps(10'000));
  for (int d = 0; d < 2; ++d) virtual_device(d).set_delay(0, 0, 0);
}

// Run at full length even under sanitizers, unlike the other tests: once from one thread and once from eight.
class WholeRandomPrograms : public ::testing::Test {
 protected:
  Engine e_{test::threaded_case(4).options};
};

TEST_F(WholeRandomPrograms, EqualSerialExecution) { run_program(e_, {.seed = 51, .steps = 10'000}, 0); }

TEST_F(WholeRandomPrograms, EqualSerialExecutionFromEightThreads) { run_eight_programs(e_, 2, 10'000); }

}  // namespace
}  // namespace mx
