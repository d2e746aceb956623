// A worker: one visit to the dependency state for a batch of operations, then the operations.
#include <algorithm>

#include "engine/base/clock.h"
#include "engine/base/cpus.h"
#include "engine/detail/engine_impl.h"
#include "engine/detail/segment_run.h"
#include "engine/detail/worker_host.h"

namespace mx::detail {

void EngineImpl::offer_run(const std::shared_ptr<SegmentRun>& run) {
  lock_.lock();
  shared_runs_.push_back(run);
  unlock();
}

void EngineImpl::withdraw_run(SegmentRun* run) {
  lock_.lock();
  std::shared_ptr<SegmentRun> keep;  // its end, if this is the last use, comes after the lock
  for (auto& shared : shared_runs_) {
    if (shared.get() == run) keep = std::move(shared);
  }
  std::erase(shared_runs_, nullptr);
  unlock();
}

void EngineImpl::call_company() {
  if (searching_.load(std::memory_order_relaxed) == 0 && active_.load(std::memory_order_relaxed) < threads_) {
    start_worker();
  }
}

namespace {

// An operation this short (in ticks, about a third of a microsecond) costs no more than handing it to
// another core.
constexpr int64_t kShortTicks = 1000;

}  // namespace

// How many workers the length of the operations can feed: linking and completing an operation under the
// lock takes about 60 ns (150 ticks), so empty operations feed one worker, and one microsecond a dozen.
int EngineImpl::wanted_workers() const {
  const int64_t ticks = body_ticks_.load(std::memory_order_relaxed);
  return static_cast<int>(std::min<int64_t>(threads_, 1 + ticks / 150));
}

bool EngineImpl::more_workers_wanted() const {
  return active_.load(std::memory_order_relaxed) < wanted_workers() && !paused_hint_.load(std::memory_order_relaxed);
}

void EngineImpl::start_worker() {
  int32_t active = active_.load(std::memory_order_relaxed);
  do {
    if (active >= threads_ + 1) return;
  } while (!active_.compare_exchange_weak(active, active + 1, std::memory_order_seq_cst));
  if (!monitor_awake_.load(std::memory_order_seq_cst)) start_monitor();
  host_->call();
}

Worker& EngineImpl::borrow_worker() {
  for (auto& worker : workers_) {
    if (!worker->in_use) {
      worker->in_use = true;
      return *worker;
    }
  }
  workers_.push_back(std::make_unique<Worker>());
  workers_.back()->row = static_cast<uint32_t>(workers_.size());
  workers_.back()->in_use = true;
  return *workers_.back();
}

void EngineImpl::return_worker(Worker& worker) { worker.in_use = false; }

void EngineImpl::work() {
  lock_.lock();
  Worker& worker = borrow_worker();
  ++worker_starts_;
  unlock();
  for (;;) {
    const size_t size = step(worker);
    if (size > 0) {
      run_batch(worker, size);
      continue;
    }
    if (search()) continue;
    // Leave, then look once more: a pusher that saw this worker as active did not call another.
    active_.fetch_sub(1, std::memory_order_seq_cst);
    lock_.lock();
    const bool work_left = paused_ == 0 && (ring_.maybe_nonempty() || !ready_.empty() || !comm_.empty() ||
                                            device_ready_ > 0);
    const bool enough = active_.load(std::memory_order_seq_cst) >= std::max(1, wanted_workers());
    if (!work_left || enough) {
      return_worker(worker);
      unlock();
      return;
    }
    active_.fetch_add(1, std::memory_order_seq_cst);
    unlock();
  }
}

// Spins until there may be work; false when it is time to leave.
bool EngineImpl::search() {
  if (paused_hint_.load(std::memory_order_relaxed)) return false;
  if (active_.load(std::memory_order_relaxed) > wanted_workers()) return false;
  searching_.fetch_add(1, std::memory_order_seq_cst);
  attention_.fetch_add(1, std::memory_order_seq_cst);
  const uint64_t limit = static_cast<uint64_t>(ticks_per_us() * options_.spin_us);
  uint64_t begin = ticks();
  uint64_t head = ring_.head();
  bool found = false;
  for (int turn = 0;; ++turn) {
    if (ring_.maybe_nonempty() || ready_hint_.load(std::memory_order_relaxed) > 0) {
      found = true;
      break;
    }
    cpu_relax();
    if ((turn & 15) != 15) continue;
    sched_yield();
    if (streams_outstanding_.load(std::memory_order_relaxed) && lock_.try_lock()) {
      poll_devices();
      unlock();
      continue;  // the devices' work is on its way back: stay
    }
    const uint64_t now = ticks();
    if (now - begin > limit) {
      // As long as others find work there will be more.
      const uint64_t new_head = ring_.head();
      if (new_head == head) break;
      head = new_head;
      begin = now;
    }
  }
  attention_.fetch_sub(1, std::memory_order_seq_cst);
  searching_.fetch_sub(1, std::memory_order_seq_cst);
  return found;
}

// Releases the lock and tells the others what they read without it.
void EngineImpl::unlock() {
  uint32_t hint = static_cast<uint32_t>(ready_.size() + comm_.size() + device_ready_);
  for (const auto& run : shared_runs_) hint += run->wants_company();
  const uint32_t shown = paused_ > 0 ? 0 : hint;
  if (ready_hint_.load(std::memory_order_relaxed) != shown) ready_hint_.store(shown, std::memory_order_relaxed);
  if (ended_.load(std::memory_order_relaxed) != ended_count_) ended_.store(ended_count_, std::memory_order_relaxed);
  if (bytes_ended_.load(std::memory_order_relaxed) != ended_bytes_) {
    bytes_ended_.store(ended_bytes_, std::memory_order_relaxed);
  }
  if (ready_.urgent() != urgent_shown_) [[unlikely]] {
    urgent_shown_ = !urgent_shown_;
    attention_.fetch_add(urgent_shown_ ? 1u : ~0u, std::memory_order_relaxed);
  }
  lock_.unlock();
  if (throttled_.load(std::memory_order_relaxed) > 0) [[unlikely]] {
    throttle_word_.fetch_add(1, std::memory_order_seq_cst);
    futex_wake(throttle_word_);
  }
}

size_t EngineImpl::step(Worker& worker) {
  lock_.lock();
  ++steps_;
  finish_batch(worker);
  const size_t size = take(worker);
  const bool call_more = !ready_.empty() && paused_ == 0 && searching_.load(std::memory_order_relaxed) == 0 &&
                         more_workers_wanted();
  // Everybody is busy with long operations: communication does not wait for them.
  const bool call_comm = !comm_.empty() && paused_ == 0 &&
                         active_.load(std::memory_order_relaxed) == threads_ && running_ >= threads_;
  unlock();
  if (call_more || call_comm) [[unlikely]] start_worker();
  return size;
}

void EngineImpl::finish_batch(Worker& worker) {
  Batch& batch = worker.batch;
  if (batch.size == 0) return;
  // What the owner did not claim goes back to where it came from, in its order.
  const uint32_t claimed = std::min(batch.claimed.load(std::memory_order_relaxed), batch.size);
  for (uint32_t i = batch.size; i-- > claimed;) ready_.push_front(batch.ops[i]);
  const uint32_t done = batch.done.load(std::memory_order_relaxed);
  for (; batch.completed < done; ++batch.completed) {
    if (batch.ops[batch.completed] != nullptr) complete(batch.ops[batch.completed]);
  }
  batch.size = 0;
  --running_;
  if (internal_ != nullptr) [[unlikely]] settle_internal();
}

// Takes from the others what they have ended but not brought, and what they have taken but not started.
void EngineImpl::scavenge() {
  for (auto& other : workers_) {
    Batch& batch = other->batch;
    if (!other->in_use || batch.size == 0) continue;
    uint32_t claimed = batch.claimed.load(std::memory_order_relaxed);
    while (claimed < batch.size && !batch.claimed.compare_exchange_weak(claimed, batch.size + 1)) {
    }
    if (claimed < batch.size) {
      for (uint32_t i = batch.size; i-- > claimed;) ready_.push_front(batch.ops[i]);
      batch.size = claimed;
    }
    const uint32_t done = batch.done.load(std::memory_order_acquire);
    for (; batch.completed < done; ++batch.completed) {
      if (batch.ops[batch.completed] != nullptr) complete(batch.ops[batch.completed]);
    }
  }
  if (internal_ != nullptr) [[unlikely]] settle_internal();
}

size_t EngineImpl::take(Worker& worker) {
  Batch& batch = worker.batch;
  worker.lane = nullptr;
  if (paused_ > 0) [[unlikely]] {
    drain(kDrainLimit);
    return 0;
  }
  size_t size = 0;
  if (streams_in_use_) [[unlikely]] {
    poll_devices();
    size = take_device_op(worker);
  }
  if (size == 0) {
    if (ready_.empty() && comm_.empty()) drain(kDrainLimit);
    if (ready_.empty() && comm_.empty()) {
      if (device_ready_ > 0) size = take_device_op(worker);
      if (size == 0 && running_ > 0) scavenge();
      if (ready_.empty() && size == 0 && !shared_runs_.empty() && running_ < threads_) [[unlikely]] {
        for (auto& run : shared_runs_) {
          if (!run->wants_company()) continue;
          worker.run = run;
          batch.ops[0] = nullptr;
          size = 1;
          break;
        }
      }
    }
  }
  if (size == 0 && options_.mode == EngineMode::fuzz) {
    if (ready_.size() + comm_.size() > 0) {
      const size_t n = random_() % (ready_.size() + comm_.size());
      batch.ops[0] = n < ready_.size() ? ready_.pop_nth(n) : comm_.pop_nth(n - ready_.size());
      size = 1;
    }
  } else if (size == 0) {
    if (!comm_.empty()) [[unlikely]] {
      batch.ops[0] = comm_.pop();
      size = 1;
    } else if (!ready_.empty() && running_ < threads_) {
      size_t want = 1;
      if (body_ticks_.load(std::memory_order_relaxed) < kShortTicks && !ready_.urgent()) {
        want = std::clamp<size_t>(ready_.size() / static_cast<size_t>(running_ + 2), 1, kMaxBatch);
      }
      for (; size < want; ++size) batch.ops[size] = ready_.pop();
    }
  }
  if (size > 0) {
    ++running_;
    batch.claimed.store(1, std::memory_order_relaxed);
    batch.done.store(0, std::memory_order_relaxed);
    batch.completed = 0;
    batch.size = static_cast<uint32_t>(size);
  }
  return size;
}

void EngineImpl::run_batch(Worker& worker, size_t size) {
  Batch& batch = worker.batch;
  if (worker.run != nullptr) [[unlikely]] {
    std::exchange(worker.run, nullptr)->join();
    batch.done.store(1, std::memory_order_release);
    return;
  }
  if (worker.lane != nullptr) [[unlikely]] {
    issue(worker, batch.ops[0]);
    batch.done.store(1, std::memory_order_release);
    return;
  }
  // The counter is read for a few batches only, while operations are short.
  static thread_local uint32_t sample = 0;
  const int64_t typical = body_ticks_.load(std::memory_order_relaxed);
  const bool timed = typical >= kShortTicks || (++sample & 15) == 0;
  const uint64_t begin = timed ? ticks() : 0;
  uint32_t ran = 0;
  if (size == 1) {
    run(worker, batch.ops[0]);
    batch.done.store(1, std::memory_order_release);
    ran = 1;
  } else {
    for (uint32_t i = 0; i < size; ++i) {
      if (i > 0) {
        // Come back early when others look for work or something urgent is there. The claim orders the
        // store of `done` before this look (see scavenge()).
        if (batch.claimed.fetch_add(1, std::memory_order_seq_cst) >= size) break;
      }
      run(worker, batch.ops[i]);
      batch.done.store(i + 1, std::memory_order_release);
      ++ran;
      if (attention_.load(std::memory_order_relaxed) != 0 && i + 1 < size) break;
    }
  }
  // (Asynchronous operations have left the batch. How long they run says nothing of the others; a replay is one.)
  if (timed && batch.ops[0] != nullptr) {
    const int64_t each = static_cast<int64_t>(ticks() - begin) / ran;
    // Falls slowly, rises at once: a long operation taken for a short one hides work behind it.
    const int64_t next = each > typical ? each : (typical * 7 + each) / 8;
    if (next != typical) body_ticks_.store(next, std::memory_order_relaxed);
  }
}

void EngineImpl::run(Worker& worker, Op*& slot) {
  Op* op = slot;
  tls.running = op;
  tls.running_engine = this;
  const bool watched = options_.watchdog_ms > 0;
  if (watched) [[unlikely]] {
    worker.running_since.store(now_ns(), std::memory_order_relaxed);
    worker.running.store(op, std::memory_order_release);
  }
  const int64_t begin_ns = profiler_.tracing() ? now_ns() : 0;
  const char* outcome = "ran";
  const bool async = op->type->async;
  if (op->flags & (kOpSkip | kOpCancelled)) [[unlikely]] {
    op->type->destroy(op);
    outcome = op->flags & kOpCancelled ? "cancelled" : "skipped";
    if (begin_ns != 0) profiler_.ran(op, concat("worker ", worker.row), begin_ns, now_ns(), outcome);
  } else if (!async) [[likely]] {
    RunContext context;
    context.op_ = op;
    context.check_ = check_mode_;
    Failure* failure = nullptr;
    try {
      op->type->run(op, std::move(context), Completion());
    } catch (...) {
      failure = failure_of_current_exception(op->cold().name, op->cold().where);
      outcome = "failed";
    }
    op->type->destroy(op);
    if (failure != nullptr) [[unlikely]] {
      op->failure() = failure;
      op->flags |= kOpFailed;
    }
    if (begin_ns != 0) [[unlikely]] {
      profiler_.ran(op, concat("worker ", worker.row), begin_ns, now_ns(), outcome);
    }
  } else {
    slot = nullptr;  // its completion ends it, maybe before this line is left
    run_async(worker, op, begin_ns);
  }
  if (watched) [[unlikely]] worker.running.store(nullptr, std::memory_order_release);
  tls.running = nullptr;
}

}  // namespace mx::detail
