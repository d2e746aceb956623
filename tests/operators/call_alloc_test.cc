// The number of allocations of an operator call once the caches are warm. The test counts them instead of
// measuring time.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "engine/engine.h"
#include "operators/operators.h"
#include "tests/support/counted_allocations.h"

namespace mx {
namespace {

/// Returns the allocations per call of f, after calls that fill the caches of blocks.
double per_call(const std::function<void()>& f) {
  constexpr int kCalls = 100;
  for (int i = 0; i < kCalls; ++i) f();
  wait_all();
  const uint64_t before = allocations.load();
  for (int i = 0; i < kCalls; ++i) f();
  return static_cast<double>(allocations.load() - before) / kCalls;
}

TEST(CallAllocations, ASmallCallAllocatesNothing) {
  const NDArray x = ones({4, 4}), y = ones({4, 4});
  EXPECT_EQ(0, per_call([&] { x + y; }));
  EXPECT_EQ(0, per_call([&] { exp(x); }));
  EXPECT_EQ(0, per_call([&] { x[1]; })) << "a view";
}

TEST(CallAllocations, AReductionAllocatesNothing) {
  const NDArray x = ones({4, 4}), y = ones({2, 3, 4}), wide = ones({8, 32});
  EXPECT_EQ(0, per_call([&] { sum(x); }));
  EXPECT_EQ(0, per_call([&] { sum(x, 0); }));
  EXPECT_EQ(0, per_call([&] { sum(x, -1, true); }));
  EXPECT_EQ(0, per_call([&] { sum(y, {0, 2}); }));
  EXPECT_EQ(0, per_call([&] { mean(x, 1); }));
  EXPECT_EQ(0, per_call([&] { max(x, 0); }));
  EXPECT_EQ(0, per_call([&] { argmax(x, 1); }));
  EXPECT_EQ(0, per_call([&] { any(x); }));
  EXPECT_EQ(0, per_call([&] { logsumexp(x, 1); }));
  EXPECT_EQ(0, per_call([&] { var(x, 0); }));
  EXPECT_EQ(0, per_call([&] { stddev(x, 0); }));
  EXPECT_EQ(0, per_call([&] { sum(wide, 0); })) << "by columns";
}

// Indexing with an array allocates the deferred read and the place that can be assigned to, nothing else.
TEST(CallAllocations, AnIndexedReadAllocatesItsTwoPlaces) {
  const NDArray x = ones({4, 4}), rows = array<int64_t>({2, 0});
  EXPECT_LE(per_call([&] { NDArray(x[rows]).impl(); }), 2);
  EXPECT_LE(per_call([&] { take(x, rows); }), 0);
  EXPECT_EQ(0, per_call([&] { x[{1, 2}]; })) << "a view by several numbers";
  EXPECT_EQ(0, per_call([&] { x[{colon, Slice{0, 2}}]; }));
}

}  // namespace
}  // namespace mx
