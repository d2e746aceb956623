// Graphs of virtual devices: behaviour that a test can observe or control only there.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "engine/base/error.h"
#include "engine/device/registry.h"
#include "engine/device/virtual/virtual_device.h"

namespace mx {
namespace {

using Nodes = std::vector<GraphBuilder::NodeId>;

class VirtualGraph : public ::testing::Test {
 protected:
  void SetUp() override {
    device_.set_delay(3, 0, 0);
    stream_ = device_.new_stream(StreamKind::compute);
  }
  void TearDown() override { stream_.reset(); }

  VirtualDevice& device_ = virtual_device(4);
  std::unique_ptr<Stream> stream_;
};

// Launches use many of the orders that the edges allow, and no others.
TEST_F(VirtualGraph, LaunchesTakeManyLegalOrders) {
  auto order = std::make_shared<std::vector<int>>();
  const auto node = [&](int i) {
    return [=](Stream& s) { s.submit([=](KernelContext&) { order->push_back(i); }); };
  };
  auto builder = device_.new_graph_builder();
  const auto root = builder->add({}, node(0));
  Nodes middle;
  for (int i = 1; i <= 5; ++i) middle.push_back(builder->add(Nodes{root}, node(i)));
  builder->add(middle, node(6));
  auto graph = builder->finish();
  const auto orders = [&] {
    std::vector<std::vector<int>> seen;
    for (int i = 0; i < 30; ++i) {
      order->clear();
      graph->launch(*stream_);
      stream_->synchronize();
      EXPECT_EQ(order->size(), 7u);
      EXPECT_EQ(order->front(), 0);
      EXPECT_EQ(order->back(), 6);
      seen.push_back(*order);
    }
    return seen;
  };
  device_.set_delay(5, 0, 0);
  const auto first = orders();
  EXPECT_GT(std::set<std::vector<int>>(first.begin(), first.end()).size(), 10u);
  device_.set_delay(5, 0, 0);
  EXPECT_EQ(orders(), first);  // repeatable
  device_.set_delay(6, 0, 0);
  EXPECT_NE(orders(), first);
}

TEST_F(VirtualGraph, FailuresCountTheSubmissionsOfLaunches) {
  auto* x = static_cast<int*>(device_.allocate(64, stream_.get()));
  auto builder = device_.new_graph_builder();
  device_.fail_next_kernel(3);
  device_.fail_next_copy(2);
  int host = 0;
  const auto first = builder->add({}, [&](Stream& s) { s.submit([=](KernelContext& c) { *c.ptr(x) = 1; }); });
  const auto second = builder->add(Nodes{first}, [&](Stream& s) {
    device_.copy_async(&host, cpu(), x, device_.context(), sizeof host, s);
  });
  builder->add(Nodes{second}, [&](Stream& s) { s.submit([=](KernelContext& c) { *c.ptr(x) = 2; }); });
  auto graph = builder->finish();
  graph->launch(*stream_);  // kernels 1 and 2, copy 1
  EXPECT_NO_THROW(stream_->synchronize());
  auto e = device_.new_event();
  graph->launch(*stream_);  // kernel 3, copy 2
  stream_->record(*e);
  EXPECT_THROW(stream_->synchronize(), DeviceError);
  EXPECT_EQ(e->query(), EventStatus::failed);
  graph->launch(*stream_);
  EXPECT_NO_THROW(stream_->synchronize());
  EXPECT_EQ(host, 1);
  device_.free(x, stream_.get());
}

TEST_F(VirtualGraph, LaunchesAreTracedLikeOtherWork) {
  auto* x = static_cast<char*>(device_.allocate(64, stream_.get()));
  auto builder = device_.new_graph_builder();
  char host[16] = {};
  const auto first = builder->add({}, [](Stream& s) { s.submit([](KernelContext&) {}); });
  builder->add(Nodes{first},
               [&](Stream& s) { device_.copy_async(x, device_.context(), host, cpu(), 16, s); });
  auto graph = builder->finish();
  device_.set_delay(1, 20, 40);
  device_.start_trace();
  graph->launch(*stream_);
  graph->launch(*stream_);
  stream_->synchronize();
  const auto trace = device_.stop_trace();
  ASSERT_EQ(trace.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(trace[i].stream, stream_->id());
    EXPECT_EQ(trace[i].kind, i % 2 == 0 ? HostWork::Kind::kernel : HostWork::Kind::copy);
    EXPECT_EQ(trace[i].bytes, i % 2 == 0 ? 0u : 16u);
    EXPECT_GE(trace[i].delay_us, 20u);
  }
  device_.free(x, stream_.get());
}

TEST_F(VirtualGraph, MemoryOfADeadGraphIsPoisonedOnceItsLaunchesHaveEnded) {
  auto builder = device_.new_graph_builder();
  unsigned char* x = nullptr;
  builder->add({}, [&](Stream& s) {
    x = static_cast<unsigned char*>(device_.allocate(64, &s));
    s.submit([x](KernelContext& c) { *c.ptr(x) = 7; });
  });
  auto graph = builder->finish();
  graph->launch(*stream_);
  stream_->synchronize();
  EXPECT_EQ(*static_cast<const unsigned char*>(device_.alias(x)), 7);
  graph.reset();
  EXPECT_EQ(*static_cast<const unsigned char*>(device_.alias(x)), kVirtualPoison);
}

TEST_F(VirtualGraph, TasksAreCopiedForEachLaunchAndGoWithTheGraph) {
  auto held = std::make_shared<int>(0);
  auto builder = device_.new_graph_builder();
  builder->add({}, [&](Stream& s) { s.submit([held, n = 0](KernelContext&) mutable { *held = ++n; }); });
  auto graph = builder->finish();
  for (int i = 0; i < 3; ++i) graph->launch(*stream_);
  stream_->synchronize();
  EXPECT_EQ(*held, 1);  // each launch starts with a copy of the captured function
  stream_.reset();
  EXPECT_EQ(held.use_count(), 2);
  graph.reset();
  builder.reset();
  EXPECT_EQ(held.use_count(), 1);
}

TEST_F(VirtualGraph, ALostDeviceFailsLaunchesQuicklyAndRefusesCaptures) {
  auto builder = device_.new_graph_builder(), late = device_.new_graph_builder();
  int ran = 0;
  unsigned char* x = nullptr;
  builder->add({}, [&](Stream& s) {
    x = static_cast<unsigned char*>(device_.allocate(64, &s));
    s.submit([&](KernelContext&) { ++ran; });
  });
  auto graph = builder->finish();
  device_.lose();
  auto e = device_.new_event();
  graph->launch(*stream_);
  stream_->record(*e);
  EXPECT_THROW(stream_->synchronize(), DeviceError);
  EXPECT_EQ(e->query(), EventStatus::failed);
  EXPECT_THROW(late->add({}, [](Stream&) {}), DeviceError);
  EXPECT_THROW(device_.new_graph_builder(), DeviceError);
  EXPECT_EQ(ran, 0);
  device_.restore();
  graph->launch(*stream_);
  stream_->synchronize();
  EXPECT_EQ(ran, 1);
}

TEST_F(VirtualGraph, MemoryOfAnotherDeviceIsHeldAsWell) {
  VirtualDevice& other = virtual_device(5);
  const size_t before = other.memory_stats().in_use_bytes;
  const size_t host_before = get_device(cpu()).memory_stats().in_use_bytes;
  auto builder = device_.new_graph_builder();
  builder->add({}, [&](Stream& s) {
    void* theirs = other.allocate(256, &s);
    void* host = get_device(cpu()).allocate(256, &s);
    device_.copy_async(host, cpu(), theirs, other.context(), 256, s);
    other.free(theirs, &s);
    get_device(cpu()).free(host, &s);
  });
  auto graph = builder->finish();
  EXPECT_EQ(other.memory_stats().in_use_bytes, before + 256);
  EXPECT_EQ(get_device(cpu()).memory_stats().in_use_bytes, host_before + 256);
  graph->launch(*stream_);
  stream_->synchronize();
  graph.reset();
  EXPECT_EQ(other.memory_stats().in_use_bytes, before);
  EXPECT_EQ(get_device(cpu()).memory_stats().in_use_bytes, host_before);
}

}  // namespace
}  // namespace mx
