// The monitor: a thread that sleeps while the engine is idle. While the engine is busy, it wakes every
// millisecond and looks for states that no other thread notices:
//   - an operation that was expected to be short and delays the operations behind it in a batch,
//   - an operation of a replay that waits for another operation of the same replay,
//   - work on a device that has ended while no thread polls,
//   - an operation that does not end (the watchdog).
//
// Also the inline modes, naive and fuzz, which have no workers. In mode fuzz the monitor runs operations as a
// last resort, and in both modes it serves the watchdog.
#include <algorithm>
#include <array>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/threads.h"
#include "engine/detail/engine_inl.h"
#include "engine/detail/worker_host.h"

namespace mx::detail {

// Called when the engine is constructed, not at its first operation: a push that has been submitted must not
// fail because no thread can be started.
void EngineImpl::start_monitor() {
  monitor_thread_ = start_thread("Engine", [this] { monitor(); });
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
  int64_t next_full_look_ns = 0;
  for (;;) {
    const bool devices = streams_outstanding_.load(std::memory_order_relaxed);
    // If more workers could be called, the monitor looks more often whether operations that were expected to
    // be short are long. Not with two threads: one worker is active already, and waking the monitor ten times
    // a millisecond would cost that worker more than calling the second one late.
    const int active = policy_.active();
    const bool quick = threads_ > 2 && active > 0 && active < threads_ && !inline_mode_;
    monitor_wake_.wait_for(guard, devices && active == 0 ? std::chrono::microseconds(50)
                                  : quick                ? std::chrono::microseconds(100)
                                                         : std::chrono::microseconds(1000));
    if (monitor_stop_) return;
    guard.unlock();
    const int64_t now = now_ns();
    if (quick && !devices && now < next_full_look_ns &&
        run_ahead_.ended_ops() != seen_ended) {  // operations end: no need for the lock
      seen_ended = run_ahead_.ended_ops();
      guard.lock();
      continue;
    }
    next_full_look_ns = now + 1'000'000;
    if (inline_asked_.exchange(false)) run_inline(true, true);
    if (participants_.rescue()) call_company();
    lock_.lock();
    if (streams_busy_ && !inline_mode_) poll_devices();
    const bool running = running_ > 0;
    const bool stuck = ended_count_ == seen_ended;
    seen_ended = ended_count_;
    if (stuck && running && !inline_mode_) {
      drain(kDrainLimit);
      scavenge(true);
    }
    const bool pending =
        inline_mode_ ? !ready_.empty() || !comm_.empty() || lanes_.ready() > 0 || ring_.maybe_nonempty()
                     : anything_to_take();
    // If a device has just made operations ready, there may be no worker to run them.
    const bool idle = !inline_mode_ && policy_.none_active();
    const bool call = pending && (stuck || idle) && paused_ == 0 && !policy_.any_searching();
    const int calls = WorkerPolicy::to_call(ready_.size(), policy_.active(), threads_);
    bool busy = running_ > 0 || !policy_.none_active() || streams_busy_ || (inline_mode_ && pending);
    unlock();
    if (call) {
      if (inline_mode_) {
        // A thread that runs an operation goes on with the next one. So the monitor steps in only if no
        // thread runs one for 1000 turns.
        if (!running && ++quiet_turns > 1000) run_inline(true, false);
      } else {
        // An operation that has run for so long is not short. Each worker that is called then takes a single
        // operation, so that no operation waits behind another one in a batch.
        if (calls > 1 && running) {
          const auto quick_look = static_cast<int64_t>(100 * ticks_per_us());
          policy_.set_body_ticks(std::max(policy_.body_ticks(), quick_look));
        }
        bool called = false;
        for (int i = 0; i < calls; ++i) called |= start_worker(called ? nullptr : &monitor_calls_);
      }
    } else {
      quiet_turns = 0;
    }
    if (options_.watchdog_ms > 0) {
      {
        const std::lock_guard watch(watch_mutex_);
        busy |= !async_since_.empty();
      }
      if (now >= next_watch_ns) {
        watchdog(now);
        next_watch_ns = now + std::max<int64_t>(1, options_.watchdog_ms / 4) * 1'000'000;
      }
    }
    bool sleepy = !busy;
    if (sleepy) {
      monitor_awake_.store(false, std::memory_order_seq_cst);
      // Threads wake this thread only if monitor_awake_ is false. So look once more for what began before it
      // was cleared: operations that run, which the watchdog observes, and operations that were pushed,
      // because with a single processor a pusher calls no other thread.
      lock_.lock();
      sleepy = running_ == 0 && (inline_mode_ || !anything_to_take());
      unlock();
      if (sleepy && options_.watchdog_ms > 0) {
        const std::lock_guard watch(watch_mutex_);
        sleepy = async_since_.empty();
      }
    }
    guard.lock();
    // A worker that was called before monitor_awake_ was cleared saw it set and did not wake this thread. The
    // same holds for a thread that began to take part in a replay. So sleep only if there is none of them.
    while (sleepy && policy_.none_active() && !streams_outstanding_.load() && !monitor_stop_ &&
           participants_.empty() && !inline_asked_.load() &&
           !monitor_awake_.load(std::memory_order_seq_cst)) {
      monitor_wake_.wait(guard);
    }
    monitor_awake_.store(true, std::memory_order_seq_cst);
    if (monitor_stop_) return;
  }
}

void EngineImpl::watchdog(int64_t now) {
  const int64_t limit = static_cast<int64_t>(options_.watchdog_ms) * 1'000'000;
  struct Late {
    const char* name;
    std::source_location where;
    int64_t since;
    const char* what;
  };
  // Collected under the locks and described after them. Operations that find no place in the array are
  // reported at the next call.
  std::array<Late, 32> late;
  size_t count = 0;
  const auto note = [&](Op* op, int64_t since, const char* what) {
    late[count++] = {op->cold().name, op->cold().where, since, what};
  };
  lock_.lock();
  for (Worker* worker = workers_; worker != nullptr && count < late.size(); worker = worker->next) {
    Op* op = worker->running.load(std::memory_order_acquire);
    const int64_t since = worker->running_since.load(std::memory_order_relaxed);
    if (op == nullptr || now - since <= limit || since == worker->reported) continue;
    worker->reported = since;
    note(op, since, "has been running");
  }
  unlock();
  {
    const std::lock_guard watch(watch_mutex_);
    for (auto& [op, since] : async_since_) {
      if (now - since <= limit || count == late.size()) continue;
      note(op, since, "has not called its completion");
      since = now;
    }
  }
  try {
    for (size_t i = 0; i < count; ++i) {
      log(LogLevel::warning,
          concat("[", name_or_default(late[i].name), "] ", late[i].what, " for ",
                 (now - late[i].since) / 1'000'000, " ms, longer than the watchdog's limit of ",
                 options_.watchdog_ms, " ms (pushed at ", place(late[i].where), ")"));
    }
  } catch (const std::bad_alloc&) {
    // Without memory, nothing is logged.
  }
}

// Asks the monitor to run the ready operations. Used by timed waits, which run no operations themselves.
void EngineImpl::ask_for_inline_run() {
  if (!monitored_) return;  // mode naive: every operation that can run has run at its push
  inline_asked_.store(true);
  wake_monitor();
}

// Runs ready operations on the calling thread: all of them, or, without `all`, a random number from 0 to 3.
// Mode naive always runs all; mode fuzz runs a few at a push and all at a wait.
void EngineImpl::run_inline(bool all, bool wait_for_turn) {
  if (inside_operation()) return;
  const WorkingFor outside(CurrentTask{});  // pushes made here are not part of what this thread records
  if (!monitor_awake_.load(std::memory_order_relaxed)) wake_monitor();
  std::unique_lock guard(inline_mutex_, std::try_to_lock);
  if (!guard.owns_lock()) {
    inline_again_.store(true);
    if (wait_for_turn) {
      guard.lock();
    } else if (!guard.try_lock()) {
      return;  // the executor checks inline_again_ after it has released the mutex
    }
  }
  for (;;) {
    inline_again_.store(false);
    lock_.lock();
    Worker& worker = *borrow_worker();  // not null: one executor at a time, and the constructor made a worker
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
