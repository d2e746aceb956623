// Two protocols of the engine whose code cannot be run in isolation. These are models: the same operations on
// the same kinds of atomics in the same order as in the named functions, and nothing else.
#include <gtest/gtest.h>

#include <optional>
#include <utility>
#include <vector>

#include "engine/detail/lock.h"
#include "engine/detail/submit_ring.h"
#include "tests/engine/model/checked_atomic.h"
#include "tests/engine/model/report.h"

namespace mx::test::model {
namespace {

// A worker that leaves, against a pusher that may rely on that worker.
//   pusher   EngineImpl::submit(), wake_after_submit(), start_worker()
//   worker   EngineImpl::work(), step()
// Every pushed operation must be taken by some worker, although workers leave whenever they find nothing.
enum class Leaving {
  as_shipped,
  looks_too_early,  // the worker checks the ring before it announces that it is leaving
};

class LeaveModel : public Model {
 public:
  LeaveModel(std::vector<int> pushes, int workers, Leaving way, int active_at_first)
      : pushes_(std::move(pushes)), workers_(workers), leaving_(way), at_first_(active_at_first) {}

  int threads() const override { return pushers() + workers_; }

  void reset() override {
    ring_.emplace(4);
    lock_.emplace();
    active_.emplace(at_first_);
    calls_ = at_first_;
    started_ = taken_ = pushers_gone_ = 0;
  }

  void run(int thread) override {
    if (thread < pushers()) {
      uint64_t hint = 0;
      for (int i = 0; i < pushes_[static_cast<size_t>(thread)]; ++i) {
        checkpoint(static_cast<uint64_t>(i) << 8 | hint);
        require(ring_->try_push(&item_, hint) != Ring::kFull, "the ring is large enough");
        if (active_->load() == 0) start_worker();
      }
      ++pushers_gone_;
      return;
    }
    // A oneTBB thread: each call starts a worker on it.
    for (;;) {
      checkpoint(100);
      wait_until([this] { return started_ < calls_ || pushers_gone_ == pushers(); }, "wait for a call");
      if (started_ == calls_) return;
      ++started_;
      work();
    }
  }

  uint64_t digest() const override {
    return static_cast<uint64_t>(calls_) << 24 | static_cast<uint64_t>(started_) << 16 |
           static_cast<uint64_t>(taken_) << 8 | static_cast<uint64_t>(pushers_gone_);
  }

  void check_end() override {
    int total = 0;
    for (const int n : pushes_) total += n;
    require(taken_ == total && !ring_->maybe_nonempty(), "something was pushed and nobody came for it");
    require(active_->load() == 0, "the active workers are miscounted");
  }

  int group(int thread) const override { return thread < pushers() ? thread : pushers(); }

 private:
  struct alignas(8) Item {};
  using Ring = detail::SubmitRing<Item, CheckedAtomic>;

  int pushers() const { return static_cast<int>(pushes_.size()); }

  void start_worker() {
    int32_t active = active_->load();
    do {
      if (active >= workers_) return;
    } while (!active_->compare_exchange_weak(active, active + 1));
    ++calls_;
  }

  bool step() {
    lock_->lock();
    Item* out[2];
    const size_t n = ring_->pop(out, 2);
    taken_ += static_cast<int>(n);
    lock_->unlock();
    return n > 0;
  }

  void work() {
    for (;;) {
      checkpoint(200);
      if (step()) continue;
      const bool looked = leaving_ == Leaving::looks_too_early && ring_->maybe_nonempty();
      active_->fetch_sub(1);
      lock_->lock();
      const bool work_left = leaving_ == Leaving::looks_too_early ? looked : ring_->maybe_nonempty();
      const bool enough = active_->load() >= 1;
      if (!work_left || enough) {
        lock_->unlock();
        return;
      }
      active_->fetch_add(1);
      lock_->unlock();
    }
  }

  const std::vector<int> pushes_;
  const int workers_;
  const Leaving leaving_;
  const int at_first_;
  Item item_;
  std::optional<Ring> ring_;
  std::optional<detail::BasicEngineLock<CheckedAtomic, CheckedBackoff>> lock_;
  std::optional<CheckedAtomic<int32_t>> active_;
  int calls_ = 0, started_ = 0, taken_ = 0, pushers_gone_ = 0;
};

TEST(ModelCheckLeave, NoPushIsLeftBehind) {
  MX_SKIP_MODEL();
  LeaveModel one({2}, 1, Leaving::as_shipped, 1);
  expect_complete("a pusher of 2, a worker that leaves and is called again", one);
  LeaveModel idle({2}, 2, Leaving::as_shipped, 0);
  expect_complete("a pusher of 2, workers that leave, none active", idle);
}

TEST(ModelCheckLeave, NoPushIsLeftBehindByManyWorkers) {
  MX_SKIP_LARGE_MODEL();
  LeaveModel another({2}, 2, Leaving::as_shipped, 1);
  expect_complete("a pusher of 2, workers that leave, 1 active", another);
  LeaveModel two({1}, 2, Leaving::as_shipped, 2);
  expect_complete("a pusher of 1, 2 active workers that leave", two);
  LeaveModel pushers({1, 1}, 2, Leaving::as_shipped, 2);
  expect_complete("2 pushers of 1, 2 active workers that leave; 3 preemptions", pushers, {.preemptions = 3});
}

TEST(ModelCheckLeave, AWorkerThatLooksBeforeItLeavesIsFound) {
  MX_SKIP_MODEL();
  LeaveModel mutant({1}, 1, Leaving::looks_too_early, 1);
  expect_violation("a worker that looks too early", mutant);
}

// The end of an asynchronous operation: its function returns and its token is used. The later of the two ends
// the operation and must see the results of both.
//   EngineImpl::run_async() with function_returned(), end_async(), finish_async()
template <template <class> class Atomic>
class TokenModel : public Model {
 public:
  int threads() const override { return 2; }
  void reset() override {
    state_.emplace(uint16_t{0});
    thrown_ = token_ = finished_ = 0;
  }
  void run(int thread) override {
    if (thread == 0) {
      point("the function");
      thrown_ = 1;
      if (state_->fetch_or(kReturned) & kCompleted) finish();
    } else {
      token_ = 1;
      if (state_->fetch_or(kCompleted) & kReturned) finish();
    }
  }
  uint64_t digest() const override { return static_cast<uint64_t>(thrown_ * 4 + token_ * 2 + finished_); }
  void check_end() override { require(finished_ == 1, "the operation did not end"); }

 private:
  static constexpr uint16_t kReturned = 1, kCompleted = 2;
  void finish() {
    require(++finished_ == 1, "the operation ended twice");
    require(thrown_ == 1 && token_ == 1, "the operation ended before both halves of it");
  }
  std::optional<Atomic<uint16_t>> state_;
  int thrown_ = 0, token_ = 0, finished_ = 0;
};

TEST(ModelCheckToken, TheSecondHalfEndsTheOperation) {
  MX_SKIP_MODEL();
  TokenModel<CheckedAtomic> model;
  expect_complete("a function that returns and a token that is used", model);
  TokenModel<TornAtomic> torn;
  expect_violation("the same on torn atomics", torn);
}

}  // namespace
}  // namespace mx::test::model
