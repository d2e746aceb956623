#include "comm/queued_communicator.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "engine/base/error.h"

namespace mx::comm {
namespace {

// A group of one whose calls last until they are released, and which records them.
class RecordingCommunicator final : public QueuedCommunicator {
 public:
  ~RecordingCommunicator() override { finish_calls(); }

  const std::string& type() const override { return type_; }
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string host(int) const override { return "here"; }
  int64_t default_timeout_ms() const override { return 30'000; }

  // Calls named "hold" block until release() or interrupt(); those named "fail" throw.
  void release() {
    std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }
  void wait_until_held() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return held_; });
  }
  std::vector<std::pair<std::string, std::thread::id>> calls() const {
    std::lock_guard lock(mutex_);
    return calls_;
  }
  int most_at_once() const { return most_at_once_; }
  int farewells() const { return farewells_; }

 protected:
  void execute(const Request& request, Deadline deadline) override {
    EXPECT_GT(deadline.left_ms(), 0);
    const int running = ++running_;
    most_at_once_ = std::max(most_at_once_.load(), running);
    {
      std::unique_lock lock(mutex_);
      calls_.emplace_back(request.options.what, std::this_thread::get_id());
      if (request.options.what == "hold") {
        held_ = true;
        changed_.notify_all();
        changed_.wait(lock, [&] { return released_ || reason_; });
      }
    }
    --running_;
    if (reason_) std::rethrow_exception(reason_);
    if (request.options.what == "fail") throw PeerLost("rank 1 is lost");
  }
  void disconnect() noexcept override {
    EXPECT_EQ(running_, 0);
    ++farewells_;
  }
  void interrupt(std::exception_ptr reason) override {
    std::lock_guard lock(mutex_);
    reason_ = std::move(reason);
    changed_.notify_all();
  }

 private:
  const std::string type_ = "recording";
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool released_ = false, held_ = false;
  std::exception_ptr reason_;
  std::vector<std::pair<std::string, std::thread::id>> calls_;
  std::atomic<int> running_{0}, most_at_once_{0}, farewells_{0};
};

Request barrier_named(const std::string& what, std::promise<std::exception_ptr>* ended = nullptr) {
  Request request;
  request.options.what = what;
  request.done = [ended](std::exception_ptr error) {
    if (ended != nullptr) ended->set_value(std::move(error));
  };
  return request;
}

CallOptions what_options(const std::string& what) {
  CallOptions options;
  options.what = what;
  return options;
}

TEST(DeferredLimit, CountsFromTheBeginOfItsCallOrFromWhenItIsSet) {
  using std::chrono::hours, std::chrono::milliseconds;
  DeferredLimit limit;
  const auto before = Deadline::Clock::now();
  const Deadline running = Deadline::after_ms(kLongestTimeoutMs).or_after(limit);
  EXPECT_GT(running.at(), before + hours(24));
  EXPECT_LE(running.poll_ms(), 1000) << "a thread that sleeps must see in time that the limit has been set";
  limit.set(5000);
  EXPECT_GE(running.at(), before + milliseconds(5000));
  EXPECT_LT(running.at(), before + hours(24));
  EXPECT_EQ(limit.at(before + hours(1)), before + hours(1) + milliseconds(5000))
      << "a call that begins later";
  EXPECT_LT(Deadline::after_ms(0).or_after(limit).at(), running.at()) << "the earlier one counts";
}

TEST(Describe, ShowsANameInOneLine) {
  EXPECT_EQ(describe(barrier_named("a\nb\x1b[1m")), "barrier 'a?b?[1m'");
}

TEST(QueuedCommunicator, AGroupThatIsLeftAtExitEndsItsCallsAndSaysFarewellOnce) {
  const auto ends = std::make_exception_ptr(InvalidState("the process ends"));
  for (const bool busy : {false, true}) {
    RecordingCommunicator group;
    std::promise<std::exception_ptr> running, queued, later;
    if (busy) {
      group.start(barrier_named("hold", &running));
      group.wait_until_held();
      group.start(barrier_named("queued", &queued));
    }
    group.leave_at_exit(ends);
    group.leave_at_exit(ends);
    EXPECT_EQ(group.farewells(), 1);
    if (busy) {
      EXPECT_EQ(running.get_future().get(), ends);
      EXPECT_EQ(queued.get_future().get(), ends);
    }
    group.start(barrier_named("later", &later));
    EXPECT_EQ(later.get_future().get(), ends);
    EXPECT_THROW(group.barrier(), InvalidState);
  }
}

TEST(QueuedCommunicator, RunsABlockingCallOnTheThreadOfItsCaller) {
  RecordingCommunicator group;
  group.barrier(what_options("a"));
  std::promise<std::exception_ptr> ended;
  group.start(barrier_named("b", &ended));
  EXPECT_EQ(ended.get_future().get(), nullptr);
  const auto calls = group.calls();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].second, std::this_thread::get_id());
  EXPECT_NE(calls[1].second, std::this_thread::get_id());
}

TEST(QueuedCommunicator, QueuesABlockingCallBehindOthers) {
  RecordingCommunicator group;
  group.start(barrier_named("hold"));
  group.wait_until_held();
  group.start(barrier_named("second"));
  std::thread caller([&] { group.barrier(what_options("third")); });
  group.release();
  caller.join();
  const auto calls = group.calls();
  ASSERT_EQ(calls.size(), 3u);
  EXPECT_EQ(calls[1].first, "second");
  EXPECT_EQ(calls[2].first, "third");
}

TEST(QueuedCommunicator, StartsNothingWhileABlockingCallRuns) {
  RecordingCommunicator group;
  std::thread caller([&] { group.barrier(what_options("hold")); });
  group.wait_until_held();
  std::promise<std::exception_ptr> ended;
  group.start(barrier_named("second", &ended));
  EXPECT_EQ(group.calls().size(), 1u);
  group.release();
  EXPECT_EQ(ended.get_future().get(), nullptr);
  caller.join();
  EXPECT_EQ(group.most_at_once(), 1);
}

TEST(QueuedCommunicator, RunsOneCallAtATime) {
  RecordingCommunicator group;
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 300; ++i) {
        if (i % 3 == 0)
          group.start(barrier_named("started"));
        else
          group.barrier(what_options("run"));
      }
    });
  for (auto& thread : threads) thread.join();
  group.barrier();
  EXPECT_EQ(group.calls().size(), 1201u);
  EXPECT_EQ(group.most_at_once(), 1);
}

TEST(QueuedCommunicator, TheFirstErrorStays) {
  RecordingCommunicator group;
  std::promise<std::exception_ptr> first, second;
  group.start(barrier_named("fail", &first));
  group.start(barrier_named("second", &second));
  const auto error = first.get_future().get();
  ASSERT_NE(error, nullptr);
  EXPECT_THROW(std::rethrow_exception(error), PeerLost);
  EXPECT_EQ(second.get_future().get(), error);
  EXPECT_EQ(group.failure(), error);
  EXPECT_THROW(group.barrier(), PeerLost);
  EXPECT_EQ(group.calls().size(), 1u) << "no later call runs";
}

TEST(QueuedCommunicator, AbortEndsACallOfAnotherThread) {
  RecordingCommunicator group;
  std::exception_ptr error;
  std::thread caller([&] {
    try {
      group.barrier(what_options("hold"));
    } catch (...) {
      error = std::current_exception();
    }
  });
  group.wait_until_held();
  const auto reason = std::make_exception_ptr(Cancelled("enough"));
  group.abort(reason);
  caller.join();
  EXPECT_EQ(error, reason);
}

TEST(QueuedCommunicator, AWrongRequestIsNoFailure) {
  RecordingCommunicator group;
  Request request;
  EXPECT_THROW(group.start(request), InvalidArgument) << "no callback";
  request.collective = Collective::broadcast;
  request.peer = 1;
  request.done = [](std::exception_ptr) { FAIL() << "called although start() has thrown"; };
  EXPECT_THROW(group.start(request), InvalidArgument);
  EXPECT_EQ(group.failure(), nullptr);
  group.barrier();
}

TEST(QueuedCommunicator, ItsEndWaitsForQueuedCalls) {
  std::vector<std::promise<std::exception_ptr>> ended(50);
  {
    RecordingCommunicator group;
    for (auto& promise : ended) group.start(barrier_named("queued", &promise));
  }
  for (auto& promise : ended) EXPECT_EQ(promise.get_future().get(), nullptr);
}

TEST(QueuedCommunicator, AbortBeforeTheEndFailsQueuedCalls) {
  std::promise<std::exception_ptr> held, queued;
  const auto reason = std::make_exception_ptr(Cancelled("the end"));
  {
    RecordingCommunicator group;
    group.start(barrier_named("hold", &held));
    group.start(barrier_named("queued", &queued));
    group.wait_until_held();
    group.abort(reason);
  }
  EXPECT_EQ(held.get_future().get(), reason);
  EXPECT_EQ(queued.get_future().get(), reason);
}

TEST(QueuedCommunicator, ACallbackMayHoldTheLastReference) {
  std::promise<std::exception_ptr> last;
  auto group = std::make_shared<RecordingCommunicator>();
  RecordingCommunicator& called = *group;
  Request holding = barrier_named("hold");
  holding.done = [group](std::exception_ptr) {};
  called.start(std::move(holding));
  called.start(barrier_named("queued behind", &last));
  called.wait_until_held();
  std::thread releaser([kept = std::weak_ptr(group)] {
    if (const auto alive = kept.lock()) alive->release();
  });
  releaser.join();
  group.reset();
  EXPECT_EQ(last.get_future().get(), nullptr);
}

}  // namespace
}  // namespace mx::comm
