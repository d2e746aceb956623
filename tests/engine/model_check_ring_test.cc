// SubmitRing and BasicEngineLock, the production code, under every schedule of a few threads.
#include <gtest/gtest.h>

#include "tests/engine/model/report.h"
#include "tests/engine/model/ring_model.h"

namespace mx::test::model {
namespace {

// Threads that acquire the lock in turn, some of them with a single attempt.
template <template <class> class Atomic>
class LockModel : public Model {
 public:
  LockModel(int threads, int rounds, bool with_try)
      : threads_(threads), rounds_(rounds), with_try_(with_try) {}
  int threads() const override { return threads_; }
  void reset() override {
    lock_.emplace();
    inside_ = entered_ = 0;
  }
  void run(int thread) override {
    for (int i = 0; i < rounds_; ++i) {
      checkpoint(static_cast<uint64_t>(i));
      if (with_try_ && thread == 0) {
        if (!lock_->try_lock()) continue;
      } else {
        lock_->lock();
      }
      require(inside_ == 0, "two threads have the lock");
      ++inside_;
      ++entered_;
      point("inside");
      --inside_;
      lock_->unlock();
    }
  }
  uint64_t digest() const override { return static_cast<uint64_t>(inside_ * 100 + entered_); }
  void check_end() override {
    require(entered_ == threads_ * rounds_ || (with_try_ && entered_ >= (threads_ - 1) * rounds_),
            "a thread did not get the lock");
  }
  int group(int thread) const override { return with_try_ && thread == 0 ? 1 : 0; }

 private:
  const int threads_, rounds_;
  const bool with_try_;
  std::optional<detail::BasicEngineLock<Atomic, CheckedBackoff>> lock_;
  int inside_ = 0, entered_ = 0;
};

TEST(ModelCheckLock, ExcludesAndEndsUnderEverySchedule) {
  MX_SKIP_MODEL();
  LockModel<CheckedAtomic> two(2, 3, false);
  expect_complete("lock, 2 threads, 3 times each", two);
  LockModel<CheckedAtomic> three(3, 2, false);
  expect_complete("lock, 3 threads, 2 times each", three);
  LockModel<CheckedAtomic> tries(3, 2, true);
  expect_complete("lock, 3 threads, one of which tries", tries);
}

TEST(ModelCheckLock, IsFoundBrokenOnTornAtomics) {
  MX_SKIP_MODEL();
  LockModel<TornAtomic> torn(2, 1, false);
  expect_violation("lock on torn atomics", torn);
}

TEST(ModelCheckRing, KeepsTheOrderOfTwoProducers) {
  MX_SKIP_MODEL();
  RingModel<> roomy({.capacity = 4, .pushes = {2, 2}});
  expect_complete("ring of 4, 2 producers of 2, a consumer", roomy);
  RingModel<> helping({.capacity = 2, .pushes = {3, 2}, .consumer = false, .help = true, .pop_limit = 1});
  expect_complete("ring of 2, producers of 3 and 2 that empty it when it is full", helping);
}

TEST(ModelCheckRing, KeepsTheOrderWhenItIsFullAllTheTime) {
  MX_SKIP_LARGE_MODEL();
  RingModel<> full({.capacity = 2, .pushes = {2, 2}});
  expect_complete("ring of 2, 2 producers of 2, a consumer", full);
}

TEST(ModelCheckRing, KeepsTheOrderOfThreeProducers) {
  MX_SKIP_LARGE_MODEL();
  RingModel<> small({.capacity = 2, .pushes = {1, 1, 1}, .pop_limit = 1});
  expect_complete("ring of 2, 3 producers of 1, a consumer", small);
  RingModel<> large({.capacity = 4, .pushes = {1, 1, 1}});
  expect_complete("ring of 4, 3 producers of 1, a consumer", large);
  RingModel<> more({.capacity = 2, .pushes = {2, 2, 2}});
  expect_complete("ring of 2, 3 producers of 2, a consumer; 2 preemptions", more, {.preemptions = 2});
}

TEST(ModelCheckRing, SurvivesAProducerThatSleepsForWholeRounds) {
  MX_SKIP_LARGE_MODEL();
  RingModel<> two({.capacity = 2, .pushes = {1, 3}, .pop_limit = 1});
  expect_complete("ring of 2, a producer of 1 beside one of 3", two);
  RingModel<> one({.capacity = 1, .pushes = {1, 3}, .pop_limit = 1});
  expect_complete("ring of 1, a producer of 1 beside one of 3", one);
  RingModel<> long_sleep({.capacity = 2, .pushes = {1, 6}});
  expect_complete("ring of 2, a producer of 1 beside one of 6; 3 preemptions", long_sleep,
                  {.preemptions = 3});
}

TEST(ModelCheckRing, TellsATailBehindEveryEarlierPush) {
  MX_SKIP_MODEL();
  RingModel<> one({.capacity = 2, .pushes = {1, 1}, .pop_limit = 1, .ask_tail = true});
  expect_complete("ring of 2, 2 producers of 1 that ask for the tail", one);
}

TEST(ModelCheckRing, TellsATailBehindEveryEarlierPushOfMany) {
  MX_SKIP_LARGE_MODEL();
  RingModel<> two({.capacity = 2, .pushes = {2, 1}, .pop_limit = 1, .ask_tail = true});
  expect_complete("ring of 2, producers of 2 and 1 that ask for the tail", two);
  RingModel<> six({.capacity = 4, .pushes = {2, 2, 2}, .ask_tail = true});
  expect_complete("ring of 4, 3 producers of 2 that ask for the tail; 2 preemptions", six,
                  {.preemptions = 2});
}

TEST(ModelCheckRing, CanBeDrainedToItsTail) {
  MX_SKIP_MODEL();
  RingModel<> one({.capacity = 2, .pushes = {1}, .drain_to_tail = true});
  expect_complete("ring of 2, a producer of 1, a thread that drains to the tail", one);
}

TEST(ModelCheckRing, CanBeDrainedToItsTailWhileMoreComes) {
  MX_SKIP_LARGE_MODEL();
  RingModel<> two({.capacity = 2, .pushes = {2}, .drain_to_tail = true});
  expect_complete("ring of 2, a producer of 2, a thread that drains to the tail", two);
  RingModel<> four({.capacity = 2, .pushes = {2, 2}, .drain_to_tail = true});
  expect_complete("ring of 2, 2 producers of 2, a thread that drains to the tail; 2 preemptions", four,
                  {.preemptions = 2});
}

TEST(ModelCheckRing, IsFoundBrokenOnTornAtomics) {
  MX_SKIP_MODEL();
  RingModel<TornAtomic> torn({.capacity = 2, .pushes = {1, 1}});
  expect_violation("ring on torn atomics", torn);
}

}  // namespace
}  // namespace mx::test::model
