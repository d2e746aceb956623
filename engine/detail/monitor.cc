// The monitor: a thread that is asleep while the engine is idle, and while it is not looks in every
// millisecond for what nobody else sees: an operation that was taken for a short one and hides work behind
// it, an operation of a replay that waits for another of the same replay, a device whose end nobody polls, an
// operation that does not end.
//
// Also the inline modes, in which there are no workers: in fuzz mode the monitor is the last resort, and in
// both it is there for the watchdog.
#include <system_error>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/detail/engine_inl.h"
#include "engine/detail/worker_host.h"

namespace mx::detail {

// With the engine, not with its first work: a push that has been submitted must not fail for want of a
// thread.
void EngineImpl::start_monitor() {
  try {
    monitor_thread_ = std::thread([this] { monitor(); });
  } catch (const std::system_error& e) {
    throw OutOfMemory(concat("[Engine] expected one more thread, but the system has none: ", e.what()));
  }
}

void EngineImpl::wake_monitor() {
  if (!monitored_) return;
  std::lock_guard lock(monitor_mutex_);
  monitor_awake_.store(true, std::memory_order_seq_cst);
  monitor_wake_.notify_one();
}

void EngineImpl::monitor() {
  std::unique_lock guard(monitor_mutex_);
  uint64_t seen_ended = 0;
  int64_t next_watch_ns = 0;
  int quiet_turns = 0;
  for (;;) {
    const bool devices = streams_outstanding_.load(std::memory_order_relaxed);
    monitor_wake_.wait_for(guard, devices && active_.load() == 0 ? std::chrono::microseconds(50)
                                                                 : std::chrono::microseconds(1000));
    if (monitor_stop_) return;
    guard.unlock();
    if (participants_.rescue()) call_company();
    lock_.lock();
    if (streams_in_use_ && !inline_mode_) poll_devices();
    const bool running = running_ > 0;
    const bool stuck = ended_count_ == seen_ended;
    seen_ended = ended_count_;
    if (stuck && running && !inline_mode_) {
      drain(kDrainLimit);
      scavenge(true);
    }
    const bool pending =
        inline_mode_ ? !ready_.empty() || !comm_.empty() || device_ready_ > 0 || ring_.maybe_nonempty()
                     : anything_to_take();
    // (What a device has just made ready may have nobody to run it.)
    const bool idle = !inline_mode_ && active_.load(std::memory_order_seq_cst) == 0;
    const bool call =
        pending && (stuck || idle) && paused_ == 0 && searching_.load(std::memory_order_relaxed) == 0;
    const bool busy = running_ > 0 || active_.load(std::memory_order_seq_cst) > 0 ||
                      (streams_in_use_ && streams_->outstanding()) ||
                      (options_.watchdog_ms > 0 && !async_since_.empty()) || (inline_mode_ && pending);
    unlock();
    if (call) {
      if (inline_mode_) {
        // (Somebody who runs something will go on by himself.)
        if (!running && ++quiet_turns > 1000) run_inline(true, false);
      } else {
        start_worker();
      }
    } else {
      quiet_turns = 0;
    }
    if (options_.watchdog_ms > 0) {
      const int64_t now = now_ns();
      if (now >= next_watch_ns) {
        watchdog(now);
        next_watch_ns = now + std::max<int64_t>(1, options_.watchdog_ms / 4) * 1'000'000;
      }
    }
    bool sleepy = !busy;
    if (sleepy) {
      monitor_awake_.store(false, std::memory_order_seq_cst);
      // On the only processor a pusher calls nobody but this thread, and not as long as it is awake.
      lock_.lock();
      sleepy = inline_mode_ || !anything_to_take();
      unlock();
    }
    guard.lock();
    // A worker that was called meanwhile has seen the flag set, and told nobody.
    // (So has a thread that began a part of a replay.)
    while (sleepy && active_.load(std::memory_order_seq_cst) == 0 && !streams_outstanding_.load() &&
           !monitor_stop_ && participants_.empty() && !monitor_awake_.load(std::memory_order_seq_cst)) {
      monitor_wake_.wait(guard);
    }
    monitor_awake_.store(true, std::memory_order_seq_cst);
    if (monitor_stop_) return;
  }
}

void EngineImpl::watchdog(int64_t now) {
  const int64_t limit = static_cast<int64_t>(options_.watchdog_ms) * 1'000'000;
  std::vector<std::string> lines;
  const auto report = [&](Op* op, int64_t since, const char* what) {
    try {
      lines.push_back(concat("[", name_or_default(op->cold().name), "] ", what, " for ",
                             (now - since) / 1'000'000, " ms, longer than the watchdog's ",
                             options_.watchdog_ms, " ms (pushed at ", place(op->cold().where), ")"));
    } catch (const std::bad_alloc&) {
      // Without memory nothing is said.
    }
  };
  lock_.lock();
  for (auto& worker : workers_) {
    Op* op = worker->running.load(std::memory_order_acquire);
    const int64_t since = worker->running_since.load(std::memory_order_relaxed);
    if (op == nullptr || now - since <= limit || since == worker->reported) continue;
    worker->reported = since;
    report(op, since, "has been running");
  }
  for (auto& [op, since] : async_since_) {
    if (now - since <= limit) continue;
    report(op, since, "has not called its completion");
    since = now;
  }
  lock_.unlock();
  try {
    for (const std::string& line : lines) log(LogLevel::warning, line);
  } catch (const std::bad_alloc&) {
  }
}

// Naive: everything that is ready runs. Fuzz: at a push a few operations, at a wait everything.
void EngineImpl::run_inline(bool all, bool wait_for_turn) {
  if (inside_operation()) return;
  if (!monitor_awake_.load(std::memory_order_relaxed)) wake_monitor();
  std::unique_lock guard(inline_mutex_, std::try_to_lock);
  if (!guard.owns_lock()) {
    inline_again_.store(true);
    if (wait_for_turn) {
      guard.lock();
    } else if (!guard.try_lock()) {
      return;  // the executor looks at the flag after it has let go of the mutex
    }
  }
  for (;;) {
    inline_again_.store(false);
    lock_.lock();
    Worker& worker = *borrow_worker();  // (one executor at a time: the constructor has made its worker)
    unlock();
    for (int64_t count = all ? INT64_MAX : static_cast<int64_t>(inline_random_() % 4); count > 0; --count) {
      const size_t size = step(worker);
      if (size == 0) break;
      run_batch(worker, size);
    }
    lock_.lock();
    finish_batch(worker);
    return_worker(worker);
    unlock();
    guard.unlock();
    if (!inline_again_.load() || !guard.try_lock()) return;
  }
}

}  // namespace mx::detail
