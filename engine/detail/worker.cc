// A worker: it takes a batch of operations under the lock, then runs them without it.
#include <algorithm>
#include <new>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/cpus.h"
#include "engine/base/shared_loop.h"
#include "engine/detail/engine_inl.h"
#include "engine/detail/hold.h"
#include "engine/detail/segment_group.h"
#include "engine/detail/segment_run.h"
#include "engine/detail/worker_host.h"

namespace mx::detail {

// Registers a participant, so that the monitor can offer its work to other threads. With one thread and in
// the inline modes there are no other threads.
void EngineImpl::begin_part(Participant& participant) {
  if (threads_ == 1 || inline_mode_) return;
  participants_.add(participant);
  if (!monitor_awake_.load(std::memory_order_seq_cst)) wake_monitor();
}

void EngineImpl::end_part(Participant& participant) {
  if (threads_ > 1 && !inline_mode_) participants_.remove(participant);
}

void EngineImpl::offer_run(std::shared_ptr<SegmentRun> run) {
  SegmentRun* const offered = run.get();
  lock_.lock();
  offered->self_ = std::move(run);
  SegmentRun** place = &shared_runs_;
  while (*place != nullptr) place = &(*place)->next_shared_;
  *place = offered;
  special_ = true;
  unlock();
}

void EngineImpl::withdraw_run(SegmentRun* run) {
  lock_.lock();
  SegmentRun** place = &shared_runs_;
  while (*place != run) place = &(*place)->next_shared_;
  *place = run->next_shared_;
  // If this is the last reference, the run is destroyed at the end of this function, after the lock.
  const std::shared_ptr<SegmentRun> keep = std::move(run->self_);
  unlock();
}

SegmentRun* EngineImpl::run_that_wants_company() const {
  SegmentRun* run = shared_runs_;
  while (run != nullptr && !run->wants_company()) run = run->next_shared_;
  return run;
}

void EngineImpl::call_company() {
  if (policy_.any_searching()) {
    // If nothing is there, the worker that looks corrects the hint.
    ready_hint_.store(1, std::memory_order_relaxed);
  } else if (policy_.active() < threads_) {
    start_worker();
  }
}

namespace {
constexpr int64_t kShortTicks = WorkerPolicy::kShortTicks;
}

bool EngineImpl::start_worker(std::atomic<uint64_t>* counter) {
  if (inline_mode_) return false;  // these modes have no workers
  if (!policy_.begin_call()) return false;
  if (counter != nullptr) counter->fetch_add(1, std::memory_order_relaxed);
  bool called = true;
  try {
    host_->call();
  } catch (const std::exception&) {  // no memory, or no thread
    policy_.call_failed();           // the monitor tries again as long as there is work
    called = false;
  }
  if (!monitor_awake_.load(std::memory_order_seq_cst)) wake_monitor();
  return called;
}

Worker* EngineImpl::borrow_worker() noexcept {
  for (Worker* worker = workers_; worker != nullptr; worker = worker->next) {
    if (worker->in_use) continue;
    worker->in_use = true;
    return worker;
  }
  return nullptr;
}

Worker* EngineImpl::borrow_or_make_worker() noexcept {
  if (Worker* worker = borrow_worker()) return worker;
  unlock();
  Worker* const made = new (std::nothrow) Worker;
  lock_.lock();
  if (made == nullptr) return nullptr;
  Worker** place = &workers_;
  while (*place != nullptr) place = &(*place)->next;
  *place = made;
  made->row = ++worker_count_;
  made->in_use = true;
  return made;
}

void EngineImpl::return_worker(Worker& worker) { worker.in_use = false; }

// Returns true if there is work for a worker that is called now. Work that the running workers will take
// themselves when they finish does not count: otherwise a worker would be called for it again and again.
bool EngineImpl::anything_to_take() const {
  if (paused_ > 0) return false;
  if (computing() < threads_ &&
      (ring_.maybe_nonempty() || !ready_.empty() || run_that_wants_company() != nullptr))
    return true;
  if (communicating_ < threads_ && !comm_.empty()) return true;
  if (hurried_.load(std::memory_order_relaxed) > 0) return true;
  return lanes_.can_issue();
}

void EngineImpl::work() {
  policy_.arrive();
  lock_.lock();
  Worker* const borrowed = borrow_or_make_worker();
  if (borrowed == nullptr) {
    policy_.leave();  // no memory: the monitor calls another worker
    unlock();
    return;
  }
  Worker& worker = *borrowed;
  ++worker_starts_;
  unlock();
  for (;;) {
    const size_t size = step(worker);
    if (size > 0) {
      run_batch(worker, size);
      continue;
    }
    if (search()) continue;
    // Leave, then look once more: a pusher that still saw this worker as active has called no other.
    policy_.leave();
    lock_.lock();
    const bool work_left = anything_to_take();
    if (!work_left || policy_.enough_others()) {
      return_worker(worker);
      unlock();
      return;
    }
    policy_.come_back();
    unlock();
  }
}

bool EngineImpl::may_be_work() const {
  return ready_hint_.load(std::memory_order_relaxed) > 0 || hurried_.load(std::memory_order_relaxed) > 0 ||
         (ring_.maybe_nonempty() && !full_hint_.load(std::memory_order_relaxed));
}

// Called during a search: helps with shared loops of operations that other threads run, until there may be
// other work. Meanwhile the thread does not count as searching, so that pushers do not rely on it.
void EngineImpl::help() {
  attention_.fetch_sub(1, std::memory_order_relaxed);
  policy_.end_search();
  SharedLoop::help(SharedLoop::Look::all, [this] { return may_be_work(); });
  policy_.begin_search();
  attention_.fetch_add(1, std::memory_order_relaxed);
}

// Spins until there may be work. Returns false if the worker should leave.
bool EngineImpl::search() {
  if (single_ || paused_hint_.load(std::memory_order_relaxed)) return false;
  if (policy_.too_many()) return false;
  policy_.begin_search();
  attention_.fetch_add(1, std::memory_order_seq_cst);
  const SharedLoop::Look look(SharedLoop::Look::all);
  const uint64_t limit = static_cast<uint64_t>(ticks_per_us() * options_.spin_us);
  uint64_t begin = ticks();
  uint64_t head = ring_.head();
  bool found = false;
  bool looked = false;
  for (int turn = 0;; ++turn) {
    if (may_be_work()) {
      found = true;
      break;
    }
    if (SharedLoop::offered()) {
      help();
      begin = ticks();
      if (policy_.too_many()) break;
    }
    cpu_relax();
    if ((turn & 15) != 15) continue;
    sched_yield();
    if (refusing_.load(std::memory_order_relaxed)) break;  // the engine was shut down: nothing will come
    if (streams_outstanding_.load(std::memory_order_relaxed)) {
      if (poll_is_due(searching_poll_ticks_) && lock_.try_lock()) {
        poll_devices();
        unlock();
      }
      continue;  // stay: devices have work in flight, and its end may make operations ready
    }
    const uint64_t now = ticks();
    if (!looked && now - begin > stuck_ticks_ && lock_.try_lock()) {
      // Nothing has become ready since take() looked. So operations may be behind a long one in a batch.
      looked = true;
      if (running_ > 0) scavenge();
      unlock();
    }
    if (now - begin > limit) {
      // While operations are still taken from the ring, more will come.
      const uint64_t new_head = ring_.head();
      if (new_head == head) break;
      head = new_head;
      begin = now;
    }
  }
  attention_.fetch_sub(1, std::memory_order_seq_cst);
  policy_.end_search();
  return found;
}

size_t EngineImpl::step(Worker& worker) {
  lock_.lock();
  ++steps_;
  finish_batch(worker);
  const size_t size = take(worker);
  const bool call_more = !ready_.empty() && paused_ == 0 && !policy_.any_searching() && more_workers_wanted();
  // All threads are busy. Call one more worker, so that communication does not wait for a long operation.
  const bool call_comm =
      special_ && !comm_.empty() && paused_ == 0 && running_ >= threads_ && policy_.active() == threads_;
  unlock();
  if (call_more || call_comm) [[unlikely]]
    start_worker();
  return size;
}

// Completes the operations that other workers have run but not completed yet, and takes back operations that
// they have taken but not started.
void EngineImpl::scavenge(bool all) {
  const uint64_t now = ticks();
  for (Worker* other = workers_; other != nullptr; other = other->next) {
    Batch& batch = other->batch;
    if (!other->in_use || batch.size == 0) continue;
    // If the worker makes progress, it will take the lock itself soon; to take its operations away would cost
    // more than it gains.
    const bool take = batch.size > 1 && (batch.stuck(now, stuck_ticks_) || all);
    batch.scavenge(
        take, [this](Op* op) { ready_.push_front(op); }, [this](Op* op) { complete(op); });
  }
  if (internal_ != nullptr) [[unlikely]]
    settle_internal();
}

// Precondition: ready_ is not empty. Takes one operation, or several if they are short and enough remain for
// the other workers.
inline size_t EngineImpl::take_ready(Batch& batch) {
  size_t size = 1;
  batch.ops[0] = ready_.pop();
  const int64_t each = policy_.body_ticks();
  if (policy_.worth_batching(each) && !ready_.urgent()) {
    if (each < kShortTicks && ready_.empty()) {
      // Take the chain of operations that wait only for this batch, so that the lock is taken once for many
      // of them. Workers that have nothing to do can take them back, and a failure ends the batch. Not in
      // mode check: it reads an operation's links while it runs, and they must all be granted then. Not with
      // streams: there an operation waits for more than its grants.
      if (!check_mode_ && !streams_busy_) size = batch.extend(size);
    } else {
      const size_t want = policy_.share(each, ready_.size(), running_, kMaxBatch);
      for (; size < want; ++size) batch.ops[size] = ready_.pop();
    }
  }
  start_batch(batch, size);
  return size;
}

size_t EngineImpl::take(Worker& worker) {
  if (hurried_.load(std::memory_order_relaxed) > 0) [[unlikely]]
    drain_to(ring_.tail());
  if (special_) [[unlikely]]
    return take_special(worker);
  if (ready_.empty()) {
    drain(kDrainLimit);
    if (ready_.empty()) {
      if (running_ > 0) scavenge();
      if (ready_.empty()) return 0;
    }
  }
  if (special_) [[unlikely]]
    return take_special(worker);
  if (computing() >= threads_) return 0;
  return take_ready(worker.batch);
}

// take() with all rare states: a pause, devices, lanes, priorities, replays, random schedules.
size_t EngineImpl::take_special(Worker& worker) {
  Batch& batch = worker.batch;
  worker.lane = nullptr;
  if (paused_ > 0) {
    drain(kDrainLimit);
    return 0;
  }
  if (streams_busy_ && (inline_mode_ || single_ ||
                        poll_is_due(lanes_.ready() > 0 ? issuing_poll_ticks_ : searching_poll_ticks_))) {
    poll_devices();  // releases the lock meanwhile
    if (paused_ > 0) return 0;
  }
  if (take_device_op(worker) > 0) {
    start_batch(batch, 1);
    return 1;
  }
  if (ready_.empty() && comm_.empty()) {
    drain(kDrainLimit);
    if (take_device_op(worker) > 0) {
      start_batch(batch, 1);
      return 1;
    }
    if (ready_.empty() && comm_.empty() && running_ > 0) scavenge();
  }
  if (fuzz_) {
    const size_t choices = ready_.size() + comm_.size();
    if (choices == 0) return 0;
    const size_t n = random_() % choices;
    batch.ops[0] = n < ready_.size() ? ready_.pop_nth(n) : comm_.pop_nth(n - ready_.size());
    start_batch(batch, 1);
    return 1;
  }
  if (!comm_.empty() && communicating_ < threads_) {
    batch.ops[0] = comm_.pop();
    start_communication(worker);
    return 1;
  }
  if (computing() >= threads_) return 0;
  // Ready operations and shared replays take turns. A running operation of a replay may wait for one that the
  // replay offers, so a replay must get workers no matter how much else is ready.
  run_turn_ = !run_turn_;
  if (ready_.empty() || (run_turn_ && !ready_.urgent())) {
    if (SegmentRun* run = run_that_wants_company()) {
      worker.run = run->self_;
      batch.ops[0] = nullptr;
      start_batch(batch, 1);
      return 1;
    }
    if (ready_.empty()) return 0;
  }
  return take_ready(batch);
}

void EngineImpl::run_batch(Worker& worker, size_t size) {
  Batch& batch = worker.batch;
  if (worker.run != nullptr || worker.lane != nullptr) [[unlikely]] {
    if (worker.run != nullptr) {
      std::exchange(worker.run, nullptr)->join();
    } else {
      issue(worker, batch.ops[0]);
      worker.lane = nullptr;
    }
    batch.mark_done(1);
    return;
  }
  // While operations are short, only every 16th batch is timed, which saves reads of the tick counter.
  const int64_t typical = policy_.body_ticks();
  const bool timed = typical >= kShortTicks || (++worker.sample & 15) == 0;
  const uint64_t begin = timed ? ticks() : 0;
  uint32_t ran = 0;
  RunContext context;
  context.check_ = check_mode_;
  current_task.engine = this;
  do {
    // start() has claimed the first one under the lock.
    if (ran > 0 && !batch.claim_next(ran)) break;
    const bool well = run(worker, batch.ops[ran], context);
    ++ran;
    if (!well) [[unlikely]] {
      batch.mark_failed(ran);
      break;  // the operations behind it may have to be skipped
    }
    batch.mark_done(ran);
    // End the batch early if other workers look for work or an urgent operation is there.
  } while (ran < size && attention_.load(std::memory_order_relaxed) == 0);
  current_task.operation = nullptr;
  // An asynchronous operation has left the batch, and its run time says nothing about the other operations.
  if (timed && batch.ops[0] != nullptr) {
    policy_.observe(typical, static_cast<int64_t>(ticks() - begin) / ran);
  }
}

// Runs one operation. Returns false if it failed.
inline bool EngineImpl::run(Worker& worker, Op*& slot, RunContext& context) {
  Op* op = slot;
  current_task.operation = op;
  if ((op->flags & (kOpSkip | kOpCancelled | kOpAsync | kOpNode)) != 0 ||
      instrumented_.load(std::memory_order_relaxed)) [[unlikely]] {
    return run_unusual(worker, slot, context);
  }
  return run_function(op, context);
}

// Makes the failure of an operation that will never start, because it was cancelled or one of its variables
// was deleted. Does nothing if the operation is skipped for a poisoned variable, whose failure it gets, or is
// a node, whose replay makes the failure. Precondition: its function has been destroyed, because the failure
// is stored in place of the closure.
void EngineImpl::describe_unstarted(Op* op) noexcept {
  if (op->flags & kOpNode) return;
  const OpCold& cold = op->cold();
  if (is_stale(op)) {
    op->failure() = failure_of_deleted(cold.name, cold.where);
  } else if (op->flags & kOpCancelled) {
    op->failure() = failure_of_cancelled(cold.name, cold.where);
  }
}

// Runs and destroys the function of a synchronous operation. Returns false if it failed; then the operation
// holds the failure.
inline bool EngineImpl::run_function(Op* op, RunContext& context) {
  assert_no_engine_lock();
  context.op_ = op;
  Failure* failure = nullptr;
  try {
    op->type->run(op->closure(), context, nullptr);
  } catch (...) {
    failure = failure_of_current_exception(op->cold().name, op->cold().where);
  }
  destroy_function(op);
  if (failure != nullptr) [[unlikely]] {
    op->failure() = failure;
  }
  return failure == nullptr;
}

// run() for an operation that is skipped, cancelled, asynchronous or a node of a replay, and for every
// operation while the profiler or the watchdog is on.
bool EngineImpl::run_unusual(Worker& worker, Op*& slot, RunContext& context) {
  bool well = true;
  Op* op = slot;
  const int64_t begin_ns = now_ns();
  worker.running_since.store(begin_ns, std::memory_order_relaxed);
  worker.running.store(op, std::memory_order_release);
  // The batch was counted in running_ under the lock. So either the monitor sees that count, or this thread
  // sees here that the monitor is about to sleep.
  if (options_.watchdog_ms > 0 && !monitor_awake_.load(std::memory_order_seq_cst)) wake_monitor();
  const char* outcome = "ran";
  bool async = false;
  if ((op->flags & kOpNode) && node_of(op).group->stopped()) {
    const uint8_t flags = op->flags | kOpSkip;  // a waiter may be reading it
    std::atomic_ref<uint8_t>(op->flags).store(flags, std::memory_order_relaxed);
  }
  if (op->flags & (kOpSkip | kOpCancelled)) {
    destroy_function(op);
    describe_unstarted(op);
    outcome = op->flags & kOpCancelled ? "cancelled" : "skipped";
  } else if (op->type->async) {
    const ToolRange range(ranges_, op->cold().name);
    async = true;
    Batch::leave(slot);  // its token ends it, possibly before run_async() returns
    run_async(worker, op, profiler_.tracing() ? begin_ns : 0);
  } else {
    const ToolRange range(ranges_, op->cold().name);
    well = run_function(op, context);
    if (!well) outcome = "failed";
  }
  if (!async && profiler_.tracing())
    profiler_.ran(
        op, [&] { return concat("worker ", worker.row); }, begin_ns, now_ns(), outcome);
  worker.running.store(nullptr, std::memory_order_release);
  return well;
}

void EngineImpl::unlock_and_finish() {
  AfterLock after = std::exchange(after_, {});
  lock_.unlock();
  run_ahead_.wake_if_due();
  finish_after_lock(after);
}

void EngineImpl::finish_after_lock(AfterLock& after) {
  op_pool_.give_chains(after.chains);
  if (after.vars != nullptr) var_pool_.give_all(after.vars);
  while (after.holds != nullptr) delete std::exchange(after.holds, after.holds->next);
  if (Failure::dead != nullptr) {
    // Destroys exceptions of users and what they own. Their destructors may push. They must not wait, because
    // they could wait for operations that only this thread would run; inside an operation a wait throws.
    InsideOperations inside(this);
    inside.enter(epilogue_);
    free_dead_failures();
    if (inline_mode_) inline_again_.store(true);
  }
  release_waiters(after.waiters);
  if (after.replays != nullptr) end_replays(after.replays);
}

}  // namespace mx::detail
