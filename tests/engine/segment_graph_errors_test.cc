// Segments that replay as a device graph: failures, and operations that cannot be captured.
#include <latch>
#include <stdexcept>

#include "engine/device/virtual/virtual_device.h"
#include "tests/engine/segment_graph_suite.h"
#include "tests/support/errors.h"

namespace mx::test {
namespace {

TEST_P(GraphSegments, ATaskThatFailsPoisonsAllThatTheReplayWrites) {
  if (!host_code()) GTEST_SKIP() << "needs a device that can fail without consequences";
  Engine& engine = start();
  auto in = array(4), a = array(4), b = array(4), after = array(4);
  push_fill(*in, 1);
  auto fails = std::make_shared<std::atomic<bool>>(false);
  Segment segment = engine.record([&] {
    push_add(*in, *in, *a);
    engine.push(
        [fails](RunContext run) {
          run.stream()->submit([fails](KernelContext&) {
            if (*fails) throw std::runtime_error("broken");
          });
        },
        {.writes = {b->var}, .context = device(), .name = "node"});
  });
  segment.replay();
  engine.wait_all();
  *fails = true;
  segment.replay();
  push_add(*b, *in, *after);
  for (const Var v : {a->var, b->var, after->var}) {
    const std::string text = message_of(v);
    EXPECT_TRUE(text.starts_with("[replay]") && contains(text, "broken")) << text;
    EXPECT_TRUE(contains(text, "(pushed at ")) << text;  // the place where the first node was pushed
  }
  EXPECT_EQ(values(*in), std::vector<double>(4, 1));
  EXPECT_EQ(engine.stats().failed, 1u);
  EXPECT_THROW(engine.wait_all(), Error);
  *fails = false;
  segment.replay();  // writes every variable that the failed replay had poisoned
  EXPECT_EQ(values(*a), std::vector<double>(4, 2));
  engine.wait(b->var);
}

TEST_P(GraphSegments, AReplayOverPoisonIsSkipped) {
  Engine& engine = start();
  auto in = array(4), a = array(4);
  std::atomic<int> calls{0};
  Segment segment = engine.record([&] {
    engine.push(
        [&](RunContext run) {
          ++calls;
          ops().fill(*run.stream(), a->memory.data(), 4, 1);
        },
        {.reads = {in->var}, .writes = {a->var}, .context = device()});
  });
  engine.push([](RunContext) { throw std::runtime_error("before"); },
              {.writes = {in->var}, .context = device(), .name = "bad"});
  segment.replay();
  EXPECT_TRUE(message_of(a->var).starts_with("[bad]"));
  EXPECT_EQ(calls, 0);
  push_fill(*in, 1);
  segment.replay();
  EXPECT_EQ(values(*a), std::vector<double>(4, 1));
  EXPECT_THROW(engine.wait_all(), Error);
}

TEST_P(GraphSegments, AFunctionThatThrowsFailsTheReplayAndTheNextTriesAgain) {
  Engine& engine = start();
  auto a = array(4), b = array(4);
  bool fails = true;
  Segment segment = engine.record([&] {
    push_fill(*a, 1);
    engine.push(
        [&](RunContext run) {
          if (fails) throw std::runtime_error("no");
          ops().fill(*run.stream(), b->memory.data(), 4, 2);
        },
        {.writes = {b->var}, .context = device(), .name = "node"});
  });
  segment.replay();
  for (const Var v : {a->var, b->var}) {
    const std::string text = message_of(v);
    EXPECT_TRUE(contains(text, "[node]") && contains(text, "no")) << text;
  }
  EXPECT_THROW(engine.wait_all(), Error);
  fails = false;
  const uint64_t before = engine.stats().stream_ops;
  segment.replay();
  segment.replay();
  engine.wait_all();
  EXPECT_EQ(engine.stats().stream_ops - before, 2u);
  EXPECT_EQ(values(*b), std::vector<double>(4, 2));
}

TEST_P(GraphSegments, AFunctionThatCannotBeCapturedReplaysWithoutAGraph) {
  Engine& engine = start();
  LogCapture log;
  auto a = array(4), one = array(4);
  push_fill(*a, 0);
  push_fill(*one, 1);
  std::atomic<int> calls{0};
  Segment segment = engine.record([&] {
    push_counted(*a, *one, calls);
    engine.push([](RunContext run) { (void)run.stream()->mark(); },
                {.reads = {one->var}, .updates = {a->var}, .context = device(), .name = "marks"});
    push_counted(*a, *one, calls);
  });
  engine.pause();
  segment.replay();
  segment.replay();
  engine.resume();
  EXPECT_EQ(values(*a), std::vector<double>(4, 4));
  EXPECT_EQ(calls, 1 + 2 + 2);  // one call in a capture attempt that failed, then two per replay
  const uint64_t before = engine.stats().stream_ops;
  segment.replay();
  engine.wait_all();
  EXPECT_EQ(calls, 7);
  EXPECT_EQ(engine.stats().stream_ops - before, 3u);  // later replays do not use a graph
  EXPECT_EQ(values(*a), std::vector<double>(4, 6));
  EXPECT_EQ(log.count("[marks]"), 1u);
}

TEST_P(GraphSegments, InsideACapturedFunctionTheEngineAnswersAsInAnyOther) {
  Engine& engine = start();
  auto a = array(4), b = array(4);
  std::string refusal;
  Segment segment = engine.record([&] {
    engine.push(
        [&](RunContext run) {
          EXPECT_EQ(run.context(), device());
          ops().fill(*run.stream(), a->memory.data(), 4, 1);
          refusal = error_of<InvalidState>([&] { engine.wait(b->var); });
          push_fill(*b, 5);
        },
        {.writes = {a->var}, .context = device(), .name = "inner"});
  });
  for (int i = 0; i < 2; ++i) {  // without a graph, then in the capture
    refusal.clear();
    segment.replay();
    EXPECT_EQ(values(*a), std::vector<double>(4, 1));
    EXPECT_TRUE(contains(refusal, "'inner'")) << refusal;
  }
  EXPECT_EQ(values(*b), std::vector<double>(4, 5));
  push_fill(*b, 6);
  segment.replay();
  EXPECT_EQ(values(*a), std::vector<double>(4, 1));
  EXPECT_EQ(values(*b), std::vector<double>(4, 6));  // the third replay did not push the fill again
}

TEST_P(GraphSegments, ModeCheckNamesUndeclaredAccessesOfNodes) {
  EngineOptions options;
  options.threads = 2;
  options.mode = EngineMode::check;
  engine_ = std::make_unique<Engine>(options);
  {
    auto a = array(4), b = array(4);
    const Var secret = engine_->new_var("secret");
    Segment segment = engine_->record([&] {
      push_fill(*b, 1);
      engine_->push(
          [&](RunContext run) {
            run.write(a->var);
            run.read(secret);
          },
          {.writes = {a->var}, .context = device(), .name = "careless"});
      // This node declares `secret`, the careless one does not.
      engine_->push([](RunContext) {}, {.reads = {secret}, .context = device()});
    });
    segment.replay();
    const std::string text = error_of<AccessError>([&] { engine_->wait(a->var); });
    EXPECT_TRUE(contains(text, "[careless]") && contains(text, "'secret'")) << text;
    EXPECT_THROW(engine_->wait_all(), AccessError);
  }
  engine_.reset();
}

class VirtualGraphSegments : public GraphSegments {};
INSTANTIATE_TEST_SUITE_P(Virtual, VirtualGraphSegments,
                         ::testing::Values(StreamSuiteParam{"two", {virt(0), virt(1)}}),
                         [](const auto& param_info) { return param_info.param.name; });

TEST_P(VirtualGraphSegments, AnInjectedKernelFailureHitsOneReplay) {
  Engine& engine = start();
  auto a = array(4), b = array(4);
  Segment segment = engine.record([&] {
    push_fill(*a, 1);
    push_add(*a, *a, *b);
  });
  virtual_device(0).fail_next_kernel(4);  // fails in the second replay; capturing submits nothing
  segment.replay();
  engine.wait_all();
  segment.replay();
  for (const Var v : {a->var, b->var}) {
    const std::string text = error_of<DeviceError>([&] { engine.wait(v); });
    EXPECT_TRUE(text.starts_with("[replay]") && contains(text, "injected")) << text;
  }
  EXPECT_THROW(engine.wait_all(), DeviceError);
  segment.replay();
  EXPECT_EQ(values(*b), std::vector<double>(4, 2));
}

TEST_P(VirtualGraphSegments, ALostDeviceFailsReplaysAndLeavesTheOthersWorking) {
  for (const bool captured : {false, true}) {
    SCOPED_TRACE(captured);
    struct Restore {
      ~Restore() { virtual_device(0).restore(); }
    } restore;
    Engine& engine = start(2);
    {
      auto a = array(4), far = array(4, 1);
      Segment segment = engine.record([&] { push_fill(*a, 1); });
      if (captured) {
        segment.replay();
        engine.wait_all();
      }
      virtual_device(0).lose();
      segment.replay();
      segment.replay();
      EXPECT_THROW(engine.wait(a->var), DeviceError);
      push_fill(*far, 3);
      EXPECT_EQ(values(*far), std::vector<double>(4, 3));
      EXPECT_THROW(engine.wait_all(), DeviceError);
      virtual_device(0).restore();
      segment.replay();
      EXPECT_EQ(values(*a), std::vector<double>(4, 1));
    }
    engine_.reset();
  }
}

TEST_P(VirtualGraphSegments, ADeviceLostUnderAPendingReplayFailsIt) {
  struct Restore {
    ~Restore() { virtual_device(0).restore(); }
  } restore;
  Engine& engine = start(2);
  {
    auto gate = ops().new_meeting(2);
    auto a = array(4), b = array(4);
    std::latch enqueued(1);
    engine.push([&](RunContext run) { gate->attend(*run.stream()); },
                {.writes = {a->var}, .context = device()});
    Segment segment = engine.record([&] {
      push_add(*a, *a, *b);
      push_add(*b, *a, *a);
    });
    segment.replay();
    engine.push([&](RunContext) { enqueued.count_down(); }, {.reads = {b->var}, .context = device()});
    enqueued.wait();
    virtual_device(0).lose();
    gate->host_attends();
    EXPECT_THROW(engine.wait(a->var), DeviceError);
    EXPECT_THROW(engine.wait(b->var), DeviceError);
    EXPECT_THROW(engine.wait_all(), DeviceError);
  }
  engine_.reset();
}

TEST_P(VirtualGraphSegments, AnAllocationThatFailsFailsTheReplayOnly) {
  Engine& engine = start();
  auto a = array(4);
  Segment segment = engine.record([&] {
    engine.push(
        [&](RunContext run) {
          Stream& stream = *run.stream();
          void* temporary = stream.device().allocate(100, &stream);
          ops().fill(stream, a->memory.data(), 4, 1);
          stream.device().free(temporary, &stream);
        },
        {.writes = {a->var}, .context = device(), .name = "hungry"});
  });
  virtual_device(0).fail_next_allocation(1);
  segment.replay();
  EXPECT_TRUE(contains(error_of<OutOfMemory>([&] { engine.wait(a->var); }), "[hungry]"));
  EXPECT_THROW(engine.wait_all(), OutOfMemory);
  segment.replay();
  EXPECT_EQ(values(*a), std::vector<double>(4, 1));
}

}  // namespace
}  // namespace mx::test
