// Work inside one operator and beside it at the same time.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "ndarray/ndarray.h"
#include "operators/elementwise_custom.h"
#include "tests/support/engine_cases.h"

namespace mx {
namespace {

std::atomic<int> inside{0};
std::atomic<bool> over{false};

// Neither of the two ends before two threads are in the loop of `crowd` and one in that of `witness`.
const Operator& crowd() {
  static const Operator op = unary_operator("test_crowd", "x + 1, once two threads are in it.", [](auto x) {
    thread_local bool counted = false;
    if (!over.load() && !counted) {
      counted = true;
      ++inside;
    }
    while (!over.load()) std::this_thread::yield();
    return x + 1;
  });
  return op;
}
const Operator& witness() {
  static const Operator op = unary_operator("test_witness", "2 x, once it has seen them.", [](auto x) {
    while (inside.load() < 2) std::this_thread::yield();
    over.store(true);
    return x * 2;
  });
  return op;
}

TEST(Overlap, ALargeOperatorGetsTwoThreadsWhileTheEngineRunsAnother) {
  Engine engine(test::threaded_case(3).options);
  EngineScope scope(engine);
  constexpr int64_t kLarge = int64_t{1} << 20;
  const NDArray x = full({kLarge}, 1.f), y = full({1000}, 3.f);
  const NDArray a = call(crowd(), {}, x), b = call(witness(), {}, y);
  EXPECT_EQ(2.f, a.select(0, kLarge - 1).item<float>());
  EXPECT_EQ(6.f, b.select(0, 0).item<float>());
  EXPECT_GE(inside.load(), 2);
}

}  // namespace
}  // namespace mx
