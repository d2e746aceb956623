// Segments that replay as a device graph: results, order and cost.
#include <cstring>
#include <latch>
#include <random>
#include <thread>

#include "engine/device/virtual/virtual_device.h"
#include "tests/engine/segment_graph_suite.h"

namespace mx::test {
namespace {

constexpr int kGraphDevices = 2;

void set_graph_delays() {
  for (int id = 0; id < kGraphDevices; ++id)
    virtual_device(id).set_delay(17 + static_cast<uint64_t>(id), 0, 60);
}
void end_graph_delays() {
  for (int id = 0; id < kGraphDevices; ++id) virtual_device(id).set_delay(0, 0, 0);
}

INSTANTIATE_TEST_SUITE_P(
    Virtual, GraphSegments,
    ::testing::Values(StreamSuiteParam{"quick", {virt(0), virt(1)}},
                      StreamSuiteParam{"slow", {virt(0), virt(1)}, set_graph_delays, end_graph_delays}),
    name_of);
INSTANTIATE_TEST_SUITE_P(Gpu, GraphSegments, ::testing::Values(StreamSuiteParam{"one", {gpu(0)}}), name_of);

// Compares random programs of fills, sums and copies in both directions over a few arrays with plain loops.
TEST_P(GraphSegments, ReplaysEqualSerialExecutionBitForBit) {
  constexpr size_t kArrays = 6, kSize = 37;
  for (const unsigned seed : {1u, 2u, 3u, 4u, 5u}) {
    SCOPED_TRACE(seed);
    Engine& engine = start();
    std::mt19937 random(seed);
    struct Step {
      int kind;  // 0 and 1: sum, 2: fill, 3: copy in, 4: copy out
      size_t a, b, out;
    };
    std::vector<Step> steps;
    for (int i = 0; i < 60; ++i)
      steps.push_back(
          {static_cast<int>(random() % 5), random() % kArrays, random() % kArrays, random() % kArrays});
    std::vector<std::vector<double>> expected(kArrays, std::vector<double>(kSize));
    std::vector<double> in(kSize), out(kSize), expected_in(kSize), expected_out(kSize);
    const Var in_var = engine.new_var(), out_var = engine.new_var();
    {
      std::vector<std::unique_ptr<StreamArray>> arrays;
      for (size_t i = 0; i < kArrays; ++i) {
        arrays.push_back(array(kSize));
        push_fill(*arrays[i], 0.1 * static_cast<double>(i));
        expected[i].assign(kSize, 0.1 * static_cast<double>(i));
      }
      Segment segment = engine.record([&] {
        for (const Step& step : steps) {
          if (step.kind < 2) push_add(*arrays[step.a], *arrays[step.b], *arrays[step.out]);
          if (step.kind == 2) push_fill(*arrays[step.out], static_cast<double>(step.a) / 3);
          if (step.kind == 3) push_copy_in(in, in_var, *arrays[step.out]);
          if (step.kind == 4) push_copy_out(*arrays[step.a], out, out_var);
        }
      });
      EXPECT_GT(segment.edges(), 0u);
      for (int replay = 0; replay < 8; ++replay) {
        const size_t changed = random() % kArrays;
        engine.push([&in, replay] { in[5] = replay / 7.0; }, {.updates = {in_var}});
        push_add(*arrays[changed], *arrays[0], *arrays[changed]);
        segment.replay();
        expected_in[5] = replay / 7.0;
        const auto sum = [&](size_t a, size_t b, size_t to) {
          for (size_t i = 0; i < kSize; ++i) expected[to][i] = expected[a][i] + expected[b][i];
        };
        sum(changed, 0, changed);
        for (const Step& step : steps) {
          if (step.kind < 2) sum(step.a, step.b, step.out);
          if (step.kind == 2) expected[step.out].assign(kSize, static_cast<double>(step.a) / 3);
          if (step.kind == 3) expected[step.out] = expected_in;
          if (step.kind == 4) expected_out = expected[step.a];
        }
        if (replay % 3 != 2) continue;
        for (size_t i = 0; i < kArrays; ++i) {
          const std::vector<double> got = values(*arrays[i]);
          ASSERT_EQ(std::memcmp(got.data(), expected[i].data(), kSize * sizeof(double)), 0) << "array " << i;
        }
        engine.wait(out_var);
        ASSERT_EQ(std::memcmp(out.data(), expected_out.data(), kSize * sizeof(double)), 0);
      }
      engine.wait_all();
    }
    engine_.reset();
  }
}

TEST_P(GraphSegments, AReplayTakesItsPlaceAmongOperationsOfOtherStreamsAndDevices) {
  Engine& engine = start(4);
  auto a = array(8), b = array(8), c = array(8), far = array(8, 1);
  push_fill(*a, 0);
  push_fill(*b, 0);
  Segment segment = engine.record([&] {
    push_add(*a, *b, *a);
    push_add(*a, *a, *c);
  });
  std::vector<double> host(8);
  const Var host_var = engine.new_var();
  double expected_a = 0, expected_b = 0, expected_c = 0;
  for (int i = 0; i < 30; ++i) {
    push_fill(*b, i);  // ordered before the replay, on any stream
    push_add(*a, *b, *a);
    segment.replay();
    push_add(*c, *c, *c);  // ordered after the replay
    push_copy_out(*c, host, host_var);
    push_copy_in(host, host_var, *far);  // through the host to another device and back
    push_copy_out(*far, host, host_var);
    push_copy_in(host, host_var, *a);
    expected_b = i;
    expected_a += 2 * expected_b;
    expected_c = 4 * expected_a;
    expected_a = expected_c;
    if (i % 10 == 9) {
      push_fill(*a, 1);
      expected_a = 1;
    }
  }
  EXPECT_EQ(values(*c), std::vector<double>(8, expected_c));
  EXPECT_EQ(values(*far), std::vector<double>(8, expected_c));
  engine.wait_all();
}

TEST_P(GraphSegments, AReplayIsOneOperationOfItsDevice) {
  Engine& engine = start();
  auto a = array(4), b = array(4), c = array(4);
  for (auto* x : {a.get(), b.get(), c.get()}) push_fill(*x, 1);
  Segment segment = engine.record([&] {
    for (int i = 0; i < 10; ++i) push_add(*a, *b, *c);
    for (int i = 0; i < 3; ++i) push_add(*b, *c, *a);
  });
  engine.wait_all();
  const EngineStats before = engine.stats();
  for (int i = 0; i < 20; ++i) segment.replay();
  engine.wait_all();
  EXPECT_EQ(engine.stats().stream_ops - before.stream_ops, 20u);
  EXPECT_EQ(engine.stats().pushed - before.pushed, 20u);
  EXPECT_EQ(engine.stats().stream_waits, before.stream_waits);
}

TEST_P(GraphSegments, FunctionsAreCalledByTheFirstTwoReplaysWhenTheseHaveTheirTurn) {
  Engine& engine = start();
  auto a = array(4), one = array(4);
  push_fill(*a, 0);
  push_fill(*one, 1);
  std::atomic<int> calls{0};
  const Var size = engine.new_var();
  size_t elements = 0;  // computed by a host operation that the segment depends on
  Segment segment = engine.record([&] {
    push_counted(*a, *one, calls);
    push_counted(*a, *one, calls);
    engine.push([&](RunContext run) { ops().fill(*run.stream(), a->memory.data(), elements, 7); },
                {.reads = {size}, .updates = {a->var}, .context = device(), .name = "sized"});
  });
  engine.wait_all();
  EXPECT_EQ(calls, 0);
  engine.pause();
  engine.push([&] { elements = 2; }, {.writes = {size}});
  segment.replay();
  segment.replay();
  EXPECT_EQ(calls, 0);
  engine.resume();
  EXPECT_EQ(values(*a), (std::vector<double>{7, 7, 4, 4}));
  segment.replay();
  EXPECT_EQ(values(*a), (std::vector<double>{7, 7, 6, 6}));
  EXPECT_EQ(calls, 4);  // the first replay runs them without a graph, the second one captures them
}

// All replays are enqueued on the device while the first one is still blocked there.
TEST_P(GraphSegments, NoReplayWaitsForTheDevice) {
  Engine& engine = start();
  auto gate = ops().new_meeting(2);
  auto a = array(4), one = array(4);
  push_fill(*one, 1);
  engine.push(
      [&](RunContext run) {
        gate->attend(*run.stream());
        ops().fill(*run.stream(), a->memory.data(), 4, 0);
      },
      {.writes = {a->var}, .context = device()});
  Segment segment = engine.record([&] {
    for (int i = 0; i < 3; ++i) push_add(*a, *one, *a);
  });
  const Var last = engine.new_var();
  std::latch enqueued(1);
  for (int i = 0; i < 20; ++i) segment.replay();
  engine.push([&](RunContext) { enqueued.count_down(); },
              {.reads = {a->var}, .writes = {last}, .context = device()});
  enqueued.wait();
  EXPECT_LT(gate->arrived(), 2);
  gate->host_attends();
  EXPECT_EQ(values(*a), std::vector<double>(4, 60));
  EXPECT_TRUE(gate->all_met());
}

TEST_P(GraphSegments, OneThatIsRecordedWithoutAGraphCallsItsFunctionsInEachReplay) {
  Engine& engine = start();
  auto a = array(4), one = array(4);
  push_fill(*a, 0);
  push_fill(*one, 1);
  std::atomic<int> calls{0};
  Segment segment = engine.record(
      [&] {
        push_counted(*a, *one, calls);
        push_counted(*a, *one, calls);
      },
      {.device_graph = false});
  for (int i = 0; i < 3; ++i) segment.replay();
  EXPECT_EQ(values(*a), std::vector<double>(4, 6));
  EXPECT_EQ(calls, 6);
}

TEST_P(GraphSegments, OnlySynchronousOperationsOfOneAcceleratorMakeAGraph) {
  Engine& engine = start();
  auto a = array(4), one = array(4), far = array(4, 1);
  push_fill(*a, 0);
  push_fill(*one, 1);
  std::atomic<int> calls{0};
  const Var host = engine.new_var();
  std::vector<Segment> segments;
  segments.push_back(engine.record([&] {
    push_counted(*a, *one, calls);
    engine.push([] {}, {.updates = {host}});
  }));
  segments.push_back(engine.record([&] {
    push_counted(*a, *one, calls);
    engine.push_async([](RunContext, Completion done) { done(); }, {.writes = {host}, .context = device()});
  }));
  if (device(1) != device()) {
    segments.push_back(engine.record([&] {
      push_counted(*a, *one, calls);
      push_fill(*far, 1);
    }));
  }
  for (int i = 0; i < 4; ++i) {
    for (Segment& segment : segments) segment.replay();
  }
  engine.wait_all();
  EXPECT_EQ(calls, 4 * static_cast<int>(segments.size()));
  EXPECT_EQ(values(*a), std::vector<double>(4, calls));
}

TEST_P(GraphSegments, FunctionsMayAllocateAndNobodyElseGetsIt) {
  Engine& engine = start();
  constexpr size_t kN = 500;
  auto a = array(kN), b = array(kN);
  const size_t before = in_use();
  {
    double* temporary = nullptr;
    Segment segment = engine.record([&] {
      const Var v = engine.new_var();
      engine.push(
          [&](RunContext run) {
            Stream& stream = *run.stream();
            temporary = static_cast<double*>(stream.device().allocate(kN * sizeof(double), &stream));
            ops().fill(stream, temporary, kN, 3);
          },
          {.writes = {v}, .context = device()});
      engine.push(
          [&](RunContext run) {
            Stream& stream = *run.stream();
            ops().add(stream, temporary, temporary, a->memory.data(), kN);
            stream.device().free(temporary, &stream);
          },
          {.reads = {v}, .writes = {a->var}, .context = device()});
      engine.delete_var(v);
    });
    for (int i = 0; i < 10; ++i) {
      segment.replay();
      if (i == 0) engine.wait(a->var);
      auto other = array(kN);
      // The graph, which the second replay makes, keeps the memory. The first replay has freed it.
      if (i > 0) {
        EXPECT_NE(other->memory.data(), temporary);
      }
      push_fill(*other, i);
      segment.replay();
      push_add(*other, *other, *b);
      EXPECT_EQ(values(*b), std::vector<double>(kN, 2 * i));
      EXPECT_EQ(values(*a), std::vector<double>(kN, 6));
    }
    EXPECT_EQ(in_use(), before + kN * sizeof(double));
  }
  engine.wait_all();
  EXPECT_EQ(in_use(), before);
}

TEST_P(GraphSegments, MayBeDestroyedWhileAReplayIsPendingOnTheDevice) {
  Engine& engine = start();
  constexpr size_t kN = 500;
  auto gate = ops().new_meeting(2);
  auto a = array(kN), b = array(kN), other = array(kN);
  const size_t before = in_use();
  auto held = std::make_shared<int>(0);
  std::latch enqueued(1);
  push_fill(*a, 0);
  {
    Segment segment = engine.record([&] {
      engine.push(
          [&, held](RunContext run) {
            Stream& stream = *run.stream();
            auto* temporary = static_cast<double*>(stream.device().allocate(kN * sizeof(double), &stream));
            ops().fill(stream, temporary, kN, 3);
            ops().add(stream, temporary, a->memory.data(), b->memory.data(), kN);
            stream.device().free(temporary, &stream);
          },
          {.reads = {a->var}, .writes = {b->var}, .context = device()});
    });
    for (int i = 0; i < 2; ++i) segment.replay();  // the second one makes the graph
    engine.push(
        [&](RunContext run) {
          gate->attend(*run.stream());
          ops().fill(*run.stream(), a->memory.data(), kN, 1);
        },
        {.writes = {a->var}, .context = device()});
    segment.replay();
  }
  engine.push([&](RunContext) { enqueued.count_down(); },
              {.reads = {b->var}, .writes = {other->var}, .context = device()});
  enqueued.wait();
  // The segment is destroyed with the function of its replay.
  while (held.use_count() > 1) std::this_thread::yield();
  EXPECT_EQ(in_use(), before + kN * sizeof(double));
  std::vector<std::unique_ptr<DeviceArray>> others;
  for (int i = 0; i < 10; ++i) others.push_back(std::make_unique<DeviceArray>(device(), kN));
  auto stream = get_device(device()).new_stream();
  for (auto& one : others) ops().fill(*stream, one->data(), kN, 77);
  stream->synchronize();
  EXPECT_LT(gate->arrived(), 2);
  gate->host_attends();
  EXPECT_EQ(values(*b), std::vector<double>(kN, 4));
  others.clear();
  engine.wait_all();
  while (in_use() > before) std::this_thread::yield();
}

TEST_P(GraphSegments, ASegmentInsideASegmentIsPartOfItsGraph) {
  Engine& engine = start();
  auto a = array(4), one = array(4);
  push_fill(*a, 0);
  push_fill(*one, 1);
  std::atomic<int> calls{0};
  Segment inner = engine.record([&] {
    push_counted(*a, *one, calls);
    push_add(*a, *a, *a);
  });
  Segment outer = engine.record([&] {
    inner.replay();
    push_counted(*a, *one, calls);
    inner.replay();
  });
  engine.wait_all();
  const uint64_t before = engine.stats().stream_ops;
  outer.replay();
  outer.replay();
  inner.replay();
  engine.wait_all();
  EXPECT_EQ(engine.stats().stream_ops - before, 3u);
  // The first replay of the outer segment runs the inner one without a graph, then captures and launches it.
  // The second one captures all of them.
  EXPECT_EQ(calls, 3 + 3);
  double expected = 0;
  for (int i = 0; i < 2; ++i) expected = ((expected + 1) * 2 + 1 + 1) * 2;
  expected = (expected + 1) * 2;
  EXPECT_EQ(values(*a), std::vector<double>(4, expected));
}

TEST_P(GraphSegments, EveryModeComputesTheSame) {
  for (const EngineMode mode :
       {EngineMode::threaded, EngineMode::naive, EngineMode::check, EngineMode::fuzz}) {
    SCOPED_TRACE(static_cast<int>(mode));
    EngineOptions options;
    options.threads = 2;
    options.mode = mode;
    options.seed = 3;
    engine_ = std::make_unique<Engine>(options);
    {
      auto a = array(4), b = array(4), one = array(4);
      push_fill(*a, 0);
      push_fill(*one, 1);
      std::atomic<int> calls{0};
      Segment segment = engine_->record([&] {
        push_counted(*a, *one, calls);
        push_add(*a, *a, *b);
        push_counted(*a, *one, calls);
      });
      for (int i = 0; i < 3; ++i) segment.replay();
      EXPECT_EQ(values(*a), std::vector<double>(4, 6));
      EXPECT_EQ(values(*b), std::vector<double>(4, 10));
      EXPECT_EQ(calls, mode == EngineMode::naive ? 6 : 4);
    }
    engine_.reset();
  }
}

TEST_P(GraphSegments, ReplaysFromSeveralThreadsExclude) {
  Engine& engine = start();
  auto a = array(4), b = array(4), one = array(4);
  push_fill(*a, 0);
  push_fill(*b, 0);
  push_fill(*one, 1);
  Segment segment = engine.record([&] {
    push_add(*a, *one, *a);
    push_add(*b, *a, *b);
  });
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 25; ++i) segment.replay(i % 3);
    });
  for (std::thread& t : threads) t.join();
  EXPECT_EQ(values(*a), std::vector<double>(4, 100));
  EXPECT_EQ(values(*b), std::vector<double>(4, 5050));
}

}  // namespace
}  // namespace mx::test
