// Compares StreamOrder with the serial program: random operations on random devices, with random failures and
// streams that advance at random. The values and the poisoned variables must be those of serial execution.
#include <gtest/gtest.h>

#include <random>
#include <set>

#include "tests/engine/stream_order_rig.h"

namespace mx::test {
namespace {

constexpr int kVars = 7;

struct Oracle {
  std::vector<int64_t> cells = std::vector<int64_t>(kVars);  // the last values that are not poisoned
  std::vector<std::set<std::string>> causes = std::vector<std::set<std::string>>(kVars);

  void run(int op, const OpSpec& spec) {
    std::set<std::string> inherited;
    for (const auto* list : {&spec.reads, &spec.updates}) {
      for (const int var : *list) {
        const auto& of_var = causes[static_cast<size_t>(var)];
        inherited.insert(of_var.begin(), of_var.end());
      }
    }
    // If an input is poisoned, an error on the device is a consequence of the first error and does not count.
    // An exception of the function does count.
    const bool fails = spec.fails_on_device || spec.fails_on_host;
    if (fails && (inherited.empty() || (spec.fails_on_host && !spec.context.is_cpu()))) {
      inherited.insert("op" + std::to_string(op));
    }
    const std::vector<int64_t> inputs = inputs_of(spec, cells);
    for (const auto* list : {&spec.writes, &spec.updates}) {
      for (const int var : *list) {
        causes[static_cast<size_t>(var)] = inherited;
        if (inherited.empty()) cells[static_cast<size_t>(var)] = value_of(op, var, inputs);
      }
    }
  }
};

OpSpec random_spec(std::mt19937& random, int failure_percent) {
  OpSpec spec;
  std::vector<int> vars(kVars);
  for (int i = 0; i < kVars; ++i) vars[static_cast<size_t>(i)] = i;
  std::shuffle(vars.begin(), vars.end(), random);
  const int reads = static_cast<int>(random() % 3);
  const int writes = static_cast<int>(random() % 2);
  const int updates = static_cast<int>(random() % 2);
  for (int i = 0; i < reads; ++i) spec.reads.push_back(vars[static_cast<size_t>(i)]);
  for (int i = 0; i < writes; ++i) spec.writes.push_back(vars[static_cast<size_t>(reads + i)]);
  for (int i = 0; i < updates; ++i) spec.updates.push_back(vars[static_cast<size_t>(reads + writes + i)]);
  if (random() % 5 == 0) {
    spec.context = cpu();
  } else {
    spec.context = fake(static_cast<int>(random() % 3));
    if (random() % 4 == 0) spec.lane = static_cast<StreamKind>(random() % 4);
  }
  if (static_cast<int>(random() % 100) < failure_percent) {
    // CPU operations, and half of the others, fail on the host.
    (spec.context.is_cpu() || random() % 2 ? spec.fails_on_host : spec.fails_on_device) = true;
  }
  return spec;
}

void run_random_program(uint32_t seed, int failure_percent, int streams) {
  std::mt19937 random(seed);
  Rig rig(kVars, streams);
  Oracle oracle;
  const int length = 20 + static_cast<int>(random() % 150);
  const int pace = 1 + static_cast<int>(random() % 12);
  for (int i = 0; i < length; ++i) {
    const OpSpec spec = random_spec(random, failure_percent);
    oracle.run(i, spec);
    rig.push(spec);
    run_some_steps(random, pace);
    if (random() % 3 == 0) rig.poll();
    if (random() % 7 == 0) rig.order.landed(rig.vars[random() % kVars]);
  }
  rig.finish();
  ASSERT_FALSE(rig.order.outstanding());
  for (int var = 0; var < kVars; ++var) {
    const auto& causes = oracle.causes[static_cast<size_t>(var)];
    const std::string found = rig.failure_of(var);
    ASSERT_EQ(found.empty(), causes.empty()) << "seed " << seed << " variable " << var << " " << found;
    ASSERT_TRUE(found.empty() || causes.contains(found))
        << "seed " << seed << " variable " << var << " " << found;
    if (found.empty() || rig.recoverable(var)) {
      ASSERT_EQ(rig.cells[static_cast<size_t>(var)], oracle.cells[static_cast<size_t>(var)])
          << "seed " << seed << " variable " << var;
    }
    ASSERT_EQ(rig.vars[static_cast<size_t>(var)]->marks, nullptr);
  }
}

TEST(StreamOrderRandom, MeansWhatTheSerialProgramMeans) {
  for (uint32_t seed = 0; seed < 600; ++seed) {
    run_random_program(seed, 0, 1 + static_cast<int>(seed % 5));
    if (HasFatalFailure()) return;
  }
}

TEST(StreamOrderRandom, PoisonsWhatTheSerialProgramPoisons) {
  for (uint32_t seed = 1000; seed < 1900; ++seed) {
    run_random_program(seed, 1 + static_cast<int>(seed % 12), 1 + static_cast<int>(seed % 5));
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace mx::test
