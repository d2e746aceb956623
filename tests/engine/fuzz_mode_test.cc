// Mode fuzz: a random legal schedule that is a function of the seed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <future>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine/device/virtual/virtual_device.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::mode_case;

// Returns the order in which 200 operations run; ten variables are updated twenty times each.
std::vector<int> order_of(uint64_t seed, bool devices = false) {
  Engine e(mode_case(EngineMode::fuzz, "fuzz", seed).options);
  std::vector<Var> vars(10);
  for (Var& v : vars) v = e.new_var();
  std::vector<int> order;
  for (int i = 0; i < 200; ++i) {
    const Var v = vars[static_cast<size_t>(i % 10)];
    PushOptions options{.updates = {v}, .priority = i % 3};
    if (i % 5 == 0) options.lane = StreamKind::comm;
    if (devices && i % 7 == 0) options.context = virt(i % 2);
    e.push([&order, i] { order.push_back(i); }, options);
    if (i % 60 == 59) e.wait(v);
  }
  e.wait_all();
  return order;
}

TEST(FuzzMode, TheSameSeedGivesTheSameOrder) {
  for (uint64_t seed : {0, 1, 42}) {
    EXPECT_EQ(order_of(seed), order_of(seed));
    EXPECT_EQ(order_of(seed, true), order_of(seed, true));
  }
}

TEST(FuzzMode, DifferentSeedsGiveDifferentOrders) {
  std::set<std::vector<int>> orders;
  for (uint64_t seed = 0; seed < 10; ++seed) orders.insert(order_of(seed));
  EXPECT_EQ(10u, orders.size());
}

TEST(FuzzMode, OrdersAreLegalAndNotAlwaysThatOfThePushes) {
  bool differs = false;
  for (uint64_t seed = 0; seed < 10; ++seed) {
    const std::vector<int> order = order_of(seed);
    ASSERT_EQ(200u, order.size());
    std::vector<int> last(10, -1);
    for (int i : order) {
      EXPECT_LT(last[static_cast<size_t>(i % 10)], i);
      last[static_cast<size_t>(i % 10)] = i;
    }
    differs = differs || !std::is_sorted(order.begin(), order.end());
  }
  EXPECT_TRUE(differs);
}

// A program that polls for the effect of a push without calling the engine.
TEST(FuzzMode, WhatNobodyWaitsForRunsAfterAWhile) {
  for (uint64_t seed : {1, 2, 3}) {
    Engine e(mode_case(EngineMode::fuzz, "fuzz", seed).options);
    Var v = e.new_var();
    std::promise<void> done;
    for (int i = 0; i < 20; ++i) e.push([] {}, {.updates = {v}});
    e.push([&] { done.set_value(); }, {.updates = {v}});
    done.get_future().wait();
  }
}

// The environment variable sets the mode of engines whose options do not set one.
TEST(FuzzMode, IsChosenByTheEnvironment) {
  setenv("MX_ENGINE", "fuzz:7", 1);
  const EngineOptions options = EngineOptions::from_environment();
  EXPECT_EQ(EngineMode::fuzz, options.mode);
  EXPECT_EQ(7u, options.seed);
  for (const char* wrong : {"fuzz", "fuzz:", "fuzz:x", "fuzz:1x", "Naive", "threads"}) {
    setenv("MX_ENGINE", wrong, 1);
    const std::string text = test::error_of<InvalidArgument>([] { EngineOptions::from_environment(); });
    EXPECT_TRUE(test::contains(text, "MX_ENGINE") && test::contains(text, wrong)) << text;
  }
  for (const auto& [name, mode] :
       {std::pair{"threaded", EngineMode::threaded}, std::pair{"naive", EngineMode::naive},
        std::pair{"check", EngineMode::check}, std::pair{"", EngineMode::threaded}}) {
    setenv("MX_ENGINE", name, 1);
    EXPECT_EQ(mode, EngineOptions::from_environment().mode);
  }
  unsetenv("MX_ENGINE");
}

// Naive mode runs each operation inside its push.
TEST(NaiveMode, RunsAtThePush) {
  Engine e(mode_case(EngineMode::naive, "naive").options);
  Var v = e.new_var();
  for (int i = 0; i < 100; ++i) {
    int ran = 0;
    const auto me = std::this_thread::get_id();
    e.push([&] { ran = std::this_thread::get_id() == me ? 1 : 2; }, {.updates = {v}});
    EXPECT_EQ(1, ran);
  }
}

}  // namespace
}  // namespace mx
