// Parallel work inside one operator, and between operators, at the same time.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "engine/base/cpus.h"
#include "ndarray/ndarray.h"
#include "operators/elementwise_custom.h"
#include "tests/support/engine_cases.h"

namespace mx {
namespace {

std::atomic<int> call_number{0}, waiting{0};
std::atomic<bool> met{false};

// The first thread of a call waits for a second one, but not forever: oneTBB allows parallelism without
// promising it, and a thread that it has put to sleep may miss one loop.
const Operator& crowd() {
  static const Operator op =
      unary_operator("test_crowd", "x + 1, and notes when two threads are in it.", [](auto x) {
        thread_local int seen = 0;
        if (const int now = call_number.load(); seen != now && !met.load()) {
          seen = now;
          if (waiting.load() > 0) {
            met.store(true);
          } else {
            ++waiting;
            for (int i = 0; i < 20'000 && !met.load(); ++i) std::this_thread::yield();
            --waiting;
          }
        }
        return x + 1;
      });
  return op;
}
const Operator& witness() {
  static const Operator op = unary_operator("test_witness", "2 x, once it has seen them.", [](auto x) {
    while (!met.load()) std::this_thread::yield();
    return x * 2;
  });
  return op;
}

TEST(Overlap, ALargeOperatorGetsTwoThreadsWhileTheEngineRunsAnother) {
  if (usable_cpus() < 2) GTEST_SKIP() << "on one processor a loop has one thread";
  Engine engine(test::threaded_case(3).options);
  EngineScope scope(engine);
  constexpr int64_t kLarge = int64_t{1} << 20;
  const NDArray x = full({kLarge}, 1.f), y = full({1000}, 3.f);
  const NDArray b = call(witness(), {}, y);  // runs until the others have met
  while (!met.load()) {
    ++call_number;
    const NDArray a = call(crowd(), {}, x);
    EXPECT_EQ(2.f, a.select(0, kLarge - 1).item<float>());
  }
  EXPECT_EQ(6.f, b.select(0, 0).item<float>());
}

}  // namespace
}  // namespace mx
