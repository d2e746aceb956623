#include "kvstore/limit_timer.h"

#include <condition_variable>
#include <mutex>
#include <optional>
#include <utility>

#include "engine/base/threads.h"

namespace mx::detail {

struct LimitTimer::State {
  explicit State(std::function<void()> f) : passed(std::move(f)) {}

  void run() {
    std::unique_lock lock(mutex);
    while (!stopped) {
      if (!at) {
        changed.wait(lock);
      } else if (!at->passed()) {
        changed.wait_until(lock, at->at());
      } else {
        at.reset();
        lock.unlock();
        passed();
        lock.lock();
      }
    }
  }

  const std::function<void()> passed;
  std::mutex mutex;
  std::condition_variable changed;
  // Guarded by the mutex.
  std::optional<comm::Deadline> at;
  bool stopped = false;
};

LimitTimer::LimitTimer(std::function<void()> passed) : state_(std::make_unique<State>(std::move(passed))) {
  thread_ = start_thread("kvstore", [state = state_.get()] { state->run(); });
}

LimitTimer::~LimitTimer() {
  if (!process_.is_here()) {
    // The thread exists only in the parent, and its lock may be held here for ever. So the state stays.
    thread_.detach();
    static_cast<void>(state_.release());
    return;
  }
  {
    const std::lock_guard lock(state_->mutex);
    state_->stopped = true;
  }
  state_->changed.notify_all();
  thread_.join();
}

void LimitTimer::set(comm::Deadline at) {
  {
    const std::lock_guard lock(state_->mutex);
    state_->at = at;
  }
  state_->changed.notify_all();
}

void LimitTimer::clear() {
  const std::lock_guard lock(state_->mutex);
  state_->at.reset();
}

}  // namespace mx::detail
