// Operations that run immediately in the calling thread give the same results, errors and order as pushed
// ones.
#include <gtest/gtest.h>

#include <barrier>
#include <chrono>
#include <cmath>
#include <limits>
#include <source_location>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/cpus.h"
#include "engine/detail/engine_load.h"
#include "engine/engine.h"
#include "ndarray/copy.h"
#include "ndarray/launch.h"
#include "ndarray/ndarray.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/held.h"

namespace mx {
namespace {

using detail::ArrayImpl;
using detail::EngineLoad;
using test::contains;
using test::error_of;
using test::Hold;

// out = in + 1, element by element (all contiguous f32).
void run_increment(const KernelArgs& args) {
  for (int64_t i = 0; i < args.out[0].numel(); ++i)
    args.out[0].as<float>()[i] = args.in[0].as<float>()[i] + 1;
}
const Kernel kIncrement = {"increment", run_increment, nullptr, 100};

// out = in, or an error if the first element is negative.
void run_checked(const KernelArgs& args) {
  const float first = args.in[0].as<float>()[0];
  MX_CHECK(first >= 0, InvalidArgument, "expected a first element that is not negative, got ", first);
  run_increment(args);
}
const Kernel kChecked = {"checked", run_checked, nullptr, 100};

// Updates in[0]: x = x + 1, or an error if it is 13.
void run_step(const KernelArgs& args) {
  float* const x = args.in[0].as<float>();
  MX_CHECK(x[0] != 13.f, InvalidArgument, "expected a number without bad luck, got 13");
  for (int64_t i = 0; i < args.in[0].numel(); ++i) x[i] += 1;
}
const Kernel kStep = {"step", run_step, nullptr, 100};

// Updates in[0]: x = x + 1.
void run_count(const KernelArgs& args) {
  for (int64_t i = 0; i < args.in[0].numel(); ++i) args.in[0].as<float>()[i] += 1;
}
const Kernel kCount = {"count", run_count, nullptr, 100};

// out = 1 / in, which creates infinities.
void run_invert(const KernelArgs& args) {
  for (int64_t i = 0; i < args.out[0].numel(); ++i)
    args.out[0].as<float>()[i] = 1 / args.in[0].as<float>()[i];
}
const Kernel kInvert = {"invert", run_invert, nullptr, 100};

NDArray apply(const Kernel& kernel, const NDArray& in,
              std::source_location where = std::source_location::current()) {
  NDArray out = empty(in.shape(), f32, in.context());
  ArrayImpl* const inputs[] = {&in.impl()};
  ArrayImpl* const outputs[] = {&out.impl()};
  launch({.kernel = &kernel,
          .inputs = inputs,
          .outputs = outputs,
          .fresh_outputs = 1,
          .work = in.numel(),
          .where = where});
  return out;
}

void update(const Kernel& kernel, const NDArray& x) {
  ArrayImpl* const inputs[] = {&x.impl()};
  launch({.kernel = &kernel, .inputs = inputs, .updated_inputs = 1, .work = x.numel()});
}
void step(const NDArray& x) { update(kStep, x); }

class DirectModes : public test::EngineTest {
 protected:
  EngineScope scope_{e_};
};
INSTANTIATE_TEST_SUITE_P(All, DirectModes, ::testing::ValuesIn(test::all_cases()), test::CaseName());

constexpr int64_t kSmall = 10, kLarge = 1000;

TEST_P(DirectModes, AnErrorPoisonsExactlyWhatDependsOnIt) {
  for (int64_t size : {kSmall, kLarge}) {
    const NDArray good = ones({size}), bad = full({size}, -1.f);
    const NDArray failed = apply(kChecked, bad);
    const NDArray after = apply(kIncrement, failed), beyond = apply(kIncrement, after);
    const NDArray beside = apply(kIncrement, bad), fine = apply(kChecked, good);
    for (const NDArray& a : {failed, after, beyond}) {
      for (int i = 0; i < 2; ++i) {
        const std::string text = error_of<InvalidArgument>([&] { a.to_vector<float>(); });
        EXPECT_TRUE(contains(text, "[checked] expected a first element that is not negative, got -1"))
            << text;
        EXPECT_TRUE(contains(text, "f32 (" + std::to_string(size) + ",)")) << text;
        EXPECT_TRUE(contains(text, "direct_test.cc:")) << text;
      }
      error_of<InvalidArgument>([&] { a.wait(); });
      error_of<InvalidArgument>([&] { a[0].item<float>(); });
      error_of<InvalidArgument>([&] { to_string(a); });
    }
    EXPECT_EQ(0.f, beside[0].item<float>());
    EXPECT_EQ(2.f, fine[0].item<float>());
    EXPECT_EQ(-1.f, bad[0].item<float>());
    error_of<InvalidArgument>([&] { wait_all(); });
  }
}

TEST_P(DirectModes, AnUpdateThatFailsPoisonsAndAWriteHeals) {
  for (int64_t size : {kSmall, kLarge}) {
    NDArray x = full({size}, 12.f);
    step(x);
    EXPECT_EQ(13.f, x[0].item<float>());
    step(x);
    step(x);
    error_of<InvalidArgument>([&] { x.wait(); });
    x[0] = 1;  // a write to a part does not recover the array
    error_of<InvalidArgument>([&] { x.wait(); });
    x.fill_(1);
    x.wait();
    step(x);
    EXPECT_EQ(std::vector<float>(static_cast<size_t>(size), 2.f), x.to_vector<float>());
    error_of<InvalidArgument>([&] { wait_all(); });
  }
}

TEST_P(DirectModes, OnDevicesErrorsSayTheSame) {
  const NDArray failed = apply(kChecked, full({kSmall}, -2.f, f32, virt(0)));
  const NDArray after = apply(kIncrement, failed);
  const std::string text = error_of<InvalidArgument>([&] { after.to_vector<float>(); });
  EXPECT_TRUE(contains(text, "[checked] expected a first element that is not negative, got -2")) << text;
  EXPECT_TRUE(contains(text, "f32 (10,)") && contains(text, "direct_test.cc:")) << text;
  error_of<InvalidArgument>([&] { wait_all(); });
}

class CheckedNumerics {
 public:
  CheckedNumerics() { set_check_numerics(true); }
  ~CheckedNumerics() { set_check_numerics(false); }
};

TEST_P(DirectModes, CheckedNumericsNameTheFirstOperator) {
  const CheckedNumerics on;
  for (const Context context : {cpu(), virt(0)}) {
    for (int64_t size : {kSmall, kLarge}) {
      const NDArray zero = zeros({size}, f32, context);
      const int line = __LINE__ + 1;
      const NDArray first = apply(kInvert, zero);
      const NDArray last = apply(kIncrement, apply(kInvert, first));
      const std::string text = error_of<NumericError>([&] { last.wait(); });
      EXPECT_TRUE(contains(text, "[invert] expected finite values")) << text;
      EXPECT_TRUE(contains(text, "f32 (" + std::to_string(size) + ",)")) << text;
      EXPECT_TRUE(contains(text, "direct_test.cc:" + std::to_string(line))) << text;
      // An operation is not blamed for values that were not finite before it.
      NDArray infinite = full({size}, std::numeric_limits<float>::infinity(), f32, context);
      EXPECT_EQ(std::numeric_limits<float>::infinity(), apply(kIncrement, infinite)[0].item<float>());
      error_of<NumericError>([&] { wait_all(); });
    }
  }
}

TEST_P(DirectModes, ASegmentOfArrayOperationsGivesWhatRunningAgainGives) {
  for (int64_t size : {kSmall, kLarge}) {
    NDArray x = zeros({size}), y = zeros({size}), again_x = zeros({size}), again_y = zeros({size});
    const auto program = [](NDArray& a, NDArray& b) {
      step(a);
      b.copy_from(apply(kIncrement, a));
      b[0] = 100;
      a[{Slice{1, 3}}] = b[{Slice{0, 2}}];
    };
    Segment segment = e_.record([&] { program(x, y); });
    EXPECT_EQ(std::vector<float>(static_cast<size_t>(size), 0.f), x.to_vector<float>());
    for (int i = 0; i < 3; ++i) {
      segment.replay();
      x[0] = static_cast<float>(i);
      program(again_x, again_y);
      again_x[0] = static_cast<float>(i);
      EXPECT_EQ(again_x.to_vector<float>(), x.to_vector<float>());
      EXPECT_EQ(again_y.to_vector<float>(), y.to_vector<float>());
    }
  }
}

TEST_P(DirectModes, SmallOperationsKeepTheirPlaceAmongReplays) {
  NDArray x = zeros({kSmall});
  Segment segment = e_.record([&] { update(kCount, x); });
  float expected = 0;
  for (int i = 0; i < 20; ++i) {
    x.fill_(static_cast<float>(i));  // runs immediately: no other operation uses x
    x.wait();
    Hold hold;
    e_.push_async(hold.operation(), {.updates = {x.var()}, .name = "held"});
    segment.replay();
    // Must be ordered behind the replay, although no call of this program is pending.
    const NDArray seen = apply(kIncrement, x);
    x.fill_(50);
    hold.release();
    expected = static_cast<float>(i) + 2;
    EXPECT_EQ(expected, seen[0].item<float>());
    EXPECT_EQ(50.f, x[0].item<float>());
  }
}

TEST_P(DirectModes, AReplayThatFailsIsNotForgottenWhenItsSegmentIsGone) {
  NDArray x = full({kSmall}, 13.f);
  {
    Segment segment = e_.record([&] { step(x); });
    segment.replay();
  }
  error_of<InvalidArgument>([&] { x.to_vector<float>(); });
  x.fill_(1);
  EXPECT_EQ(1.f, x[0].item<float>());
  error_of<InvalidArgument>([&] { wait_all(); });
}

TEST(Direct, SmallOperationsDoNotMeetTheEngine) {
  Engine engine;
  if (!engine.direct()) GTEST_SKIP() << "this engine is not to be bypassed";
  const EngineScope scope(engine);
  NDArray x = zeros({kSmall});
  for (int i = 0; i < 100; ++i) x = apply(kIncrement, x);
  x[0] = 1;
  EXPECT_EQ(100.f, x[1].item<float>());
  EXPECT_EQ(0u, engine.stats().pushed);
}

TEST(Direct, AHealedArrayGoesBackToDirectExecution) {
  Engine engine(test::threaded_case(2).options);
  const EngineScope scope(engine);
  NDArray x = full({kSmall}, 13.f);
  step(x);
  error_of<InvalidArgument>([&] { x.wait(); });
  x.fill_(0);
  x.wait();
  error_of<InvalidArgument>([&] { engine.wait_all(); });
  const uint64_t pushed = engine.stats().pushed;
  for (int i = 0; i < 5; ++i) step(x);
  EXPECT_EQ(5.f, x[0].item<float>());
  EXPECT_EQ(pushed, engine.stats().pushed);
}

TEST(Direct, ReadersOfDevicesHoldUpWritersUntilTheyHaveRead) {
  Engine engine(test::threaded_case(2).options);
  const EngineScope scope(engine);
  for (int i = 0; i < 200; ++i) {
    NDArray x = full({kSmall}, static_cast<float>(i));
    const NDArray y = x.to(virt(0));
    x.fill_(-1);
    EXPECT_EQ(static_cast<float>(i), y[3].item<float>());
  }
}

// Kernels that wait at this barrier end only when all of them run at once.
std::barrier<>* meeting;
void run_meeting(const KernelArgs&) { meeting->arrive_and_wait(); }
const Kernel kMeeting = {"meeting", run_meeting};

TEST(Direct, IndependentOperationsOverlapWhileSmallOnesRun) {
  Engine engine(test::threaded_case(2).options);
  const EngineScope scope(engine);
  std::barrier<> three(3);
  meeting = &three;
  NDArray a = empty({kLarge}), b = empty({kLarge}), small = zeros({kSmall});
  for (NDArray* x : {&a, &b}) {
    ArrayImpl* const outputs[] = {&x->impl()};
    launch({.kernel = &kMeeting, .outputs = outputs});
  }
  // These neither wait for the meeting operations nor are waited for by them.
  for (int i = 0; i < 10; ++i) step(small);
  EXPECT_EQ(10.f, small[0].item<float>());
  three.arrive_and_wait();
  a.wait();
  b.wait();
}

// The thread that ran the operation; set by run_signed().
std::thread::id signature;
void run_signed(const KernelArgs& args) {
  signature = std::this_thread::get_id();
  run_increment(args);
}
const Kernel kSigned = {"signed", run_signed, nullptr, 100};

TEST(Direct, WhereAllThreadsAreTakenTheCallerDoesWhatIsNotTooLarge) {
  if (processors() == 1) GTEST_SKIP() << "the caller does larger ones too";
  Engine engine(test::threaded_case(2).options);
  if (!engine.direct()) GTEST_SKIP() << "this engine is not to be bypassed";
  const EngineScope scope(engine);
  const NDArray large = zeros({kLarge}), larger = zeros({10 * kLarge});
  large.wait();
  larger.wait();
  EXPECT_FALSE(EngineLoad::crowded(engine));
  test::Gate gate;
  const Var held[] = {engine.new_var(), engine.new_var()};
  for (const Var v : held) engine.push([&] { gate.pass(); }, {.updates = {v}});
  gate.entered(2);
  EXPECT_FALSE(EngineLoad::crowded(engine)) << "nobody waits for anything";
  std::thread waiter([&] { engine.wait(held[0]); });
  while (!EngineLoad::crowded(engine)) std::this_thread::yield();

  const NDArray done = apply(kSigned, large);
  EXPECT_EQ(std::this_thread::get_id(), signature);
  EXPECT_EQ(1.f, done[3].item<float>());
  signature = {};
  const NDArray pushed = apply(kSigned, larger);
  // Both threads are blocked and this thread has not run it, so no thread has.
  EXPECT_EQ(std::thread::id(), signature);
  gate.open();
  EXPECT_EQ(1.f, pushed[3].item<float>());
  waiter.join();
}

// Up to 16 times this size the caller still runs the operation itself if the other thread can help.
constexpr int64_t kShared = 4096;
const Kernel kSharedLoop = {"shared_loop", run_increment, nullptr, kShared};

TEST(Direct, WhileTheOtherThreadLooksForWorkTheCallerDoesWhatIsNotTooLarge) {
  for (const int threads : {2, 3}) {
    EngineOptions patient = test::threaded_case(threads).options;
    patient.spin_us = 200'000;
    Engine engine(patient);
    if (!engine.direct()) GTEST_SKIP() << "this engine is not to be bypassed";
    if (usable_cpus() == 1) GTEST_SKIP() << "nobody looks for work on the only processor";
    const EngineScope scope(engine);
    const NDArray medium = zeros({10 * kShared}), large = zeros({30 * kShared}),
                  one_piece = zeros({2 * kShared});
    wait_all();
    bool done_here = false;
    for (int i = 0; i < 100 && !done_here; ++i) {
      Var v = engine.new_var();
      engine.push([] {}, {.updates = {v}});
      engine.wait(v);
      engine.delete_var(v);
      using std::chrono::steady_clock;
      const auto patience = steady_clock::now() + std::chrono::milliseconds(threads == 2 ? 100 : 0);
      while (!EngineLoad::second_thread_searches(engine) && steady_clock::now() < patience)
        std::this_thread::yield();
      const uint64_t before = engine.stats().pushed;
      const NDArray result = apply(kSharedLoop, medium);
      done_here = engine.stats().pushed == before;
      EXPECT_EQ(1.f, result[7].item<float>());
    }
    EXPECT_EQ(threads == 2, done_here) << "with " << threads << " threads";
    for (const NDArray& other : {large, one_piece}) {
      const uint64_t before = engine.stats().pushed;
      const NDArray result = apply(kSharedLoop, other);
      EXPECT_LT(before, engine.stats().pushed) << other.shape();
    }
  }
}

// With more callers than processors, sometimes the callers and sometimes the engine's threads do the work.
TEST(Direct, ManyCallersOfOneArrayLoseNothing) {
  Engine engine(test::threaded_case(2).options);
  NDArray shared, total;
  {
    const EngineScope scope(engine);
    shared = full({kLarge}, 2.f);
    total = zeros({kLarge});
  }
  std::vector<std::thread> callers;
  for (int t = 0; t < 8; ++t) {
    callers.emplace_back([&] {
      const EngineScope scope(engine);
      for (int i = 0; i < 200; ++i) {
        NDArray x = apply(kIncrement, shared);
        for (int k = 0; k < 5; ++k) update(kCount, x);
        EXPECT_EQ(8.f, x[i].item<float>());
        update(kCount, total);
      }
    });
  }
  for (std::thread& caller : callers) caller.join();
  const EngineScope scope(engine);
  EXPECT_EQ(std::vector<float>(kLarge, 1600.f), total.to_vector<float>());
}

TEST(Direct, ThreadsThatShareArraysLoseNothing) {
  for (int threads : {1, 2}) {
    Engine engine(test::threaded_case(threads).options);
    NDArray small, large;
    {
      const EngineScope scope(engine);
      small = zeros({kSmall});
      large = zeros({kLarge});
    }
    std::vector<std::thread> workers;
    for (int t = 0; t < 4; ++t) {
      workers.emplace_back([&] {
        const EngineScope scope(engine);
        for (int i = 0; i < 300; ++i) {
          update(kCount, small);
          if (i % 3 == 0) update(kCount, large);
          // A part of the large array, small enough to run immediately.
          if (i % 5 == 0) update(kCount, large[{Slice{10, 20}}]);
          if (i % 7 == 0) {
            EXPECT_GE(apply(kIncrement, small)[0].item<float>(), 1.f);
          }
        }
      });
    }
    for (std::thread& worker : workers) worker.join();
    const EngineScope scope(engine);
    EXPECT_EQ(std::vector<float>(kSmall, 1200.f), small.to_vector<float>());
    EXPECT_EQ(400.f, large[9].item<float>());
    EXPECT_EQ(std::vector<float>(10, 640.f), (large[{Slice{10, 20}}].to_vector<float>()));
  }
}

}  // namespace
}  // namespace mx
