#include "engine/device/cuda/cuda_poller.h"

#include <pthread.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <list>
#include <mutex>
#include <thread>
#include <vector>

#include "engine/base/threads.h"

namespace mx {

namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr microseconds kSpin{30};
constexpr microseconds kShortNap{20};
constexpr microseconds kLongNap{50};
constexpr microseconds kLongAfter{2000};

struct Watch {
  std::shared_ptr<EventPoint> point;
  uint64_t stream;
  std::function<void()> callback;
};

class Poller {
 public:
  void add(Watch watch) {
    bool start = false;
    {
      std::lock_guard lock(mutex_);
      incoming_.push_back(std::move(watch));
      start = !std::exchange(started_, true);
    }
    if (start) {
      try {
        start_thread("cuda", [this] { run(); }).detach();
      } catch (...) {  // callbacks that were added meanwhile wait for the next call
        const std::lock_guard lock(mutex_);
        started_ = false;
        throw;
      }
    } else {
      condition_.notify_one();
    }
  }

 private:
  void run() {
    pthread_setname_np(pthread_self(), "mx-cuda-poll");
    std::list<Watch> pending;
    Clock::time_point last_progress = Clock::now();
    while (true) {
      {
        std::unique_lock lock(mutex_);
        const auto news = [&] { return !incoming_.empty(); };
        if (pending.empty()) {
          condition_.wait(lock, news);
          last_progress = Clock::now();
        } else if (const auto idle = Clock::now() - last_progress; idle > kSpin) {
          condition_.wait_for(lock, idle > kLongAfter ? kLongNap : kShortNap, news);
        }
        pending.splice(pending.end(), incoming_);
      }
      if (look(pending)) {
        last_progress = Clock::now();
      } else {
        std::this_thread::yield();
      }
    }
  }

  // Calls the callbacks of the points that are reached. Returns true if there was one.
  bool look(std::list<Watch>& pending) {
    bool fired = false;
    waiting_.clear();
    for (auto it = pending.begin(); it != pending.end();) {
      // A stream's first point that is not reached delays its later ones, so callbacks are called in order.
      const bool held = std::find(waiting_.begin(), waiting_.end(), it->stream) != waiting_.end();
      if (held || it->point->query() == EventStatus::pending) {
        if (!held) waiting_.push_back(it->stream);
        ++it;
        continue;
      }
      it->callback();
      it = pending.erase(it);
      fired = true;
    }
    return fired;
  }

  std::mutex mutex_;
  std::condition_variable condition_;
  std::list<Watch> incoming_;
  bool started_ = false;
  std::vector<uint64_t> waiting_;  // the poller's thread only
};

}  // namespace

void call_when_reached(std::shared_ptr<EventPoint> point, uint64_t stream, std::function<void()> callback) {
  static Poller* poller = new Poller;
  poller->add({std::move(point), stream, std::move(callback)});
}

}  // namespace mx
