#include "engine/detail/worker_host.h"

#include <tbb/global_control.h>
#include <tbb/task_arena.h>

#include <algorithm>
#include <stdexcept>

#include "engine/base/annotations.h"
#include "engine/base/futex.h"

namespace mx::detail {

namespace {

size_t parallelism_of(int threads) {
  return std::max<size_t>(tbb::global_control::active_value(tbb::global_control::max_allowed_parallelism),
                          static_cast<size_t>(threads) + 2);
}

}  // namespace

struct WorkerHost::State {
  State(int threads, int most, std::function<void()> f)
      : parallelism(tbb::global_control::max_allowed_parallelism,
                    std::min(parallelism_of(threads), static_cast<size_t>(most) + 1)),
        arena(threads + 1, 0),
        work(std::move(f)) {
    arena.initialize();
  }

  tbb::global_control parallelism;  // counts the thread that uses oneTBB, which oneTBB need not start
  tbb::task_arena arena;
  std::function<void()> work;
  std::atomic<uint32_t> calls{0};  // queued or running
};

WorkerHost::WorkerHost(int threads, int most, std::function<void()> work)
    : state_(std::make_unique<State>(threads, most, std::move(work))) {}

WorkerHost::~WorkerHost() { join(); }

int WorkerHost::most_started(int threads) { return static_cast<int>(parallelism_of(threads)) - 1; }

void WorkerHost::call() {
  State* state = state_.get();
  state->calls.fetch_add(1, std::memory_order_relaxed);
  MX_TSAN_RELEASE(state);  // this file is compiled without the sanitizer: see annotations.h
  MX_TSAN_IGNORE_WRITES_BEGIN();
  try {
    state->arena.enqueue([state] {
      MX_TSAN_ACQUIRE(state);
      state->work();
      MX_TSAN_RELEASE(&state->calls);
      if (state->calls.fetch_sub(1, std::memory_order_acq_rel) == 1) futex_wake(state->calls);
    });
  } catch (const std::runtime_error&) {
    // oneTBB could not start a thread for the task. The task is queued nevertheless, and one of the threads
    // that exist already will run it.
  } catch (...) {
    MX_TSAN_IGNORE_WRITES_END();
    if (state->calls.fetch_sub(1, std::memory_order_acq_rel) == 1) futex_wake(state->calls);
    throw;
  }
  MX_TSAN_IGNORE_WRITES_END();
}

void WorkerHost::join() {
  for (;;) {
    const uint32_t calls = state_->calls.load(std::memory_order_acquire);
    if (calls == 0) {
      MX_TSAN_ACQUIRE(&state_->calls);
      return;
    }
    futex_wait(state_->calls, calls, 10'000'000);
  }
}

}  // namespace mx::detail
