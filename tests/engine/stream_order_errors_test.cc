// StreamOrder: which variables an error on a device poisons, and which it does not.
#include <gtest/gtest.h>

#include "engine/base/error.h"
#include "tests/engine/stream_order_rig.h"

namespace mx::test {
namespace {

using State = Rig::State;

TEST(StreamOrderErrors, AFailurePoisonsExactlyWhatWasMadeFromIt) {
  Rig rig(5);
  rig.push({.writes = {0}, .context = fake(), .fails_on_device = true});
  // Already in flight when the failure is detected.
  rig.push({.reads = {0}, .writes = {1}, .context = fake(1)});
  rig.push({.updates = {0}, .context = fake()});
  rig.push({.reads = {1}, .writes = {2}, .context = fake()});
  rig.push({.writes = {3}, .context = fake()});
  rig.finish();
  for (const int var : {0, 1, 2}) EXPECT_EQ(rig.failure_of(var), "op0") << var;
  EXPECT_EQ(rig.vars[0]->failure, rig.vars[2]->failure);
  EXPECT_EQ(rig.failure_of(3), "");
  EXPECT_EQ(rig.failed_count, 1);
  EXPECT_EQ(rig.inherited_count, 3);
  // The failure is known by now, so later operations are skipped.
  EXPECT_EQ(rig.state(rig.push({.reads = {2}, .writes = {4}, .context = fake()})), State::skipped);
}

TEST(StreamOrderErrors, OrderAloneDoesNotPassAFailureOn) {
  Rig rig(3);
  rig.push({.writes = {0}, .context = fake(), .fails_on_device = true});
  rig.push({.writes = {0}, .context = fake(1)});  // ordered after the failure, but reads nothing poisoned
  rig.push({.reads = {0}, .writes = {1}, .context = fake()});
  rig.push({.reads = {1}, .writes = {2}, .context = fake(), .fails_on_device = true});
  rig.push({.writes = {1}, .context = fake(1)});  // ordered after a failing reader
  rig.finish();
  EXPECT_EQ(rig.failure_of(0), "");
  EXPECT_EQ(rig.failure_of(1), "");
  EXPECT_EQ(rig.failure_of(2), "op3");
  EXPECT_EQ(rig.failed_count, 2);
  EXPECT_EQ(rig.inherited_count, 0);
}

TEST(StreamOrderErrors, TheRootCauseWinsOverWhatFollowsFromIt) {
  Rig rig(2);
  rig.push({.writes = {0}, .context = fake(), .fails_on_device = true});
  rig.push({.reads = {0}, .writes = {1}, .context = fake(), .fails_on_device = true});
  rig.finish();
  EXPECT_EQ(rig.failure_of(1), "op0");
  EXPECT_EQ(rig.failed_count, 1);
  EXPECT_EQ(rig.inherited_count, 1);
}

TEST(StreamOrderErrors, AFailureIsRememberedUntilItsDependantsEnd) {
  Rig rig(3);
  rig.push({.writes = {0}, .context = fake(0), .fails_on_device = true});
  rig.push({.reads = {0}, .writes = {1}, .context = fake(1)});
  rig.push({.writes = {0}, .context = fake(2)});  // recovers the variable before the reader has ended
  while (fake_device(0).streams[0]->step()) {
  }
  rig.poll();
  EXPECT_EQ(rig.retired_count, 1);
  rig.finish();
  EXPECT_EQ(rig.failure_of(0), "");
  EXPECT_EQ(rig.failure_of(1), "op0");
}

TEST(StreamOrderErrors, AHostOperationIsSkippedWhenItsInputTurnsOutPoisoned) {
  Rig rig(3);
  rig.push({.writes = {0}, .context = fake(), .fails_on_device = true});
  const int reader = rig.push({.reads = {0}, .writes = {1}, .context = cpu()});
  const int writer = rig.push({.writes = {0}, .context = cpu()});
  rig.finish();
  EXPECT_EQ(rig.state(reader), State::skipped);
  EXPECT_EQ(rig.failure_of(1), "op0");
  EXPECT_EQ(rig.state(writer), State::host_done);
  EXPECT_EQ(rig.failure_of(0), "");
}

TEST(StreamOrderErrors, AFunctionThatThrewOnTheHostKeepsItsOrder) {
  Rig rig(2);
  rig.push({.writes = {0}, .context = fake(), .fails_on_host = true});  // after enqueuing its work
  EXPECT_EQ(rig.failure_of(0), "op0");
  rig.push({.writes = {0}, .context = fake(1)});
  EXPECT_EQ(rig.order.wait_count(), 1u);
  rig.finish();
  EXPECT_EQ(rig.failure_of(0), "");
  EXPECT_EQ(rig.cells[0], value_of(1, 0, {}));
  EXPECT_EQ(rig.failed_count, 1);
}

TEST(StreamOrderErrors, ASkippedUpdateDoesNotMakeAFailedValueRecoverable) {
  Rig rig(3);
  rig.push({.writes = {0}, .context = cpu(), .fails_on_host = true});
  rig.push({.writes = {1}, .context = fake(), .fails_on_device = true});  // this failure is detected late
  const int update = rig.push({.reads = {0}, .updates = {1}, .context = fake()});
  EXPECT_EQ(rig.state(update), State::skipped);
  EXPECT_TRUE(rig.recoverable(1));
  rig.finish();
  EXPECT_EQ(rig.failure_of(1), "op1");
  EXPECT_FALSE(rig.recoverable(1));
}

TEST(StreamOrderErrors, AnOperationPlannedWithAPoisonedInputInheritsIt) {
  Rig rig(2);
  rig.check_cause = false;
  rig.push({.writes = {0}, .context = fake(), .fails_on_device = true});
  rig.finish();
  rig.push({.reads = {0}, .writes = {1}, .context = fake()});
  rig.finish();
  EXPECT_EQ(rig.failure_of(1), "op0");
}

TEST(StreamOrderErrors, AFailureFoundBeforeTheTokenIsUsedIsNotForgotten) {
  for (const bool token_first : {false, true}) {
    Rig rig(2);
    const int op = rig.push({.writes = {0}, .context = fake(), .fails_on_device = true, .by_token = true});
    if (token_first) rig.use_token(op);
    rig.finish();
    if (!token_first) {
      EXPECT_EQ(rig.failure_of(0), "");
      rig.use_token(op);
    }
    EXPECT_EQ(rig.failure_of(0), "op0");
    EXPECT_EQ(rig.state(rig.push({.reads = {0}, .writes = {1}, .context = fake()})), State::skipped);
    EXPECT_EQ(rig.failed_count, 1);
  }
}

TEST(StreamOrderErrors, ALostDeviceFailsItsOwnAndLeavesTheOthers) {
  Rig rig(6);
  rig.push({.writes = {0}, .context = fake(0)});
  rig.push({.writes = {1}, .context = fake(1)});
  rig.push({.reads = {0}, .writes = {2}, .context = fake(1)});
  rig.push({.reads = {1}, .writes = {3}, .context = fake(1)});
  fake_device(0).lose();
  EXPECT_EQ(rig.state(rig.push({.writes = {4}, .context = fake(0)})), State::failed);
  rig.push({.writes = {5}, .context = fake(1)});
  rig.finish();
  EXPECT_EQ(rig.failure_of(0), "op0");
  EXPECT_EQ(rig.failure_of(2), "op0");
  EXPECT_EQ(rig.failure_of(4), "op4");
  for (const int var : {1, 3, 5}) EXPECT_EQ(rig.failure_of(var), "") << var;
  EXPECT_THROW(std::rethrow_exception(rig.vars[4]->failure->error), DeviceError);
}

TEST(StreamOrderErrors, OneOperationIsBlamedForTheLossOfADeviceAndTheOthersArePoisoned) {
  for (const bool polled : {false, true}) {
    Rig rig(5);
    for (int i = 0; i < 4; ++i) rig.push({.writes = {i}, .context = fake(0)});  // on a stream each
    rig.push({.updates = {2}, .context = fake(0)});
    rig.push({.writes = {4}, .context = fake(1)});
    if (polled) rig.poll();  // finds all of them pending
    fake_device(0).lose();
    rig.finish();
    for (const int var : {0, 1, 2, 3}) EXPECT_EQ(rig.failure_of(var), "op0") << var;
    EXPECT_EQ(rig.failure_of(4), "");
    EXPECT_EQ(rig.failed_count, 1);
    EXPECT_EQ(rig.inherited_count, 4);
  }
}

TEST(StreamOrderErrors, AnErrorOfAnOperationBeforeTheLossOfItsDeviceStaysItsOwn) {
  Rig rig(3);
  rig.push({.writes = {0}, .context = fake(0), .fails_on_device = true});
  run_all_streams();
  rig.push({.writes = {1}, .context = fake(0)});
  rig.push({.writes = {2}, .context = fake(0)});
  fake_device(0).lose();
  rig.finish();
  EXPECT_EQ(rig.failure_of(0), "op0");
  EXPECT_EQ(rig.failure_of(1), "op1");
  EXPECT_EQ(rig.failure_of(2), "op1");
}

TEST(StreamOrderErrors, ALostDeviceIsNoExcuseToOvertakeAnother) {
  Rig rig(2);
  rig.push({.writes = {0}, .context = fake(1)});
  run_all_streams();
  rig.poll();
  rig.push({.reads = {0}, .writes = {1}, .context = fake(1)});  // still runs
  rig.push({.writes = {0}, .context = fake(0)});                // ordered after it, on a device that is lost
  fake_device(0).lose();
  rig.poll();
  // Only the first: the event of the lost write has completed, but operations before it have not.
  EXPECT_EQ(rig.retired_count, 1);
  EXPECT_FALSE(rig.order.landed(rig.vars[0]));
  rig.finish();
  EXPECT_EQ(rig.failure_of(0), "op2");
  EXPECT_EQ(rig.failure_of(1), "");
}

TEST(StreamOrderErrors, DependantsLookThroughAnOperationThatCouldNotBeOrdered) {
  for (const bool in_record : {false, true}) {
    Rig rig(2, 1);
    rig.push({.writes = {0}, .context = fake(1)});
    rig.push({.reads = {0}, .writes = {1}, .context = fake(1)});
    (in_record ? fake_device(0).throw_on_record : fake_device(0).throw_on_wait) = true;
    rig.push({.writes = {0}, .context = fake(0)});
    if (in_record) {
      fake_device(0).lose();
    } else {
      EXPECT_EQ(rig.failure_of(0), "op2");
    }
    fake_device(0).reset();
    rig.push({.writes = {0}, .context = fake(2)});
    while (!fake_device(2).streams.empty() && fake_device(2).streams[0]->step()) {
    }
    rig.finish();
    EXPECT_EQ(rig.failure_of(0), "") << in_record;
    EXPECT_EQ(rig.failure_of(1), "") << in_record;
    const int64_t first = value_of(0, 0, {});
    EXPECT_EQ(rig.cells[1], value_of(1, 1, {first})) << in_record;  // no write overtook the reader
    EXPECT_EQ(rig.cells[0], value_of(3, 0, {})) << in_record;
    EXPECT_EQ(rig.retired_count, 4);
  }
}

TEST(StreamOrderErrors, WhenPlanThrowsNothingHasChanged) {
  Rig rig(2);
  rig.push({.writes = {0}, .context = fake(1)});
  fake_device(0).fail_streams = true;
  EXPECT_EQ(rig.state(rig.push({.reads = {0}, .writes = {1}, .context = fake(0)})), State::failed);
  EXPECT_EQ(rig.order.issued_count(), 1u);
  rig.finish();
  EXPECT_EQ(rig.retired_count, 1);
  EXPECT_EQ(rig.failure_of(1), "op1");
  EXPECT_EQ(rig.state(rig.push({.writes = {1}, .context = fake(99)})), State::failed);
  fake_device(0).reset();
  rig.push({.writes = {1}, .context = fake(0)});
  rig.finish();
  EXPECT_EQ(rig.failure_of(1), "");
}

}  // namespace
}  // namespace mx::test
