// Graphs: each launch repeats the captured work, in the order of the edges, and no other allocation gets the
// memory of the graph. Skipped if the backend has no graphs.
#include <algorithm>
#include <numeric>
#include <random>
#include <stdexcept>
#include <thread>

#include "engine/base/error.h"
#include "tests/conformance/device_suite.h"

namespace mx::conformance {

namespace {

using NodeId = GraphBuilder::NodeId;
using Nodes = std::vector<NodeId>;

Task failing(const char* text) {
  return [text](KernelContext&) { throw std::runtime_error(text); };
}

}  // namespace

// Random graphs over a few blocks. Each node checks that its blocks hold the number of nodes that have
// touched them before, so a node that runs too early or too late is detected. The first nodes reset the
// blocks to 0, so every launch starts from the same state.
TEST_P(DeviceSuite, GraphNodesRunAfterThoseThatTheyFollow) {
  constexpr size_t kBlocks = 6, kSize = 300;
  for (const unsigned seed : {1u, 2u, 3u, 4u}) {
    auto builder = device().new_graph_builder();
    if (builder == nullptr) GTEST_SKIP() << "no graphs";
    std::mt19937 random(seed);
    Block<uint32_t> data(device(), kBlocks * kSize), wrong(device(), 1);
    std::vector<uint32_t> touched(kBlocks, 0);
    std::vector<NodeId> last(kBlocks);
    for (size_t b = 0; b < kBlocks; ++b) {
      last[b] = builder->add({}, [&](Stream& s) { ops().fill(s, data.get() + b * kSize, kSize, 0); });
    }
    for (int i = 0; i < 60; ++i) {
      std::vector<size_t> blocks(kBlocks);
      std::iota(blocks.begin(), blocks.end(), size_t{0});
      std::shuffle(blocks.begin(), blocks.end(), random);
      blocks.resize(1 + random() % 3);
      Nodes after;
      for (const size_t b : blocks) after.push_back(last[b]);
      const NodeId node = builder->add(after, [&](Stream& s) {
        for (const size_t b : blocks) {
          ops().check(s, data.get() + b * kSize, kSize, touched[b], wrong.get());
          ops().add(s, data.get() + b * kSize, kSize, 1);
        }
      });
      EXPECT_EQ(node, kBlocks + static_cast<size_t>(i));
      for (const size_t b : blocks) {
        last[b] = node;
        ++touched[b];
      }
    }
    auto graph = builder->finish();
    EXPECT_EQ(graph->nodes(), kBlocks + 60);
    auto s = stream();
    ops().fill(*s, wrong.get(), 1, 0);
    for (int launch = 0; launch < 5; ++launch) {
      graph->launch(*s);
      s->synchronize();
      ASSERT_EQ(read(wrong.get()), 0u) << "launch " << launch << " of seed " << seed;
      for (size_t b = 0; b < kBlocks; ++b) ASSERT_EQ(read(data.get() + b * kSize + 7), touched[b]);
    }
  }
}

TEST_P(DeviceSuite, AGraphIsLaunchedManyTimesOnAnyStreamOfItsDevice) {
  auto builder = device().new_graph_builder();
  if (builder == nullptr) GTEST_SKIP() << "no graphs";
  Block<uint32_t> x(device(), 100), wrong(device(), 1);
  builder->add({}, [&](Stream& s) { ops().add(s, x.get(), 100, 1); });
  auto graph = builder->finish();
  builder.reset();
  auto a = stream(), b = stream(StreamKind::copy_in);
  auto e = event();
  ops().fill(*a, x.get(), 100, 0);
  ops().fill(*a, wrong.get(), 1, 0);
  a->record(*e);
  for (uint32_t i = 0; i < 40; ++i) {
    Stream& next = i % 3 == 0 ? *b : *a;
    next.wait(*e);
    ops().check(next, x.get(), 100, 2 * i, wrong.get());  // a launch is ordered with other work on its stream
    graph->launch(next);
    ops().add(next, x.get(), 100, 1);
    next.record(*e);
  }
  std::thread([&] {
    b->wait(*e);
    graph->launch(*b);
    b->synchronize();
  }).join();
  EXPECT_EQ(read(x.get()), 81u);
  EXPECT_EQ(read(wrong.get()), 0u);
}

TEST_P(DeviceSuite, CapturingRunsNothing) {
  auto builder = device().new_graph_builder();
  if (builder == nullptr) GTEST_SKIP() << "no graphs";
  Block<uint32_t> x(device(), 1);
  auto s = stream();
  ops().fill(*s, x.get(), 1, 3);
  s->synchronize();
  builder->add({}, [&](Stream& capture) {
    EXPECT_TRUE(capture.capturing());
    EXPECT_EQ(&capture.device(), &device());
    ops().fill(capture, x.get(), 1, 4);
  });
  EXPECT_FALSE(s->capturing());
  auto graph = builder->finish();
  EXPECT_EQ(read(x.get()), 3u);
  graph.reset();
  EXPECT_EQ(read(x.get()), 3u);
}

TEST_P(DeviceSuite, GraphsCopyInBothDirections) {
  auto builder = device().new_graph_builder();
  if (builder == nullptr) GTEST_SKIP() << "no graphs";
  constexpr size_t kN = 5000;
  Block<uint32_t> in(get_device(cpu()), kN), out(get_device(cpu()), kN), x(device(), kN), y(device(), kN);
  const Context here = device().context();
  const NodeId first = builder->add({}, [&](Stream& s) {
    device().copy_async(x.get(), here, in.get(), cpu(), kN * 4, s);
    ops().add(s, x.get(), kN, 1000);
  });
  const NodeId second = builder->add(
      Nodes{first}, [&](Stream& s) { device().copy_async(y.get(), here, x.get(), here, kN * 4, s); });
  builder->add(Nodes{second}, [&](Stream& s) {
    // A copy can be captured through either device.
    get_device(cpu()).copy_async(out.get(), cpu(), y.get(), here, kN * 4, s);
    device().copy_async(out.get(), cpu(), y.get(), here, 0, s);
  });
  auto graph = builder->finish();
  auto s = stream();
  for (uint32_t launch = 0; launch < 3; ++launch) {
    std::iota(in.get(), in.get() + kN, launch);  // a launch copies the contents at the time of the launch
    graph->launch(*s);
    s->synchronize();
    for (uint32_t i = 0; i < kN; ++i) ASSERT_EQ(out.get()[i], launch + i + 1000);
  }
}

TEST_P(DeviceSuite, EmptyGraphsAndNodesDoNothing) {
  auto s = stream();
  {
    auto builder = device().new_graph_builder();
    if (builder == nullptr) GTEST_SKIP() << "no graphs";
    auto graph = builder->finish();
    EXPECT_EQ(graph->nodes(), 0u);
    graph->launch(*s);
    s->synchronize();
  }
  auto builder = device().new_graph_builder();
  if (builder == nullptr) GTEST_SKIP() << "no graphs";
  Block<uint32_t> x(device(), 1);
  const NodeId first = builder->add({}, [&](Stream& c) { ops().fill(c, x.get(), 1, 1); });
  const NodeId nothing = builder->add(Nodes{first}, [](Stream&) {});
  builder->add(Nodes{nothing, nothing, first}, [&](Stream& c) { ops().add(c, x.get(), 1, 1); });
  auto graph = builder->finish();
  EXPECT_EQ(graph->nodes(), 3u);
  graph->launch(*s);
  s->synchronize();
  EXPECT_EQ(read(x.get()), 2u);
}

// The nodes of a graph pass values to each other in memory of the graph. No other allocation gets that
// memory, whether it is freed or not.
TEST_P(DeviceSuite, MemoryOfAGraphIsItsOwn) {
  constexpr size_t kN = 3000;
  const size_t before = device().memory_stats().in_use_bytes;
  {
    auto builder = device().new_graph_builder();
    if (builder == nullptr) GTEST_SKIP() << "no graphs";
    Block<uint32_t> x(device(), kN), wrong(device(), 1);
    uint32_t* temporary = nullptr;
    const NodeId first = builder->add({}, [&](Stream& s) {
      temporary = static_cast<uint32_t*>(device().allocate(kN * 4, &s));
      device().note_use(temporary, s);
      device().note_use(x.get(), s);
      ops().fill(s, temporary, kN, 5);
      EXPECT_EQ(device().allocate(0, &s), nullptr);
      device().free(nullptr, &s);
    });
    builder->add(Nodes{first}, [&](Stream& s) {
      ops().check(s, temporary, kN, 5, wrong.get());
      ops().add(s, temporary, kN, 1);
      device().copy_async(x.get(), device().context(), temporary, device().context(), kN * 4, s);
      device().free(temporary, &s);
    });
    auto graph = builder->finish();
    auto s = stream();
    ops().fill(*s, wrong.get(), 1, 0);
    std::vector<uint32_t*> others;
    for (int i = 0; i < 20; ++i) {
      Stream* on = i % 2 == 0 ? s.get() : nullptr;
      others.push_back(static_cast<uint32_t*>(device().allocate(kN * 4, on)));
      EXPECT_NE(others.back(), temporary);
      ops().fill(*s, others.back(), kN, 77);
      graph->launch(*s);
      ops().check(*s, others.back(), kN, 77, wrong.get());
      ops().check(*s, x.get(), kN, 6, wrong.get());
      if (i % 3 == 0) {
        device().free(others.back(), s.get());
        others.pop_back();
      }
    }
    for (uint32_t* other : others) device().free(other, s.get());
    s->synchronize();
    EXPECT_EQ(read(wrong.get()), 0u);
    EXPECT_GE(device().memory_stats().in_use_bytes, before + kN * 4);
  }
  EXPECT_EQ(device().memory_stats().in_use_bytes, before);
}

TEST_P(DeviceSuite, AGraphMayDieWhileItsLaunchesArePending) {
  constexpr size_t kN = 3000;
  auto builder = device().new_graph_builder();
  if (builder == nullptr) GTEST_SKIP() << "no graphs";
  Block<uint32_t> x(device(), kN), wrong(device(), 1);
  const size_t before = device().memory_stats().in_use_bytes;
  uint32_t* temporary = nullptr;
  const NodeId first = builder->add({}, [&](Stream& s) {
    temporary = static_cast<uint32_t*>(device().allocate(kN * 4, &s));
    ops().fill(s, temporary, kN, 5);
  });
  builder->add(Nodes{first}, [&](Stream& s) {
    ops().check(s, temporary, kN, 5, wrong.get());
    device().free(temporary, &s);
  });
  auto graph = builder->finish();
  builder.reset();
  auto a = stream(), b = stream(), other = stream();
  ops().fill(*a, wrong.get(), 1, 0);
  a->synchronize();
  graph->launch(*b);
  b->synchronize();
  auto gate = ops().hold(*a);
  graph->launch(*a);
  graph.reset();  // destroying a graph does not wait for its launches
  EXPECT_EQ(device().memory_stats().in_use_bytes, before + kN * 4);
  std::vector<uint32_t*> others;
  for (int i = 0; i < 10; ++i) {
    others.push_back(static_cast<uint32_t*>(device().allocate(kN * 4, i % 2 == 0 ? other.get() : nullptr)));
    EXPECT_NE(others.back(), temporary);
    ops().fill(*other, others.back(), kN, 77);
  }
  other->synchronize();
  gate->open();
  a->synchronize();
  for (uint32_t* p : others) device().free(p);
  EXPECT_EQ(read(wrong.get()), 0u);
  while (device().memory_stats().in_use_bytes > before) std::this_thread::yield();
}

TEST_P(DeviceSuite, MemoryFreedWhileCapturingStaysUntilTheGraphDies) {
  const size_t before = device().memory_stats().in_use_bytes;
  auto builder = device().new_graph_builder();
  if (builder == nullptr) GTEST_SKIP() << "no graphs";
  auto s = stream();
  auto* x = static_cast<uint32_t*>(device().allocate(400, s.get()));
  builder->add({}, [&](Stream& c) {
    ops().fill(c, x, 100, 9);
    device().free(x, &c);
  });
  auto graph = builder->finish();
  graph->launch(*s);
  s->synchronize();
  EXPECT_EQ(read(x), 9u);
  EXPECT_EQ(device().memory_stats().in_use_bytes, before + 400);
  graph.reset();
  EXPECT_EQ(device().memory_stats().in_use_bytes, before);
}

TEST_P(DeviceSuite, ABuilderThatIsGivenUpGivesItsMemoryBack) {
  const size_t before = device().memory_stats().in_use_bytes;
  {
    auto builder = device().new_graph_builder();
    if (builder == nullptr) GTEST_SKIP() << "no graphs";
    builder->add({}, [&](Stream& s) { (void)device().allocate(1000, &s); });
  }
  EXPECT_EQ(device().memory_stats().in_use_bytes, before);
}

TEST_P(DeviceSuite, WhatAGraphCannotHoldIsRefused) {
  auto empty = device().new_graph_builder();
  if (empty == nullptr) GTEST_SKIP() << "no graphs";
  auto graph = empty->finish();
  const auto refused = [&](const std::function<void(Stream&)>& call) {
    auto builder = device().new_graph_builder();
    EXPECT_THROW(builder->add({}, call), InvalidState);
    EXPECT_THROW(builder->add({}, [](Stream&) {}), InvalidState);  // finish() may be called once
    EXPECT_THROW(builder->finish(), InvalidState);
  };
  auto e = event();
  auto s = stream();
  refused([&](Stream& c) { c.record(*e); });
  refused([&](Stream& c) { c.wait(*e); });
  refused([&](Stream& c) { c.wait_point(s->mark()); });
  refused([&](Stream& c) { c.mark(); });
  refused([&](Stream& c) { c.notify([](std::exception_ptr) {}); });
  refused([&](Stream& c) { c.synchronize(); });
  refused([&](Stream& c) { graph->launch(c); });
  auto elsewhere = get_device(cpu()).new_stream();
  EXPECT_THROW(graph->launch(*elsewhere), InvalidArgument);
  auto builder = device().new_graph_builder();
  if (builder == nullptr) GTEST_SKIP() << "no graphs";
  EXPECT_THROW(builder->add(Nodes{0}, [](Stream&) {}), InvalidArgument);
  EXPECT_THROW(builder->add({}, nullptr), InvalidArgument);
  EXPECT_EQ(builder->add({}, [](Stream&) {}), 0u);  // the builder itself has not failed
  builder->finish();
  EXPECT_THROW(builder->finish(), InvalidState);
}

TEST_P(DeviceSuite, AnExceptionWhileCapturingLeavesTheDeviceHealthy) {
  const size_t before = device().memory_stats().in_use_bytes;
  auto builder = device().new_graph_builder();
  if (builder == nullptr) GTEST_SKIP() << "no graphs";
  Block<uint32_t> x(device(), 1);
  auto s = stream();
  ops().fill(*s, x.get(), 1, 1);
  const auto broken = [&](Stream& c) {
    (void)device().allocate(1000, &c);
    ops().fill(c, x.get(), 1, 2);
    throw std::runtime_error("out of enqueue");
  };
  EXPECT_THROW(builder->add({}, broken), std::runtime_error);
  EXPECT_THROW(builder->add({}, [](Stream&) {}), InvalidState);
  EXPECT_THROW(builder->finish(), InvalidState);
  builder.reset();
  EXPECT_EQ(device().memory_stats().in_use_bytes, before + 4);
  ops().add(*s, x.get(), 1, 5);
  s->synchronize();
  EXPECT_EQ(device().lost(), nullptr);
  EXPECT_EQ(read(x.get()), 6u);
  auto next = device().new_graph_builder();
  if (next == nullptr) GTEST_SKIP() << "no graphs";
  next->add({}, [&](Stream& c) { ops().add(c, x.get(), 1, 5); });
  next->finish()->launch(*s);
  s->synchronize();
  EXPECT_EQ(read(x.get()), 11u);
}

TEST_P(DeviceSuite, ATaskThatFailsFailsTheCaptureOrEachLaunch) {
  auto builder = device().new_graph_builder();
  if (builder == nullptr) GTEST_SKIP() << "no graphs";
  Block<uint32_t> x(device(), 1);
  auto s = stream();
  if (!tasks_overlap()) {
    EXPECT_THROW(builder->add({}, [](Stream& c) { c.submit(failing("captured")); }), std::runtime_error);
    EXPECT_NO_THROW(s->synchronize());
    return;
  }
  const NodeId bad = builder->add({}, [](Stream& c) { c.submit(failing("captured")); });
  builder->add(Nodes{bad}, [&](Stream& c) { ops().add(c, x.get(), 1, 1); });
  auto graph = builder->finish();
  ops().fill(*s, x.get(), 1, 0);
  auto e = event();
  for (uint32_t launch = 1; launch <= 3; ++launch) {
    graph->launch(*s);
    s->record(*e);
    EXPECT_THROW(s->synchronize(), std::runtime_error);
    EXPECT_EQ(e->query(), EventStatus::failed);
    EXPECT_NE(text_of(e->error()).find("captured"), std::string::npos);
    s->record(*e);
    s->synchronize();
    EXPECT_EQ(e->query(), EventStatus::complete);
    EXPECT_EQ(read(x.get()), launch);  // work after a failure still runs
  }
}

// Several threads capture at the same time while others use the device.
TEST_P(DeviceSuite, ThreadsCaptureAtTheSameTime) {
  auto probe = device().new_graph_builder();
  if (probe == nullptr) GTEST_SKIP() << "no graphs";
  constexpr int kThreads = 4;
  std::vector<uint32_t> got(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      auto s = stream();
      for (int round = 0; round < 10; ++round) {
        auto builder = device().new_graph_builder();
        uint32_t* x = nullptr;
        NodeId node = builder->add({}, [&](Stream& c) {
          x = static_cast<uint32_t*>(device().allocate(64 << t, &c));
          ops().fill(c, x, 16, 0);
        });
        for (int i = 0; i < 5; ++i) {
          node = builder->add(Nodes{node}, [&](Stream& c) { ops().add(c, x, 16, 1); });
          auto* between = static_cast<uint32_t*>(device().allocate(4096, s.get()));
          ops().fill(*s, between, 16, 1);
          device().free(between, s.get());
        }
        auto graph = builder->finish();
        graph->launch(*s);
        device().copy_async(&got[static_cast<size_t>(t)], cpu(), x, device().context(), 4, *s);
        s->synchronize();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(got, std::vector<uint32_t>(kThreads, 5));
}

}  // namespace mx::conformance
