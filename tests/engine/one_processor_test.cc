// An engine that is confined to one processor: no thread spins, and a pusher calls the monitor instead of a
// worker.
#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <random>
#include <thread>

#include "engine/engine.h"

namespace mx {
namespace {

using std::chrono::microseconds;
using std::chrono::steady_clock;

/// Runs f on a thread that is confined to the first processor of this process.
template <class F>
void on_one_processor(const F& f) {
  std::thread([&] {
    cpu_set_t allowed, one;
    CPU_ZERO(&one);
    ASSERT_EQ(0, sched_getaffinity(0, sizeof allowed, &allowed));
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&one) == 0; ++cpu)
      if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &one);
    ASSERT_EQ(0, sched_setaffinity(0, sizeof one, &one));
    f();
  }).join();
}

// The pusher neither waits nor pushes more, and the monitor falls asleep about a millisecond after the last
// operation. A push at that moment must not be lost.
TEST(OneProcessor, WhatNobodyWaitsForRuns) {
  on_one_processor([] {
    EngineOptions options;
    options.threads = 1;
    Engine engine(options);
    const Var v = engine.new_var();
    std::mt19937 random(1);
    std::atomic<int> done{0};
    for (int i = 1; i <= 400; ++i) {
      const auto push_at = steady_clock::now() + microseconds(900 + random() % 700);
      while (steady_clock::now() < push_at) std::this_thread::yield();
      engine.push([&] { ++done; }, {.updates = {v}});
      const auto deadline = steady_clock::now() + std::chrono::seconds(20);
      while (done.load() < i) {
        std::this_thread::yield();
        ASSERT_LT(steady_clock::now(), deadline) << "operation " << i;
      }
    }
    engine.wait_all();
  });
}

}  // namespace
}  // namespace mx
