// Replays of segments that are not plain, in the case of failures, cancellation and lost devices.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <memory>
#include <stdexcept>
#include <vector>

#include "engine/device/virtual/virtual_device.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"
#include "tests/support/stream_ops.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::Hold;

using SegmentGroupErrors = test::EngineTest;
INSTANTIATE_TEST_SUITE_P(Modes, SegmentGroupErrors, ::testing::ValuesIn(test::all_cases()), test::CaseName());

// The modes in which device work may be blocked.
class SegmentGroupDevices : public test::EngineTest {
 protected:
  std::unique_ptr<test::Meeting> gate() { return test::stream_ops(virt(0)).new_meeting(2); }
  /// Waits until at most `in_flight` operations are in flight.
  void drain_to(uint64_t in_flight) {
    Var v = e_.new_var();
    while (e_.stats().in_flight > in_flight) e_.push([] {}, {.writes = {v}}), e_.wait(v);
    e_.delete_var(v);
    e_.wait(v_);
  }
  Var v_ = e_.new_var();
};
INSTANTIATE_TEST_SUITE_P(Modes, SegmentGroupDevices, ::testing::ValuesIn(test::worker_cases()),
                         test::CaseName());

void fail_kernel(Stream& stream) {
  stream.submit([](KernelContext&) { throw std::runtime_error("broken"); });
}

// --- The replay fails as a whole.

class Kind {
 public:
  const char* name;
  /// Pushes the node that fails if `fails` is set.
  void (*push)(Engine&, const bool& fails, Var writes);
};

const Kind kKinds[] = {
    {"sync",
     [](Engine& e, const bool& fails, Var v) {
       e.push(
           [&fails] {
             if (fails) throw std::runtime_error("broken");
           },
           {.writes = {v}, .priority = 1, .name = "bad"});
     }},
    {"comm",
     [](Engine& e, const bool& fails, Var v) {
       e.push(
           [&fails] {
             if (fails) throw std::runtime_error("broken");
           },
           {.writes = {v}, .name = "bad", .lane = StreamKind::comm});
     }},
    {"token",
     [](Engine& e, const bool& fails, Var v) {
       e.push_async(
           [&fails](RunContext, Completion done) {
             if (fails) return done.fail(std::make_exception_ptr(std::runtime_error("broken")));
             done();
           },
           {.writes = {v}, .name = "bad"});
     }},
    {"throwing async",
     [](Engine& e, const bool& fails, Var v) {
       e.push_async(
           [&fails](RunContext, Completion done) {
             if (fails) throw std::runtime_error("broken");
             done();
           },
           {.writes = {v}, .name = "bad"});
     }},
    {"dropped token",
     [](Engine& e, const bool& fails, Var v) {
       e.push_async(
           [&fails](RunContext, Completion done) {
             if (!fails) done();
           },
           {.writes = {v}, .name = "bad"});
     }},
    {"function of a device",
     [](Engine& e, const bool& fails, Var v) {
       e.push(
           [&fails](RunContext) {
             if (fails) throw std::runtime_error("broken");
           },
           {.writes = {v}, .context = virt(0), .name = "bad"});
     }},
    {"asynchronous function of a device",
     [](Engine& e, const bool& fails, Var v) {
       e.push_async(
           [&fails](RunContext, Completion done) {
             if (fails) throw std::runtime_error("broken");
             done();
           },
           {.writes = {v}, .context = virt(0), .name = "bad"});
     }},
    {"kernel",
     [](Engine& e, const bool& fails, Var v) {
       e.push(
           [&fails](RunContext run) {
             if (fails) fail_kernel(*run.stream());
           },
           {.writes = {v}, .context = virt(0), .name = "bad"});
     }},
    {"kernel, by token",
     [](Engine& e, const bool& fails, Var v) {
       e.push_async(
           [&fails](RunContext run, Completion done) {
             if (fails) fail_kernel(*run.stream());
             done();
           },
           {.writes = {v}, .context = virt(0), .name = "bad"});
     }},
};

TEST_P(SegmentGroupErrors, AFailingNodeFailsTheWholeReplayAndTheNextWriteHeals) {
  for (const Kind& kind : kKinds) {
    SCOPED_TRACE(kind.name);
    Var before = e_.new_var(), bad = e_.new_var(), behind = e_.new_var(), beside = e_.new_var(),
        updated = e_.new_var(), read = e_.new_var(), outside = e_.new_var();
    bool fails = false;
    int ran_behind = 0, ran_outside = 0;
    Segment s = e_.record([&] {
      e_.push([] {}, {.reads = {read}, .writes = {before}});
      kind.push(e_, fails, bad);
      e_.push([] {}, {.reads = {read}, .writes = {beside}});
      e_.push([] {}, {.reads = {before}, .updates = {updated}});
      e_.push([&] { ++ran_behind; }, {.reads = {bad}, .writes = {behind}});
    });
    for (int round = 0; round < 3; ++round) {
      fails = false;
      ran_behind = ran_outside = 0;
      e_.push([] {}, {.writes = {updated}});
      s.replay();
      e_.push([&] { ++ran_outside; }, {.reads = {bad, beside, updated}, .writes = {outside}});
      e_.wait(outside);
      e_.wait_all();
      EXPECT_EQ(1, ran_behind);
      EXPECT_EQ(1, ran_outside);
      const uint64_t failed = e_.stats().failed;
      fails = true;
      s.replay();
      e_.push([&] { ++ran_outside; }, {.reads = {beside}, .writes = {outside}});
      for (Var v : {before, bad, behind, beside, updated, outside, bad}) {
        const std::string text = error_of<OperationError>([&] { e_.wait(v); });
        EXPECT_TRUE(contains(text, "[bad]")) << text;
        EXPECT_TRUE(contains(text, "segment_group_errors_test.cc")) << text;
      }
      e_.wait(read);
      EXPECT_EQ(1, ran_behind);
      EXPECT_EQ(1, ran_outside);
      const std::string all = error_of<OperationError>([&] { e_.wait_all(); });
      EXPECT_TRUE(contains(all, "[bad]")) << all;
      EXPECT_FALSE(contains(all, "more operations failed")) << all;
      EXPECT_EQ(failed + 1, e_.stats().failed);
      EXPECT_EQ(0u, e_.stats().in_flight);
    }
  }
}

TEST_P(SegmentGroupErrors, TheFirstFailureCounts) {
  Var v = e_.new_var(), w = e_.new_var(), x = e_.new_var();
  Segment s = e_.record([&] {
    e_.push([] { throw std::runtime_error("one"); }, {.writes = {v}, .priority = 1, .name = "first"});
    e_.push([] { throw std::runtime_error("two"); }, {.writes = {w}, .name = "second"});
    e_.push([] {}, {.reads = {v, w}, .writes = {x}});
  });
  s.replay();
  const std::string root = error_of<OperationError>([&] { e_.wait(x); });
  for (Var var : {v, w}) EXPECT_EQ(root, error_of<OperationError>([&] { e_.wait(var); }));
  EXPECT_EQ(root, error_of<OperationError>([&] { e_.wait_all(); }));
}

TEST_P(SegmentGroupErrors, AReplayOverPoisonIsSkippedAndWhatItUpdatesCanBeRecovered) {
  Var in = e_.new_var(), weight = e_.new_var(), out = e_.new_var();
  int n = 0;
  Segment s = e_.record([&] {
    e_.push([&] { ++n; }, {.reads = {in}, .updates = {weight}, .priority = 1});
    e_.push([&] { ++n; }, {.reads = {weight}, .writes = {out}});
  });
  e_.push([] { throw std::runtime_error("before"); }, {.writes = {in}});
  for (int i = 0; i < 3; ++i) s.replay();
  for (Var v : {weight, out}) EXPECT_TRUE(contains(error_of<OperationError>([&] { e_.wait(v); }), "before"));
  e_.recover(weight);
  e_.wait(weight);
  EXPECT_EQ(0, n);
  error_of<OperationError>([&] { e_.wait_all(); });
  EXPECT_EQ(3u, e_.stats().skipped);
  e_.push([] {}, {.writes = {in}});
  s.replay();
  e_.wait(out);
  EXPECT_EQ(2, n);
}

// Each skipped replay ends the next one. This must not recurse, or a long row would overflow the stack.
TEST_P(SegmentGroupErrors, ALongRowOfReplaysIsSkipped) {
  Var in = e_.new_var(), out = e_.new_var();
  int n = 0;
  Segment s = e_.record([&] { e_.push([&] { ++n; }, {.reads = {in}, .writes = {out}, .priority = 1}); });
  Completion token;
  e_.push_async([&](RunContext, Completion done) { token = std::move(done); }, {.writes = {in}});
  for (int i = 0; i < 30'000; ++i) s.replay();
  while (!token) e_.wait_all(1);
  token.fail(std::make_exception_ptr(std::runtime_error("no")));
  error_of<OperationError>([&] { e_.wait(out); });
  error_of<OperationError>([&] { e_.wait_all(); });
  EXPECT_EQ(0, n);
  EXPECT_EQ(0u, e_.stats().in_flight);
}

// If the segment writes a variable before it reads it, an earlier failure of that variable does not fail the
// segment.
TEST_P(SegmentGroupErrors, WhatItWritesFirstMayHaveBeenPoisoned) {
  for (const Context where : {cpu(), virt(0)}) {
    Var v = e_.new_var(), out = e_.new_var();
    int n = 0;
    Segment s = e_.record([&] {
      e_.push([](RunContext) {}, {.writes = {v}, .context = where, .priority = 1});
      e_.push([](RunContext) {}, {.updates = {v}, .context = where});
      e_.push([&] { ++n; }, {.reads = {v}, .writes = {out}});
    });
    e_.push([] { throw std::runtime_error("old"); }, {.writes = {v}});
    s.replay();
    e_.wait(out);
    e_.wait(v);
    EXPECT_EQ(1, n);
    error_of<OperationError>([&] { e_.wait_all(); });
  }
}

// --- Cancelling.

TEST_P(SegmentGroupErrors, CancelEndsAReplayThatRunsAndThoseThatWait) {
  Hold hold;
  Var v = e_.new_var(), w = e_.new_var();
  std::atomic<int> started{0};
  int ran = 0;
  Segment s = e_.record([&] {
    e_.push_async([&, inner = hold.operation()](RunContext run,
                                                Completion done) { ++started, inner(run, std::move(done)); },
                  {.writes = {v}});
    e_.push([&] { ++ran; }, {.reads = {v}, .writes = {w}});
  });
  s.replay();
  s.replay();
  while (started.load() == 0) e_.wait_all(1);
  e_.cancel();
  hold.release();
  error_of<Cancelled>([&] { e_.wait(w); });
  error_of<Cancelled>([&] { e_.wait(v); });
  error_of<Cancelled>([&] { e_.wait_all(); });
  EXPECT_EQ(1, started.load());
  EXPECT_EQ(0, ran);
  EXPECT_EQ(0u, e_.stats().in_flight);
  s.replay();
  e_.wait(w);
  e_.wait_all();
  EXPECT_EQ(1, ran);
}

TEST_P(SegmentGroupErrors, CancelLeavesAReplayAloneOfWhichAllHasStarted) {
  Hold hold;
  Var v = e_.new_var();
  std::atomic<int> started{0};
  Segment s = e_.record([&] {
    e_.push([] {}, {.writes = {v}, .priority = 1});
    e_.push_async([&, inner = hold.operation()](RunContext run,
                                                Completion done) { ++started, inner(run, std::move(done)); },
                  {.updates = {v}});
  });
  s.replay();
  while (started.load() == 0) e_.wait_all(1);
  e_.cancel();
  hold.release();
  e_.wait(v);
  e_.wait_all();
}

// --- Devices.

TEST_P(SegmentGroupDevices, AFailureAfterTheEndPoisonsWhatCameFromIt) {
  auto gate = this->gate();
  Var bad = e_.new_var(), next = e_.new_var(), replaced = e_.new_var(), good = e_.new_var(),
      host = e_.new_var();
  Segment s = e_.record([&] {
    e_.push(
        [&](RunContext run) {
          gate->attend(*run.stream());
          fail_kernel(*run.stream());
        },
        {.writes = {bad, replaced}, .context = virt(0), .name = "bad"});
    e_.push([](RunContext) {}, {.reads = {bad}, .writes = {next}, .context = virt(1)});
    e_.push([](RunContext) {}, {.writes = {replaced}, .context = virt(0)});
    e_.push([](RunContext) {}, {.writes = {good}, .context = virt(1)});
    e_.push([] {}, {.writes = {host}});
  });
  s.replay();
  e_.wait(host);  // the replay has ended, but its device work has not
  EXPECT_FALSE(e_.wait(bad, 0));
  EXPECT_FALSE(e_.wait(next, 0));
  EXPECT_FALSE(e_.wait_all(0));
  gate->host_attends();
  for (Var v : {bad, next}) {
    const std::string text = error_of<OperationError>([&] { e_.wait(v); });
    EXPECT_TRUE(contains(text, "[bad]") && contains(text, "segment_group_errors_test.cc")) << text;
  }
  for (Var v : {replaced, good, host}) e_.wait(v);
  error_of<OperationError>([&] { e_.wait_all(); });
  EXPECT_EQ(0u, e_.stats().in_flight);
  EXPECT_TRUE(gate->all_met());
}

// Two nodes write a variable. The first has ended on its device, the second has not.
TEST_P(SegmentGroupDevices, AVersionHasLandedWhenItsLastNodeHas) {
  auto first = this->gate(), second = this->gate();
  Var v = e_.new_var(), host = e_.new_var();
  Segment s = e_.record([&] {
    e_.push([&](RunContext run) { first->attend(*run.stream()); }, {.writes = {v}, .context = virt(0)});
    e_.push([&](RunContext run) { second->attend(*run.stream()); }, {.writes = {v}, .context = virt(1)});
    e_.push([] {}, {.writes = {host}});
  });
  s.replay();
  e_.wait(host);
  EXPECT_EQ(2u, e_.stats().in_flight);
  first->host_attends();
  drain_to(1);
  EXPECT_FALSE(e_.wait(v, 0));
  second->host_attends();
  e_.wait(v);
  EXPECT_TRUE(first->all_met() && second->all_met());
}

// The same, but the first node ends before the replay does.
TEST_P(SegmentGroupDevices, AVersionHasLandedWhenItsLastNodeHasThoughAnotherDidEarlier) {
  auto first = this->gate(), reader = this->gate(), second = this->gate();
  Hold hold;
  std::latch reading(1), written(1), updating(1);
  Var v = e_.new_var(), order = e_.new_var();
  Segment s = e_.record([&] {
    e_.push([&](RunContext run) { first->attend(*run.stream()); }, {.writes = {v}, .context = virt(0)});
    e_.push(
        [&](RunContext run) {
          reader->attend(*run.stream());
          reading.count_down();
        },
        {.reads = {v}, .writes = {order}, .context = virt(1)});
    // Runs on the CPU: it starts when the write has ended on its device.
    e_.push_async(
        [&, inner = hold.operation()](RunContext run, Completion done) {
          written.count_down();
          inner(run, std::move(done));
        },
        {.reads = {v}});
    e_.push(
        [&](RunContext run) {
          second->attend(*run.stream());
          updating.count_down();
        },
        {.updates = {v}, .context = virt(0)});
  });
  s.replay();
  reading.wait();  // from now on the engine must keep the variable's device state
  first->host_attends();
  written.wait();
  hold.release();
  updating.wait();
  Var end = e_.new_var();
  e_.push_async([](RunContext, Completion done) { done(); }, {.reads = {order}, .writes = {end}});
  EXPECT_FALSE(e_.wait(v, 0));
  reader->host_attends();
  e_.wait(end);  // the replay has ended when this returns
  EXPECT_FALSE(e_.wait(v, 0));
  second->host_attends();
  e_.wait(v);
  EXPECT_TRUE(first->all_met() && reader->all_met() && second->all_met());
}

// A failure that is detected while the replay holds the variables that it reads.
TEST_P(SegmentGroupDevices, AnInputThatFailsOnItsDeviceSkipsTheReplay) {
  auto gate = this->gate();
  Hold hold;
  Var in = e_.new_var(), out = e_.new_var(), weight = e_.new_var(), order = e_.new_var();
  bool ran = false;
  e_.push(
      [&](RunContext run) {
        gate->attend(*run.stream());
        fail_kernel(*run.stream());
      },
      {.writes = {in}, .context = virt(0), .name = "before"});
  Segment s = e_.record([&] {
    e_.push([&] { ran = true; }, {.reads = {in}, .updates = {weight}, .priority = 1});
    e_.push([](RunContext) {}, {.reads = {weight}, .writes = {out}, .context = virt(1)});
  });
  s.replay();
  e_.push([] {}, {.writes = {order}});
  e_.wait(order);
  gate->host_attends();
  for (Var v : {in, out, weight})
    EXPECT_TRUE(contains(error_of<OperationError>([&] { e_.wait(v); }), "[before]"));
  EXPECT_FALSE(ran);
  e_.recover(weight);  // the skipped replay left its value intact
  e_.wait(weight);
  error_of<OperationError>([&] { e_.wait_all(); });
  EXPECT_EQ(1u, e_.stats().failed);
}

// A version that the replay overwrites is found to be poisoned while the replay holds the variable.
TEST_P(SegmentGroupDevices, TheFailureOfAReplacedVersionIsNotTheReplays) {
  auto gate = this->gate();
  Var v = e_.new_var(), w = e_.new_var(), out = e_.new_var();
  int n = 0;
  std::latch enqueued(2);
  Segment s = e_.record([&] {
    e_.push([&](RunContext) { enqueued.count_down(); }, {.writes = {v}, .context = virt(1)});
    e_.push([&] { ++n; }, {.reads = {v}, .writes = {out}});
    e_.push([&](RunContext) { enqueued.count_down(); }, {.reads = {v}, .writes = {w}, .context = virt(0)});
  });
  e_.push(
      [&](RunContext run) {
        gate->attend(*run.stream());
        fail_kernel(*run.stream());
      },
      {.writes = {v}, .context = virt(0), .name = "old"});
  s.replay();
  enqueued.wait();
  gate->host_attends();
  for (Var var : {out, v, w}) e_.wait(var);
  EXPECT_EQ(1, n);
  EXPECT_TRUE(contains(error_of<OperationError>([&] { e_.wait_all(); }), "[old]"));
}

TEST_P(SegmentGroupDevices, ATokenUsedAfterTheDeviceHasFailedDoesNotHideIt) {
  Var v = e_.new_var(), w = e_.new_var();
  Completion token;
  std::latch has_token(1);
  Segment s = e_.record([&] {
    e_.push_async(
        [&](RunContext run, Completion done) {
          fail_kernel(*run.stream());
          token = std::move(done);
          has_token.count_down();
        },
        {.writes = {v}, .context = virt(0), .name = "bad"});
    e_.push([] {}, {.writes = {w}});
  });
  s.replay();
  has_token.wait();
  drain_to(1);
  EXPECT_EQ(1u, e_.stats().failed);
  EXPECT_FALSE(e_.wait(v, 0));
  token.done();
  for (Var var : {v, w}) EXPECT_TRUE(contains(error_of<OperationError>([&] { e_.wait(var); }), "[bad]"));
  error_of<OperationError>([&] { e_.wait_all(); });
  EXPECT_EQ(1u, e_.stats().failed);
}

TEST_P(SegmentGroupDevices, ALostDeviceFailsTheReplay) {
  struct Restore {
    ~Restore() { virtual_device(2).restore(); }
  } restore;
  Engine e(GetParam().options);
  Var a = e.new_var(), b = e.new_var(), c = e.new_var();
  int n = 0;
  Segment s = e.record([&] {
    e.push([](RunContext) {}, {.writes = {a}, .context = virt(2), .name = "lost"});
    e.push([&] { ++n; }, {.reads = {a}, .writes = {b}});
    e.push([](RunContext) {}, {.writes = {c}, .context = virt(1)});
  });
  s.replay();
  e.wait_all();
  EXPECT_EQ(1, n);
  virtual_device(2).lose();
  for (int i = 0; i < 2; ++i) {
    s.replay();
    for (Var v : {a, b, c}) EXPECT_TRUE(contains(error_of<DeviceError>([&] { e.wait(v); }), "[lost]"));
    error_of<DeviceError>([&] { e.wait_all(); });
  }
  EXPECT_EQ(1, n);
  e.push([](RunContext) {}, {.writes = {c}, .context = virt(1)});
  e.wait(c);
}

}  // namespace
}  // namespace mx
