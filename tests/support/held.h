// Operations that a test blocks and releases. They make "still pending" certain without sleeping.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <utility>

#include "engine/run_context.h"

namespace mx::test {

/// An asynchronous operation that ends when release() is called. It blocks no thread, so it works in every
/// mode:
///   Hold hold;
///   e.push_async(hold.operation(), {.writes = {v}});
///   ...
///   hold.release();
class Hold {
 public:
  /// Returns the function of the operation; may be called many times.
  auto operation() const {
    return [state = state_](RunContext, Completion done) {
      std::unique_lock lock(state->mutex);
      if (state->released) {
        lock.unlock();
        done.done();
        return;
      }
      state->token = std::move(done);
    };
  }

  /// Ends the operation, even if it has not started yet.
  void release() {
    Completion token;
    {
      std::lock_guard lock(state_->mutex);
      state_->released = true;
      token = std::move(state_->token);
    }
    if (token) token.done();
  }

 private:
  struct State {
    std::mutex mutex;
    bool released = false;
    Completion token;
  };
  std::shared_ptr<State> state_ = std::make_shared<State>();
};

/// A gate for a blocking operation. pass() blocks until open() is called; entered() blocks until a thread is
/// in pass().
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++visitors_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_; });
  }
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  void entered(int visitors = 1) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return visitors_ >= visitors; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
  int visitors_ = 0;
};

}  // namespace mx::test
