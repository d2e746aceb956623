// Priorities hold in every queue that an operation passes: the submission ring, the ready queue, a worker's
// batch, the lanes.
#include <gtest/gtest.h>

#include <algorithm>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/device/virtual/virtual_device.h"
#include "tests/support/engine_cases.h"
#include "tests/support/held.h"

namespace mx {
namespace {

using test::Gate;
using test::Hold;

class Priority : public ::testing::Test {
 protected:
  // Pushes an operation that blocks the only worker until open().
  void hold_worker() {
    e_.push([this] { gate_.pass(); }, {.priority = 100});
    gate_.entered();
  }
  void note(int tag) {
    std::lock_guard lock(mutex_);
    order_.push_back(tag);
  }
  size_t place_of(int tag) {
    return static_cast<size_t>(std::find(order_.begin(), order_.end(), tag) - order_.begin());
  }
  void finish() {
    gate_.open();
    e_.wait_all();
  }

  Engine e_{test::threaded_case(1).options};
  Gate gate_;
  std::mutex mutex_;
  std::vector<int> order_;
};

TEST_F(Priority, HigherFirst) {
  hold_worker();
  for (int i = 0; i < 50; ++i) e_.push([this, i] { note((i * 7) % 10 - 5); }, {.priority = (i * 7) % 10 - 5});
  finish();
  EXPECT_EQ(50u, order_.size());
  EXPECT_TRUE(std::is_sorted(order_.rbegin(), order_.rend()));
}

TEST_F(Priority, FirstComeFirstServedWithinOne) {
  for (int priority : {0, 3, -3}) {
    SCOPED_TRACE(priority);
    order_.clear();
    Gate gate;
    e_.push([&] { gate.pass(); }, {.priority = 100});
    gate.entered();
    for (int i = 0; i < 3000; ++i) e_.push([this, i] { note(i); }, {.priority = priority});
    gate.open();
    e_.wait_all();
    EXPECT_EQ(3000u, order_.size());
    EXPECT_TRUE(std::is_sorted(order_.begin(), order_.end()));
  }
}

// The urgent operation is pushed last, behind more operations than a worker drains from the ring at once.
TEST_F(Priority, AnUrgentOperationOvertakesTheRing) {
  hold_worker();
  for (int i = 0; i < 3000; ++i) e_.push([this] { note(0); });
  e_.push([this] { note(1); }, {.priority = 1});
  finish();
  EXPECT_EQ(0u, place_of(1));
}

TEST_F(Priority, CommunicationOvertakesTheRing) {
  hold_worker();
  for (int i = 0; i < 1000; ++i) e_.push([this] { note(0); });
  e_.push([this] { note(1); }, {.lane = StreamKind::comm});
  finish();
  EXPECT_EQ(0u, place_of(1));
}

// An urgent operation is pushed while a worker runs a batch of short ones. The rest of the batch must wait.
TEST_F(Priority, AnUrgentOperationOvertakesABatch) {
  for (int i = 0; i < 2000; ++i) e_.push([] {});  // lets the engine measure that the operations are short
  e_.wait_all();
  for (int priority : {0, -1}) {
    SCOPED_TRACE(priority);
    order_.clear();
    Gate gate;
    e_.push([&] { gate.pass(); }, {.priority = 100});
    gate.entered();
    for (int i = 0; i < 2000; ++i) {
      e_.push(
          [this, i] {
            note(i);
            if (i % 100 == 50) e_.push([this, i] { note(-i); }, {.priority = 5});
          },
          {.priority = priority});
    }
    gate.open();
    e_.wait_all();
    e_.wait_all();
    for (int i = 50; i < 2000; i += 100) EXPECT_EQ(place_of(i) + 1, place_of(-i)) << i;
    std::erase_if(order_, [](int tag) { return tag < 0; });
    // Includes the operations that returned to the queue.
    EXPECT_TRUE(std::is_sorted(order_.begin(), order_.end()));
    EXPECT_EQ(2000u, order_.size());
  }
}

TEST_F(Priority, CommunicationIsNotStarvedByBusyWorkers) {
  hold_worker();
  // The worker runs an operation that ends only after the communication has run.
  e_.push([this] { gate_.open(); }, {.lane = StreamKind::comm});
  e_.wait_all();
}

TEST_F(Priority, ComputingIsNotStarvedByCommunication) {
  Gate comm;
  e_.push([&] { comm.pass(); }, {.lane = StreamKind::comm});
  comm.entered();
  for (int i = 0; i < 10; ++i) e_.push([] {}, {.lane = StreamKind::comm});
  e_.push([&] { comm.open(); });  // the communication operation ends only after this one has run
  while (e_.stats().in_flight > 0) std::this_thread::yield();
}

TEST_F(Priority, WithinALaneToo) {
  Gate comm;
  hold_worker();
  e_.push([&] { comm.pass(); }, {.lane = StreamKind::comm});
  comm.entered();
  for (int i = 0; i < 50; ++i) {
    e_.push([this, i] { note(i % 5); }, {.priority = i % 5, .lane = StreamKind::comm});
  }
  // The other worker stays blocked and no thread helps by waiting, so only one thread runs the lane.
  comm.open();
  while (e_.stats().in_flight > 1) std::this_thread::yield();
  gate_.open();
  e_.wait_all();
  EXPECT_EQ(50u, order_.size());
  EXPECT_TRUE(std::is_sorted(order_.rbegin(), order_.rend()));
}

TEST_F(Priority, OfADevice) {
  Hold hold;
  Var gate = e_.new_var();
  e_.push_async(hold.operation(), {.writes = {gate}});
  for (int i = 0; i < 50; ++i) {
    e_.push([this, i](RunContext) { note(i % 5); }, {.reads = {gate}, .context = virt(0), .priority = i % 5});
  }
  hold.release();
  e_.wait_all();
  EXPECT_EQ(50u, order_.size());
  EXPECT_TRUE(std::is_sorted(order_.rbegin(), order_.rend()));
}

TEST_F(Priority, IsKeptWithinBounds) {
  hold_worker();
  e_.push([this] { note(1); }, {.priority = -2'000'000'000});
  e_.push([this] { note(2); }, {.priority = 2'000'000'000});
  finish();
  EXPECT_EQ((std::vector<int>{2, 1}), order_);
}

}  // namespace
}  // namespace mx
