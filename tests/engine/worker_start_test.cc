// The engine calls workers when operations become ready, and in proportion to them. This determines how soon
// an operation starts. The tests show it by schedules and counts, not by the clock.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <latch>
#include <thread>
#include <vector>

#include "engine/base/cpus.h"
#include "engine/device/virtual/virtual_device.h"
#include "tests/support/engine_cases.h"
#include "tests/support/held.h"
#include "tests/support/spin.h"

namespace mx {
namespace {

using test::Gate;
using test::Hold;
using test::spin_for;

void wait_until_idle(Engine& e) {
  // (A thread in wait_all() would run operations itself.)
  while (e.stats().in_flight > 0) std::this_thread::yield();
}

// The engine takes the operations for short ones, which feed one worker, and they turn out to be long. Then
// one look of the monitor calls a worker for each; one worker a look would start the last operation many
// looks later.
TEST(WorkerStart, OneLookCallsAWorkerForEachOperationThatWaits) {
  constexpr int kThreads = 8;
  uint64_t fewest = UINT64_MAX;
  for (int round = 0; round < 3; ++round) {
    Engine e(test::threaded_case(kThreads).options);
    for (int i = 0; i < 2000; ++i) e.push([] {});
    wait_until_idle(e);
    const uint64_t before = e.stats().monitor_calls;
    std::latch all_run(kThreads);
    e.pause();
    for (int i = 0; i < kThreads; ++i) e.push([&] { all_run.arrive_and_wait(); });
    e.resume();
    wait_until_idle(e);
    fewest = std::min(fewest, e.stats().monitor_calls - before);
  }
  EXPECT_LE(fewest, 3u);
}

// Blocks all threads of an engine for the CPU, then calls `give`, which makes an operation of a device ready
// that counts `issued` down. Returns true if the operation was issued by a worker that the monitor has not
// called.
template <class Prepare, class Give>
bool issued_without_the_monitor(const Prepare& prepare, const Give& give) {
  constexpr int kThreads = 2;
  Engine e(test::threaded_case(kThreads).options);
  Gate gate;
  std::latch issued(1);
  prepare(e, issued);
  for (int i = 0; i < kThreads; ++i) e.push([&] { gate.pass(); });
  gate.entered(kThreads);
  const EngineStats before = e.stats();
  give(e, issued);
  issued.wait();
  const EngineStats after = e.stats();
  gate.open();
  e.wait_all();
  return after.monitor_calls == before.monitor_calls && after.worker_starts == before.worker_starts + 1;
}

// In a round in which this thread is preempted at the wrong moment the monitor comes first, hence several
// rounds.
template <class F>
bool in_one_round(const F& f) {
  bool found = false;
  for (int round = 0; round < 20 && !found; ++round) found = f();
  return found;
}

TEST(WorkerStart, APushToADeviceCallsAWorkerWhenAllThreadsAreBusy) {
  if (usable_cpus() < 2) GTEST_SKIP() << "on one processor the monitor calls all workers";
  for (const int priority : {0, 10}) {
    EXPECT_TRUE(in_one_round([&] {
      return issued_without_the_monitor([](Engine&, std::latch&) {},
                                        [&](Engine& e, std::latch& issued) {
                                          e.push([&](RunContext) { issued.count_down(); },
                                                 {.context = virt(0), .priority = priority});
                                        });
    })) << priority;
  }
}

TEST(WorkerStart, ACompletionThatMakesADeviceOperationReadyCallsAWorker) {
  if (usable_cpus() < 2) GTEST_SKIP() << "on one processor the monitor calls all workers";
  EXPECT_TRUE(in_one_round([] {
    Hold hold;
    return issued_without_the_monitor(
        [&](Engine& e, std::latch& issued) {
          const Var v = e.new_var();
          e.push_async(hold.operation(), {.writes = {v}});
          e.push([&](RunContext) { issued.count_down(); },
                 {.reads = {v}, .context = virt(0), .priority = 10});
          while (e.stats().running > 0 || e.stats().pushed != 2) std::this_thread::yield();
        },
        [&](Engine&, std::latch&) { hold.release(); });
  }));
}

// An urgent operation of a device passes the operations of that device that were pushed before it, those in
// the ring included, also if no thread of the CPU is free and the engine has to be told of it at the push.
TEST(WorkerStart, AnUrgentDeviceOperationIsIssuedBeforeAllThatWait) {
  constexpr int kThreads = 2, kEarlier = 500;
  Engine e(test::threaded_case(kThreads).options);
  Gate gate, issuing;
  for (int i = 0; i < kThreads; ++i) e.push([&] { gate.pass(); });
  gate.entered(kThreads);
  std::vector<int> order;  // written by the one issuer of the device
  e.push([&](RunContext) { issuing.pass(); }, {.context = virt(0)});
  issuing.entered();
  for (int i = 0; i < kEarlier; ++i)
    e.push([&order, i](RunContext) { order.push_back(i); }, {.context = virt(0), .priority = i % 3});
  e.push([&order](RunContext) { order.push_back(-1); }, {.context = virt(0), .priority = 10});
  issuing.open();
  while (e.stats().in_flight > kThreads) std::this_thread::yield();
  gate.open();
  e.wait_all();
  ASSERT_EQ(static_cast<size_t>(kEarlier + 1), order.size());
  EXPECT_EQ(-1, order[0]);
}

// Far ahead means more operations where more threads take them.
TEST(WorkerStart, HowFarAPusherMayBeAheadGrowsWithTheThreads) {
  if (processors() == 1) GTEST_SKIP() << "on one processor pushers are held by the ring";
  constexpr uint64_t kPerThread = 256, kBetweenChecks = 64;
  for (const uint64_t threads : {2, 4, 8}) {
    Engine e(test::threaded_case(static_cast<int>(threads)).options);
    const Var v = e.new_var();
    // Operations are long. Each has a batch of its own; some of the batches are measured.
    for (int i = 0; i < 64; ++i) {
      e.push([] { spin_for(100); }, {.updates = {v}});
      e.wait(v);
    }
    ASSERT_EQ(0u, e.stats().throttled);
    Gate gate;
    e.push([&] { gate.pass(); }, {.updates = {v}});
    gate.entered();
    uint64_t ahead = 1;
    for (; e.stats().throttled == 0 && ahead < 10'000; ++ahead) e.push([] {}, {.updates = {v}});
    EXPECT_GT(ahead, threads * kPerThread) << threads;
    EXPECT_LE(ahead, threads * kPerThread + 2 * kBetweenChecks) << threads;
    gate.open();
    e.wait_all();
  }
}

}  // namespace
}  // namespace mx
