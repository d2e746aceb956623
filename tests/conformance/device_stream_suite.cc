// Streams and events: order, generations, overlap, errors.
#include <atomic>
#include <barrier>
#include <future>
#include <latch>
#include <random>
#include <stdexcept>
#include <thread>

#include "engine/base/error.h"
#include "tests/conformance/device_suite.h"

namespace mx::conformance {

namespace {

Task failing_task(const char* text) {
  return [text](KernelContext&) { throw std::runtime_error(text); };
}

// Returns the status passed to a notify() callback.
std::exception_ptr notified(Stream& stream) {
  std::promise<std::exception_ptr> promise;
  auto future = promise.get_future();
  stream.notify([&](std::exception_ptr error) { promise.set_value(std::move(error)); });
  return future.get();
}

}  // namespace

TEST_P(DeviceSuite, WorkOfOneStreamRunsInOrder) {
  Block<uint32_t> x(device(), 64), wrong(device(), 1);
  auto s = stream();
  ops().fill(*s, wrong.get(), 1, 0);
  ops().fill(*s, x.get(), 64, 0);
  for (uint32_t i = 0; i < 200; ++i) {
    ops().check(*s, x.get(), 64, i, wrong.get());
    ops().add(*s, x.get(), 64, 1);
  }
  s->synchronize();
  EXPECT_EQ(read(wrong.get()), 0u);
  EXPECT_EQ(read(x.get()), 200u);
}

TEST_P(DeviceSuite, StreamIdsAreNeverUsedAgain) {
  uint64_t last = 0;
  for (int i = 0; i < 10; ++i) {
    auto s = stream();
    EXPECT_GT(s->id(), last);
    last = s->id();
    EXPECT_EQ(&s->device(), &device());
  }
}

TEST_P(DeviceSuite, AnEventCompletesAfterTheWorkBeforeIt) {
  auto s = stream();
  auto e = event();
  EXPECT_EQ(e->query(), EventStatus::unrecorded);
  EXPECT_EQ(e->latest(), nullptr);
  auto gate = ops().hold(*s);
  s->record(*e);
  EXPECT_EQ(e->query(), EventStatus::pending);
  EXPECT_EQ(e->error(), nullptr);
  gate->open();
  s->synchronize();
  EXPECT_EQ(e->query(), EventStatus::complete);
}

TEST_P(DeviceSuite, AnUnrecordedEventHoldsNobody) {
  auto s = stream();
  auto e = event();
  s->wait(*e);
  s->synchronize();
}

TEST_P(DeviceSuite, AWaitKeepsTheGenerationItWasGiven) {
  auto a = stream(), b = stream();
  auto e = event();
  auto first = ops().hold(*a);
  a->record(*e);
  b->wait(*e);
  auto second = ops().hold(*a);
  a->record(*e);  // if events were flags, b would now wait for the second gate too
  first->open();
  b->synchronize();
  EXPECT_EQ(e->query(), EventStatus::pending);
  second->open();
  a->synchronize();
  EXPECT_EQ(e->query(), EventStatus::complete);
}

TEST_P(DeviceSuite, AWaitIsNotPassedByALaterRecordThatIsReached) {
  auto a = stream(), b = stream(), c = stream();
  auto e = event(), after = event();
  auto gate = ops().hold(*a);
  a->record(*e);
  b->wait(*e);
  b->record(*after);
  c->record(*e);  // this record completes at once; b still waits for a
  c->synchronize();
  EXPECT_EQ(e->query(), EventStatus::complete);
  EXPECT_EQ(after->query(), EventStatus::pending);
  gate->open();
  b->synchronize();
  EXPECT_EQ(after->query(), EventStatus::complete);
}

TEST_P(DeviceSuite, EventsOrderWorkAcrossStreams) {
  std::mt19937 random(7);
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 4; ++i) streams.push_back(stream());
  Block<uint32_t> x(device(), 256), wrong(device(), 1);
  auto e = event();
  ops().fill(*streams[0], x.get(), 256, 0);
  ops().fill(*streams[0], wrong.get(), 1, 0);
  streams[0]->record(*e);
  for (uint32_t i = 0; i < 300; ++i) {
    Stream& next = *streams[random() % 4];
    next.wait(*e);
    ops().check(next, x.get(), 256, i, wrong.get());
    ops().add(next, x.get(), 256, 1);
    next.record(*e);
  }
  for (auto& s : streams) s->synchronize();
  EXPECT_EQ(read(wrong.get()), 0u);
  EXPECT_EQ(read(x.get()), 300u);
}

TEST_P(DeviceSuite, AStreamWaitsForAnEventOfTheHost) {
  auto host = get_device(cpu()).new_stream();
  auto s = stream();
  auto e = get_device(cpu()).new_event(), after = event();
  auto gate = host_ops().hold(*host);
  host->record(*e);
  s->wait(*e);
  s->record(*after);
  EXPECT_EQ(after->query(), EventStatus::pending);
  gate->open();
  s->synchronize();
  EXPECT_EQ(after->query(), EventStatus::complete);
}

TEST_P(DeviceSuite, TheHostWaitsForAnEventOfAStream) {
  auto host = get_device(cpu()).new_stream();
  auto s = stream();
  auto e = event(), after = get_device(cpu()).new_event();
  auto gate = ops().hold(*s);
  s->record(*e);
  host->wait(*e);
  host->record(*after);
  EXPECT_EQ(after->query(), EventStatus::pending);
  gate->open();
  host->synchronize();
  EXPECT_EQ(after->query(), EventStatus::complete);
}

TEST_P(DeviceSuite, TwoStreamsRunAtTheSameTime) {
  if (!tasks_overlap()) GTEST_SKIP() << "tasks run on the calling thread";
  auto meet = std::make_shared<std::barrier<>>(2);
  auto a = stream(), b = stream();
  for (int i = 0; i < 20; ++i) {  // hangs unless both streams run at the same time
    a->submit([meet](KernelContext&) { meet->arrive_and_wait(); });
    b->submit([meet](KernelContext&) { meet->arrive_and_wait(); });
  }
  a->synchronize();
  b->synchronize();
}

TEST_P(DeviceSuite, AnErrorIsCarriedByTheNextEventOnly) {
  auto s = stream();
  auto before = event(), at = event(), after = event();
  s->record(*before);
  s->submit(failing_task("first"));
  s->submit(failing_task("second"));
  s->record(*at);
  s->record(*after);
  EXPECT_NE(text_of(notified(*s)).find("first"), std::string::npos);
  EXPECT_EQ(before->query(), EventStatus::complete);
  EXPECT_EQ(at->query(), EventStatus::failed);
  EXPECT_NE(text_of(at->error()).find("first"), std::string::npos);
  EXPECT_EQ(after->query(), EventStatus::complete);
  EXPECT_THROW(s->synchronize(), std::runtime_error);
}

TEST_P(DeviceSuite, SynchronizeThrowsTheFirstErrorOnce) {
  auto s = stream();
  s->submit(failing_task("first"));
  s->submit(failing_task("second"));
  try {
    s->synchronize();
    FAIL() << "expected an exception";
  } catch (const std::runtime_error& e) {
    EXPECT_STREQ(e.what(), "first");
  }
  EXPECT_NO_THROW(s->synchronize());
  EXPECT_EQ(notified(*s), nullptr);
}

TEST_P(DeviceSuite, AMarkTakesNoError) {
  auto s = stream();
  auto e = event();
  s->submit(failing_task("kept"));
  auto mark = s->mark();
  s->record(*e);
  EXPECT_THROW(s->synchronize(), std::runtime_error);
  EXPECT_NE(mark->query(), EventStatus::pending);
  EXPECT_EQ(e->query(), EventStatus::failed);
}

TEST_P(DeviceSuite, WorkAfterAFailureStillRuns) {
  Block<uint32_t> x(device(), 1);
  auto s = stream();
  ops().fill(*s, x.get(), 1, 5);
  s->submit(failing_task("between"));
  ops().add(*s, x.get(), 1, 1);
  EXPECT_THROW(s->synchronize(), std::runtime_error);
  EXPECT_EQ(read(x.get()), 6u);
}

TEST_P(DeviceSuite, NotifyFiresAfterTheWorkBeforeItAndOnce) {
  auto s = stream();
  auto fired = std::make_shared<std::atomic<int>>(0);
  auto gate = ops().hold(*s);
  s->notify([fired](std::exception_ptr error) { fired->fetch_add(error == nullptr ? 1 : 100); });
  EXPECT_EQ(fired->load(), 0);
  gate->open();
  EXPECT_EQ(notified(*s), nullptr);
  s.reset();
  EXPECT_EQ(fired->load(), 1);
}

TEST_P(DeviceSuite, APointCallsBackBeforeAndAfterItIsReached) {
  auto s = stream();
  auto gate = ops().hold(*s);
  auto point = s->mark();
  std::promise<void> reached;
  point->when_reached([&] { reached.set_value(); });
  gate->open();
  reached.get_future().wait();
  EXPECT_NE(point->query(), EventStatus::pending);
  bool again = false;
  point->when_reached([&] { again = true; });
  EXPECT_TRUE(again);
}

TEST_P(DeviceSuite, SynchronizeInsideATaskThrows) {
  if (!tasks_overlap()) GTEST_SKIP() << "tasks run on the calling thread";
  auto s = stream();
  s->submit([&](KernelContext&) { s->synchronize(); });
  EXPECT_THROW(s->synchronize(), InvalidState);
}

TEST_P(DeviceSuite, DestroyingAStreamDrainsIt) {
  Block<uint32_t> x(device(), 1);
  auto s = stream();
  ops().fill(*s, x.get(), 1, 0);
  for (int i = 0; i < 100; ++i) ops().add(*s, x.get(), 1, 1);
  s->submit(failing_task("not thrown by the destructor"));
  s.reset();
  EXPECT_EQ(read(x.get()), 100u);
}

TEST_P(DeviceSuite, WhatATaskHoldsIsLetGoWhenItHasRun) {
  auto s = stream();
  auto held = std::make_shared<int>(1);
  s->submit([held](KernelContext&) {});
  EXPECT_EQ(notified(*s), nullptr);
  EXPECT_EQ(held.use_count(), 1);
}

TEST_P(DeviceSuite, ThreadsDriveTheirOwnStreams) {
  constexpr int kThreads = 4;
  std::latch start(kThreads);
  std::vector<uint32_t> got(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      start.arrive_and_wait();
      auto s = stream();
      auto e = event();
      auto* x = static_cast<uint32_t*>(device().allocate(64, s.get()));
      ops().fill(*s, x, 16, 0);
      for (int i = 0; i < 100; ++i) {
        ops().add(*s, x, 16, 1);
        s->record(*e);
        s->wait(*e);
      }
      device().copy_async(&got[static_cast<size_t>(t)], cpu(), x, device().context(), sizeof(uint32_t), *s);
      device().free(x, s.get());
      s->synchronize();
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(got, std::vector<uint32_t>(kThreads, 100));
}

}  // namespace mx::conformance
