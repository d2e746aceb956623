// Host access to an array while operations on it are in flight or other threads use it. Every access has one
// place in the order of operations.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <latch>
#include <string>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "ndarray/launch.h"
#include "ndarray/ndarray.h"
#include "tests/support/engine_cases.h"
#include "tests/support/held.h"

namespace mx {
namespace {

using detail::ArrayImpl;
using test::Hold;

// Only push_on() may use a storage's variable and the count that is kept for each push.
template <class T>
concept GivesItsVariable = requires(T& storage, Engine& engine) {
  storage.var(engine);
}
|| requires(T& storage) { storage.known_var(); };
template <class T>
concept LetsItselfBeCounted = requires(T& storage) {
  storage.begin_pending();
}
|| requires(T& storage) { storage.end_pending(); };
static_assert(!GivesItsVariable<Storage> && !LetsItselfBeCounted<Storage>);

constexpr int64_t kSize = 64;

// Updates in[0]: x = x + 1.
void run_raise(const KernelArgs& args) {
  for (int64_t i = 0; i < args.in[0].numel(); ++i) args.in[0].as<float>()[i] += 1;
}
const Kernel kRaise = {"raise", run_raise, nullptr, 100};

// Updates in[0] like kRaise, but half of it before a gate and half after it.
test::Gate* halfway = nullptr;
void run_raise_in_halves(const KernelArgs& args) {
  float* const x = args.in[0].as<float>();
  const int64_t n = args.in[0].numel();
  for (int64_t i = 0; i < n / 2; ++i) x[i] += 1;
  halfway->pass();
  for (int64_t i = n / 2; i < n; ++i) x[i] += 1;
}
const Kernel kRaiseInHalves = {"raise_in_halves", run_raise_in_halves, nullptr, 100};

// out = in[0]; the operation only waits for the other inputs.
void run_take(const KernelArgs& args) {
  std::copy_n(args.in[0].as<float>(), args.in[0].numel(), args.out[0].as<float>());
}
const Kernel kTake = {"take", run_take, nullptr, 100};

void update(const Kernel& kernel, const NDArray& x) {
  ArrayImpl* const inputs[] = {&x.impl()};
  launch({.kernel = &kernel, .inputs = inputs, .updated_inputs = 1, .work = x.numel()});
}

NDArray take_after(const NDArray& x, const NDArray& other) {
  NDArray out = empty(x.shape());
  ArrayImpl* const inputs[] = {&x.impl(), &other.impl()};
  ArrayImpl* const outputs[] = {&out.impl()};
  launch({.kernel = &kTake, .inputs = inputs, .outputs = outputs, .fresh_outputs = 1, .work = x.numel()});
  return out;
}

bool all_equal(const std::vector<float>& values) {
  return std::all_of(values.begin(), values.end(), [&](float v) { return v == values[0]; });
}

TEST(Sharing, AReaderWaitsForAWriterThatRunsInAnotherThread) {
  Engine engine(test::threaded_case(2).options);
  if (!engine.direct()) GTEST_SKIP() << "this engine is not to be bypassed";
  for (const bool printed : {false, true}) {
    NDArray x;
    {
      const EngineScope scope(engine);
      x = zeros({kSize});
      x.wait();
    }
    test::Gate gate;
    halfway = &gate;
    std::thread writer([&] {
      const EngineScope scope(engine);
      update(kRaiseInHalves, x);
    });
    gate.entered();
    const uint64_t pushed = engine.stats().pushed;
    std::atomic<bool> reading{false};
    std::vector<float> seen;
    std::string text;
    std::thread reader([&] {
      const EngineScope scope(engine);
      reading = true;
      if (printed) {
        text = to_string(x);
      } else {
        seen = x.to_vector<float>();
      }
    });
    // If the reader does not wait for the writer, it pushes its read now; if it waits, nothing is pushed.
    while (!reading) std::this_thread::yield();
    for (int i = 0; i < 2000 && engine.stats().pushed == pushed; ++i) std::this_thread::yield();
    if (engine.stats().pushed != pushed) engine.wait_all();
    gate.open();
    writer.join();
    reader.join();
    if (printed) {
      EXPECT_TRUE(text.find('0') == std::string::npos) << text;
    } else {
      EXPECT_EQ(std::vector<float>(kSize, 1.f), seen);
    }
  }
}

TEST(Sharing, ReadersNeverSeeHalfAnOperation) {
  Engine engine(test::threaded_case(2).options);
  NDArray x;
  {
    const EngineScope scope(engine);
    x = zeros({kSize});
  }
  constexpr int kRounds = 3000;
  std::latch start(4);
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      const EngineScope scope(engine);
      start.arrive_and_wait();
      for (int i = 0; i < kRounds; ++i) update(kRaise, x);
    });
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&] {
      const EngineScope scope(engine);
      start.arrive_and_wait();
      for (int i = 0; i < kRounds; ++i) {
        EXPECT_TRUE(all_equal(x.to_vector<float>())) << to_string(x);
        if (i % 8 == 0) {
          EXPECT_TRUE(all_equal(x.clone().to_vector<float>()));
        }
      }
    });
  for (std::thread& thread : threads) thread.join();
  const EngineScope scope(engine);
  EXPECT_EQ(std::vector<float>(kSize, 2.f * kRounds), x.to_vector<float>());
}

TEST(Sharing, MutableDataWaitsForReadersThatHaveNotRun) {
  Engine engine(test::threaded_case(2).options);
  const EngineScope scope(engine);
  for (const bool on_device : {false, true}) {
    NDArray x = full({kSize}, 3.f), held = zeros({kSize});
    Hold hold;
    engine.push_async(hold.operation(), {.updates = {held.var()}, .name = "hold"});
    // Reads x once the hold is released.
    NDArray seen = take_after(x, held);
    if (on_device) {
      // The same if a device reads memory of the host: both halves of the copy wait for the hold.
      x = seen.clone();
      seen = x.to(virt(0));
    }
    std::atomic<bool> returned{false};
    std::thread host([&] {
      const EngineScope inner(engine);
      float* const memory = x.mutable_data<float>();
      returned = true;
      std::fill_n(memory, kSize, 100.f);
    });
    while (engine.stats().waiting == 0 && !returned) std::this_thread::yield();
    EXPECT_FALSE(returned) << "an operation that was called before has not read the array yet";
    if (returned) host.join();
    hold.release();
    if (host.joinable()) host.join();
    EXPECT_EQ(std::vector<float>(kSize, 3.f), seen.to_vector<float>());
    EXPECT_EQ(std::vector<float>(kSize, 100.f), x.to_vector<float>());
  }
}

TEST(Sharing, MutableDataOfAnArrayInNoUsePushesNothing) {
  Engine engine(test::threaded_case(2).options);
  if (!engine.direct()) GTEST_SKIP() << "this engine is not to be bypassed";
  const EngineScope scope(engine);
  NDArray x = zeros({kSize});
  x.mutable_data<float>()[1] = 4;
  EXPECT_EQ(4, x[1].item<float>());
  EXPECT_EQ(0u, engine.stats().pushed);
}

TEST(Sharing, MutableDataOfAFailedArrayThrows) {
  NDArray x = zeros({kSize});
  current_engine().push([] { throw InvalidArgument("no such luck"); }, {.updates = {x.var()}});
  EXPECT_THROW(x.mutable_data<float>(), InvalidArgument);
  EXPECT_THROW(wait_all(), InvalidArgument);
}

}  // namespace
}  // namespace mx
