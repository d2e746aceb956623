// StreamOrder: event waits, stream choice and completion, on streams that advance only when the test says so.
#include "engine/detail/stream_order.h"

#include <gtest/gtest.h>

#include "tests/engine/stream_order_rig.h"

namespace mx::test {
namespace {

using State = Rig::State;

uint64_t waits(const Rig& rig) { return rig.order.wait_count(); }

// Expects the given schedule length. Everything is enqueued while nothing runs, so only the order of the
// streams and their waits determine the schedule. Each operation is two tasks long.
void expect_makespan(uint64_t operations_on_critical_path) {
  EXPECT_LE(static_cast<double>(makespan()), 1.1 * 2.0 * static_cast<double>(operations_on_critical_path));
}

TEST(StreamOrder, ChainStaysOnOneStreamWithoutWaits) {
  Rig rig(1);
  for (int i = 0; i < 100; ++i) rig.push({.updates = {0}, .context = fake()});
  EXPECT_EQ(waits(rig), 0u);
  EXPECT_EQ(fake_device().streams.size(), 1u);
  EXPECT_EQ(rig.order.issued_count(), 100u);
  expect_makespan(100);
  rig.finish();
  EXPECT_EQ(rig.retired_count, 100);
}

TEST(StreamOrder, ChainThroughFreshVariablesStaysOnOneStream) {
  Rig rig(11);
  rig.push({.writes = {0}, .context = fake()});
  for (int i = 0; i < 10; ++i) rig.push({.reads = {i}, .writes = {i + 1}, .context = fake()});
  EXPECT_EQ(waits(rig), 0u);
  EXPECT_EQ(fake_device().streams.size(), 1u);
}

TEST(StreamOrder, IndependentChainsTakeAStreamEach) {
  for (const bool interleaved : {false, true}) {
    Rig rig(4, 4);
    for (int i = 0; i < 40; ++i) rig.push({.updates = {interleaved ? i % 4 : i / 10}, .context = fake()});
    EXPECT_EQ(waits(rig), 0u) << interleaved;
    EXPECT_EQ(fake_device().streams.size(), 4u);
    expect_makespan(10);
  }
}

TEST(StreamOrder, MoreChainsThanStreamsShareThemEvenlyWithoutWaits) {
  for (const bool interleaved : {false, true}) {
    Rig rig(8, 4);
    for (int i = 0; i < 80; ++i) rig.push({.updates = {interleaved ? i % 8 : i / 10}, .context = fake()});
    EXPECT_EQ(waits(rig), 0u) << interleaved;
    expect_makespan(20);  // 80 operations on 4 streams
  }
}

TEST(StreamOrder, ForkJoinWaitsOncePerOtherBranchOnEachSide) {
  for (const int k : {2, 4, 7}) {
    Rig rig(k + 2);
    rig.push({.writes = {0}, .context = fake()});
    for (int i = 1; i <= k; ++i) rig.push({.reads = {0}, .writes = {i}, .context = fake()});
    EXPECT_EQ(waits(rig), static_cast<uint64_t>(k - 1));
    if (k <= 4) {
      std::vector<int> branches;
      for (int i = 1; i < k; ++i) branches.push_back(i);
      rig.push({.reads = branches, .updates = {k}, .context = fake()});
      expect_makespan(3);
    } else {  // an operation of the rig has at most four variables, so join two at a time
      for (int i = 1; i < k; ++i) rig.push({.reads = {i}, .updates = {i + 1}, .context = fake()});
      expect_makespan(static_cast<uint64_t>(k + 1));
    }
    EXPECT_EQ(waits(rig), static_cast<uint64_t>(2 * (k - 1)));
  }
}

TEST(StreamOrder, RepeatedForkJoinNeedsNoMoreStreams) {
  Rig rig(5);
  for (int round = 0; round < 10; ++round) {
    rig.push({.updates = {0}, .context = fake()});
    for (int i = 1; i <= 3; ++i) rig.push({.reads = {0}, .writes = {i}, .context = fake()});
    rig.push({.reads = {1, 2, 3}, .updates = {0}, .context = fake()});
    rig.poll();
    run_all_streams();
    rig.poll();
  }
  EXPECT_EQ(waits(rig), 40u);
  EXPECT_EQ(fake_device().streams.size(), 3u);
}

TEST(StreamOrder, DiamondWaitsTwice) {
  Rig rig(4);
  rig.push({.writes = {0}, .context = fake()});
  rig.push({.reads = {0}, .writes = {1}, .context = fake()});
  rig.push({.reads = {0}, .writes = {2}, .context = fake()});
  rig.push({.reads = {1, 2}, .writes = {3}, .context = fake()});
  EXPECT_EQ(waits(rig), 2u);
  expect_makespan(3);
}

TEST(StreamOrder, ReductionTreeWaitsOncePerInnerOperation) {
  Rig rig(15);
  for (int i = 7; i < 15; ++i) rig.push({.writes = {i}, .context = fake()});
  for (int i = 6; i >= 0; --i) rig.push({.reads = {2 * i + 1, 2 * i + 2}, .writes = {i}, .context = fake()});
  EXPECT_EQ(waits(rig), 7u);
  expect_makespan(4);
}

TEST(StreamOrder, BroadcastTreeWaitsOncePerSecondChild) {
  Rig rig(15);
  rig.push({.writes = {0}, .context = fake()});
  for (int i = 1; i < 15; ++i) rig.push({.reads = {(i - 1) / 2}, .writes = {i}, .context = fake()});
  EXPECT_EQ(waits(rig), 7u);
  expect_makespan(4);
}

TEST(StreamOrder, GridWaitsOncePerOperationBelowTheFirstRow) {
  const int n = 6;
  Rig rig(n * n);
  const auto cell = [&](int row, int column) { return row * n + column; };
  for (int row = 0; row < n; ++row) {
    for (int column = 0; column < n; ++column) {
      OpSpec spec{.writes = {cell(row, column)}, .context = fake()};
      if (row > 0) spec.reads.push_back(cell(row - 1, column));
      if (column > 0) spec.reads.push_back(cell(row, column - 1));
      rig.push(spec);
    }
  }
  // The number of edges minus those that the order within a stream already implies: 2 n (n - 1) - (n n - n)
  // for n streams.
  EXPECT_EQ(waits(rig), static_cast<uint64_t>(n * (n - 1)));
  expect_makespan(2 * n - 1);
}

TEST(StreamOrder, TransitivelyOrderedPointsNeedNoWait) {
  Rig rig(3, 4);
  rig.push({.writes = {0}, .context = fake(0)});
  rig.push({.reads = {0}, .writes = {1}, .context = fake(1)});  // waits for device 0
  EXPECT_EQ(waits(rig), 1u);
  rig.push({.reads = {1}, .writes = {2}, .context = fake(2)});  // waits for device 1, and so for device 0
  EXPECT_EQ(waits(rig), 2u);
  rig.push({.reads = {0}, .updates = {2}, .context = fake(2)});
  EXPECT_EQ(waits(rig), 2u);
}

TEST(StreamOrder, ADominatedDependenceIsNotWaitedFor) {
  Rig rig(3, 4);
  rig.push({.writes = {0}, .context = fake(0)});
  rig.push({.reads = {0}, .writes = {1}, .context = fake(1)});
  // Needs both, but device 1 already waited for device 0.
  rig.push({.reads = {0, 1}, .writes = {2}, .context = fake(2)});
  EXPECT_EQ(waits(rig), 2u);
}

TEST(StreamOrder, AWaitForALaterPointCoversEarlierOnes) {
  Rig rig(4, 1);
  for (int i = 0; i < 3; ++i) rig.push({.writes = {i}, .context = fake(0)});
  rig.push({.reads = {0, 1, 2}, .writes = {3}, .context = fake(1)});
  EXPECT_EQ(waits(rig), 1u);
  rig.push({.updates = {1}, .context = fake(1)});
  EXPECT_EQ(waits(rig), 1u);
}

TEST(StreamOrder, AWriteWaitsForReadersButReadersNotForEachOther) {
  Rig rig(4, 4);
  rig.push({.writes = {0}, .context = fake(0)});
  rig.push({.reads = {0}, .writes = {1}, .context = fake(1)});
  rig.push({.reads = {0}, .writes = {2}, .context = fake(2)});
  EXPECT_EQ(waits(rig), 2u);
  rig.push({.writes = {0}, .context = fake(3)});  // waits for both readers; the writer comes before them
  EXPECT_EQ(waits(rig), 4u);
}

TEST(StreamOrder, EndedPointsNeedNoWait) {
  Rig rig(2);
  rig.push({.writes = {0}, .context = fake(0)});
  rig.finish();
  EXPECT_EQ(rig.vars[0]->marks, nullptr);
  rig.push({.reads = {0}, .writes = {1}, .context = fake(1)});
  EXPECT_EQ(waits(rig), 0u);
}

TEST(StreamOrder, LanesHaveStreamsOfTheirOwn) {
  Rig rig(4);
  int i = 0;
  for (const StreamKind lane :
       {StreamKind::compute, StreamKind::copy_in, StreamKind::copy_out, StreamKind::comm}) {
    rig.push({.writes = {i++}, .context = fake(), .lane = lane});
    EXPECT_EQ(fake_device().streams.back()->kind(), lane);
  }
  EXPECT_EQ(fake_device().streams.size(), 4u);
  // There is one copy stream per direction, however much is in flight on it.
  Rig other(4);
  for (i = 0; i < 4; ++i) other.push({.writes = {i}, .context = fake(1), .lane = StreamKind::copy_in});
  EXPECT_EQ(fake_device(1).streams.size(), 1u);
  // Operations for communication that wait for different inputs do not wait for each other.
  Rig third(4, 3);
  for (i = 0; i < 4; ++i) third.push({.writes = {i}, .context = fake(2), .lane = StreamKind::comm});
  EXPECT_EQ(fake_device(2).streams.size(), 3u);
}

TEST(StreamOrder, TheDeviceProposesTheNumberOfStreams) {
  Rig rig(8, 0);
  for (int i = 0; i < 8; ++i) rig.push({.writes = {i}, .context = fake()});
  EXPECT_EQ(fake_device().streams.size(), 4u);
}

TEST(StreamOrder, AHostOperationStartsWhenItsInputHasLanded) {
  Rig rig(2);
  rig.push({.writes = {0}, .context = fake()});
  const int host = rig.push({.reads = {0}, .writes = {1}, .context = cpu()});
  const int device = rig.push({.updates = {1}, .context = fake()});
  EXPECT_EQ(rig.state(host), State::parked);
  EXPECT_EQ(rig.state(device), State::waiting);
  EXPECT_TRUE(rig.poll());
  EXPECT_EQ(rig.state(host), State::parked);
  rig.finish();
  EXPECT_EQ(rig.state(host), State::host_done);
  EXPECT_EQ(rig.state(device), State::issued);
  EXPECT_EQ(rig.cells[1], value_of(2, 1, {value_of(1, 1, {value_of(0, 0, {})})}));
}

TEST(StreamOrder, AHostReaderDoesNotWaitForDeviceReaders) {
  Rig rig(3);
  rig.push({.writes = {0}, .context = fake()});
  run_all_streams();
  rig.poll();
  rig.push({.reads = {0}, .writes = {1}, .context = fake()});
  EXPECT_EQ(rig.state(rig.push({.reads = {0}, .writes = {2}, .context = cpu()})), State::host_done);
  EXPECT_EQ(rig.state(rig.push({.writes = {0}, .context = cpu()})), State::parked);
  rig.finish();
}

TEST(StreamOrder, LandedIsAskedAgainOnlyAfterTheWriteHasEnded) {
  Rig rig(1);
  EXPECT_TRUE(rig.order.landed(rig.vars[0]));
  rig.push({.writes = {0}, .context = fake()});
  EXPECT_FALSE(rig.order.landed(rig.vars[0]));
  EXPECT_FALSE(rig.order.landed(rig.vars[0]));
  rig.poll();
  EXPECT_TRUE(rig.maybe_landed_calls.empty());
  rig.finish();
  ASSERT_EQ(rig.maybe_landed_calls.size(), 1u);
  EXPECT_EQ(rig.maybe_landed_calls[0], rig.vars[0]);
  EXPECT_TRUE(rig.order.landed(rig.vars[0]));
}

TEST(StreamOrder, AVersionHasLandedWhileLaterWritesAndReadersAreInFlight) {
  Rig rig(2);
  rig.push({.writes = {0}, .context = fake()});
  const uint32_t version = rig.vars[0]->writes_done;
  EXPECT_FALSE(rig.order.landed(rig.vars[0], version));
  FakeStream* stream = fake_device().streams[0];
  while (stream->step()) {
  }
  rig.push({.reads = {0}, .writes = {1}, .context = fake()});
  rig.push({.updates = {0}, .context = fake()});
  rig.poll();
  EXPECT_EQ(rig.maybe_landed_calls.size(), 1u);
  EXPECT_TRUE(rig.order.landed(rig.vars[0], version));
  EXPECT_FALSE(rig.order.landed(rig.vars[0]));
  rig.finish();
  EXPECT_EQ(rig.maybe_landed_calls.size(), 2u);
}

TEST(StreamOrder, PollQueriesOneEventPerBusyStream) {
  Rig rig(8);
  for (int i = 0; i < 80; ++i) rig.push({.updates = {i % 4}, .context = fake()});
  const uint64_t before = FakeEvent::queries;
  EXPECT_TRUE(rig.poll());
  EXPECT_EQ(FakeEvent::queries - before, 4u);
  run_all_streams();
  EXPECT_FALSE(rig.poll());
  const uint64_t after = FakeEvent::queries;
  EXPECT_FALSE(rig.poll());
  EXPECT_EQ(FakeEvent::queries, after);
}

TEST(StreamOrder, ForgottenVariablesLeaveTheirOperationsAlone) {
  Rig rig(2);
  rig.push({.writes = {0, 1}, .context = fake(), .fails_on_device = true});
  rig.order.forget(rig.vars[0]);
  EXPECT_EQ(rig.vars[0]->marks, nullptr);
  rig.finish();
  EXPECT_EQ(rig.vars[0]->failure, nullptr);
  EXPECT_EQ(rig.failure_of(1), "op0");
}

TEST(StreamOrder, EventsAreRecycledOnceNobodyNeedsThem) {
  Rig rig(6);
  for (int round = 0; round < 200; ++round) {
    rig.push({.writes = {0}, .context = fake()});
    rig.push({.reads = {0}, .writes = {1}, .context = fake()});
    rig.push({.reads = {0}, .writes = {2}, .context = fake()});
    rig.push({.reads = {1}, .updates = {2}, .context = fake()});
    if (round % 4 != 3) continue;
    run_all_streams();
    rig.poll();
  }
  rig.finish();
  EXPECT_LE(fake_device().events_made, 20);
  EXPECT_EQ(
      rig.cells[2],
      value_of(799, 2, {value_of(797, 1, {value_of(796, 0, {})}), value_of(798, 2, {value_of(796, 0, {})})}));
}

}  // namespace
}  // namespace mx::test
