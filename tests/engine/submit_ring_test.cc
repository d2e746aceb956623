// SubmitRing: the cost of finding the slot of an item, counted in slots examined.
#include "engine/detail/submit_ring.h"

#include <gtest/gtest.h>

#include <atomic>

#include "engine/detail/worker_policy.h"

namespace mx {
namespace {

uint64_t loads = 0;

template <class T>
class CountedAtomic {
 public:
  CountedAtomic() = default;
  CountedAtomic(T value) : value_(value) {}
  T load(std::memory_order) const {
    ++loads;
    return value_;
  }
  void store(T value, std::memory_order) { value_ = value; }
  bool compare_exchange_strong(T& expected, T value, std::memory_order) {
    if (value_ != expected) {
      expected = value_;
      return false;
    }
    value_ = value;
    return true;
  }

 private:
  T value_{};
};

using Ring = detail::SubmitRing<int, CountedAtomic>;

// A producer that slept while others pushed a million items does not walk over those, and does not make other
// producers do so.
TEST(SubmitRing, AProducerThatSleptDoesNotWalkOverWhatHasGone) {
  Ring ring(64);
  alignas(8) int item = 0;
  int* out[64];
  uint64_t sleeper = 0, other = 0;
  EXPECT_EQ(0u, ring.try_push(&item, sleeper));
  for (uint64_t i = 1; i < 1'000'000; ++i) {
    ASSERT_EQ(i, ring.try_push(&item, other));
    if (i % 32 == 0) ring.pop(out, 64);
  }
  while (ring.pop(out, 64) > 0) {
  }
  loads = 0;
  EXPECT_EQ(1'000'000u, ring.try_push(&item, sleeper));
  EXPECT_EQ(1'000'001u, ring.try_push(&item, other));
  EXPECT_EQ(1'000'002u, ring.tail());
  EXPECT_LT(loads, 200u);
}

TEST(SubmitRing, OfManyItemsThatNobodyTakesOnlyTheFreePlacesAreLookedFor) {
  Ring ring(64);
  alignas(8) int item = 0;
  uint64_t one = 0, two = 0;
  for (int i = 0; i < 32; ++i) {
    EXPECT_NE(Ring::kFull, ring.try_push(&item, one));
    EXPECT_NE(Ring::kFull, ring.try_push(&item, two));
  }
  EXPECT_EQ(Ring::kFull, ring.try_push(&item, one));
  EXPECT_EQ(Ring::kFull, ring.try_push(&item, two));
  EXPECT_EQ(64u, ring.tail());
}

TEST(SubmitRing, TheEndIsLookedForBehindTheLastPushOfTheThread) {
  Ring ring(1024);
  alignas(8) int item = 0;
  int* out[64];
  uint64_t one = 0, two = 0;
  for (int i = 0; i < 500; ++i) EXPECT_NE(Ring::kFull, ring.try_push(&item, one));
  loads = 0;
  EXPECT_EQ(500u, ring.tail(one));
  EXPECT_LT(loads, 10u);
  for (int i = 0; i < 3; ++i) EXPECT_NE(Ring::kFull, ring.try_push(&item, two));
  EXPECT_EQ(503u, ring.tail(one));
  // All items are taken: the end is the head, whatever the hint says.
  while (ring.pop(out, 64) > 0) {
  }
  EXPECT_EQ(503u, ring.tail(one));
  EXPECT_EQ(503u, ring.tail(two));
}

TEST(WorkerPolicy, CallsOneWorkerForEachOperationThatHasNobody) {
  using detail::WorkerPolicy;
  EXPECT_EQ(15, WorkerPolicy::to_call(15, 1, 16));
  EXPECT_EQ(3, WorkerPolicy::to_call(3, 1, 16));
  EXPECT_EQ(4, WorkerPolicy::to_call(100, 12, 16));
  EXPECT_EQ(1, WorkerPolicy::to_call(100, 16, 16));  // one worker beyond the limit, for devices
  EXPECT_EQ(1, WorkerPolicy::to_call(0, 0, 16));
}

TEST(WorkerPolicy, EmptyOperationsFeedOneWorker) {
  EXPECT_EQ(1, detail::WorkerPolicy::wanted(0, 16));
  EXPECT_EQ(16, detail::WorkerPolicy::wanted(1'000'000, 16));
}

TEST(WorkerPolicy, ALongOperationCountsAtOnceAndShortOnesLittleByLittle) {
  detail::WorkerPolicy policy(16, 8000);
  EXPECT_EQ(0, policy.body_ticks());
  EXPECT_TRUE(policy.more_wanted());
  policy.observe(0, 4000);
  EXPECT_EQ(4000, policy.body_ticks());
  policy.observe(4000, 0);
  EXPECT_EQ(3500, policy.body_ticks());
  EXPECT_EQ(2u, policy.share(4000, 100, 1, 64));  // as many as fit into a batch
  EXPECT_EQ(64u, policy.share(0, 1000, 1, 64));
  EXPECT_EQ(1u, policy.share(0, 5, 4, 64));  // the other threads can take the rest
}

TEST(WorkerPolicy, CountsWhoIsCalledAndWhoLeaves) {
  detail::WorkerPolicy policy(2, 8000);
  EXPECT_TRUE(policy.none_active());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(policy.begin_call());
  EXPECT_FALSE(policy.begin_call()) << "one more than threads, and no more";
  EXPECT_TRUE(policy.on_its_way());
  policy.call_failed();
  policy.arrive();
  policy.arrive();
  EXPECT_FALSE(policy.on_its_way());
  EXPECT_EQ(2, policy.active());
  EXPECT_TRUE(policy.too_many()) << "empty operations feed one";
  policy.leave();
  EXPECT_TRUE(policy.enough_others());
  policy.leave();
  EXPECT_FALSE(policy.enough_others());
  policy.come_back();
  EXPECT_FALSE(policy.none_active());
}

}  // namespace
}  // namespace mx
