// With inputs so large that parallel loops split, every operator gives the same bits on any number of
// threads, in every mode and on a virtual device.
#include <gtest/gtest.h>

#include <functional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "engine/engine.h"
#include "ndarray/kernels/parallel.h"
#include "tests/operators/registry_support.h"
#include "tests/support/engine_cases.h"
#include "tests/support/large_sample.h"
#include "tests/support/thread_limit.h"

namespace mx {
namespace {

using test::Content;
using test::label;
using test::outcome;

// The size of the largest array: several pieces of a loop, about 260000 f32 elements. Under sanitizers only
// about two pieces.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr double kLargeBytes = 1 << 18;
#else
constexpr double kLargeBytes = 1 << 20;
#endif
// ThreadSanitizer makes a pass over all operators take 16 s. What it looks for is found with the most
// threads.
#if defined(__SANITIZE_THREAD__)
constexpr bool kFewPasses = true;
#else
constexpr bool kFewPasses = false;
#endif

struct LargeCase {
  const Operator* op;
  Sample sample;
};

/// Returns the cases. Their arrays belong to the engine of the calling thread.
std::vector<LargeCase> large_cases() {
  std::vector<LargeCase> list;
  for (const Operator* op : all_operators())
    if (auto sample = test::large_sample(*op, kLargeBytes)) list.push_back({op, *sample});
  return list;
}

std::vector<Content> outcome_of(const LargeCase& c) {
  return outcome(*c.op, c.sample.attrs, c.sample.inputs);
}

/// Returns a hash of each operator's result, by the label of its case; the results themselves would take many
/// megabytes.
std::map<std::string, size_t> all_outcomes(const std::vector<LargeCase>& cases) {
  std::map<std::string, size_t> hashes;
  for (const LargeCase& c : cases) {
    size_t& hash = hashes[label(*c.op, c.sample)];
    for (const Content& content : outcome_of(c)) {
      const std::string_view bits(reinterpret_cast<const char*>(content.bytes.data()), content.bytes.size());
      hash = hash * 31 + std::hash<std::string_view>()(bits);
    }
  }
  return hashes;
}

void expect_same(const std::map<std::string, size_t>& expected, const std::map<std::string, size_t>& got,
                 const std::string& where) {
  ASSERT_EQ(expected.size(), got.size());
  for (const auto& [name, hash] : expected) EXPECT_EQ(hash, got.at(name)) << name << " in " << where;
}

TEST(RegistryThreads, AlmostEveryOperatorHasALargeSample) {
  std::set<std::string> without;
  for (const Operator* op : all_operators()) without.insert(op->name());
  const std::vector<LargeCase> cases = large_cases();
  for (const LargeCase& c : cases) without.erase(c.op->name());
  EXPECT_EQ((std::set<std::string>{"random_key"}), without);  // its result is always two numbers
  for (const LargeCase& c : cases) {
    const auto results = call(*c.op, c.sample.attrs, c.sample.inputs);
    EXPECT_GT(test::touched_bytes(*c.op, c.sample, results), kLargeBytes / 2) << c.op->name();
  }
}

// Operations run in the calling thread, and their loops use as many threads as they may.
TEST(RegistryThreads, OneTwoAndFourThreadsGiveTheSameBits) {
  Engine engine(test::mode_case(EngineMode::naive, "naive").options);
  const EngineScope scope(engine);
  const std::vector<LargeCase> cases = large_cases();
  std::map<std::string, size_t> expected;
  test::with_threads(1, [&] { expected = all_outcomes(cases); });
  for (const int threads : {2, 4}) {
    if (kFewPasses && threads == 2) continue;
    test::with_threads(
        threads, [&] { expect_same(expected, all_outcomes(cases), std::to_string(threads) + " threads"); });
  }
}

TEST(RegistryThreads, EveryEngineGivesTheSameBitsOfLargeArrays) {
  const auto expected = all_outcomes(large_cases());
  std::vector<test::EngineCase> engines = {test::threaded_case(2),
                                           test::mode_case(EngineMode::fuzz, "fuzz", 7)};
  if (!kFewPasses) {
    engines.push_back(test::threaded_case(1));
    engines.push_back(test::mode_case(EngineMode::naive, "naive"));
  }
  for (const test::EngineCase& c : engines) {
    Engine engine(c.options);
    const EngineScope scope(engine);
    expect_same(expected, all_outcomes(large_cases()), c.name);
  }
}

TEST(RegistryThreads, AVirtualDeviceGivesTheSameBitsOfLargeArrays) {
  for (const LargeCase& c : large_cases()) {
    if (c.sample.inputs.empty()) continue;
    LargeCase moved = c;
    for (NDArray& input : moved.sample.inputs) input = input.to(virt(0));
    EXPECT_TRUE(outcome_of(c) == outcome_of(moved)) << label(*c.op, c.sample);
  }
}

}  // namespace
}  // namespace mx
