// A worker: one visit to the dependency state for a batch of operations, then the operations.
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

// With one thread there is nobody to help, and in the inline modes neither.
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
  // If this is the last use, the run ends after the lock.
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
    ready_hint_.store(1, std::memory_order_relaxed);  // (if there is nothing, who comes to look corrects it)
  } else if (policy_.active() < threads_) {
    start_worker();
  }
}

namespace {
constexpr int64_t kShortTicks = WorkerPolicy::kShortTicks;
}

bool EngineImpl::start_worker(std::atomic<uint64_t>* counter) {
  if (inline_mode_) return false;  // there are none
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

// For a worker that comes now; what those who run operations will take themselves when they are done does not
// count, or it would come again and again for nothing.
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
    policy_.leave();  // the monitor calls another
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
    // Leave, then look once more: a pusher that saw this worker as active did not call another.
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

// From a search into the loops of operations that others run, as long as there is nothing else to do.
// Meanwhile nobody takes this thread for one that searches.
void EngineImpl::help() {
  attention_.fetch_sub(1, std::memory_order_relaxed);
  policy_.end_search();
  SharedLoop::help(SharedLoop::Look::all, [this] { return may_be_work(); });
  policy_.begin_search();
  attention_.fetch_add(1, std::memory_order_relaxed);
}

// Spins until there may be work; false when it is time to leave.
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
    if (streams_outstanding_.load(std::memory_order_relaxed) && lock_.try_lock()) {
      poll_devices();
      unlock();
      continue;  // the devices' work is on its way back: stay
    }
    const uint64_t now = ticks();
    if (!looked && now - begin > stuck_ticks_ && lock_.try_lock()) {
      // What has not moved since take() looked is hidden behind a long operation.
      looked = true;
      if (running_ > 0) scavenge();
      unlock();
    }
    if (now - begin > limit) {
      // As long as others find work there will be more.
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
  // Everybody is busy with long operations: communication does not wait for them.
  const bool call_comm =
      special_ && !comm_.empty() && paused_ == 0 && running_ >= threads_ && policy_.active() == threads_;
  unlock();
  if (call_more || call_comm) [[unlikely]]
    start_worker();
  return size;
}

// Takes from the others what they have ended but not brought, and what they have taken but not started.
void EngineImpl::scavenge(bool all) {
  const uint64_t now = ticks();
  for (Worker* other = workers_; other != nullptr; other = other->next) {
    Batch& batch = other->batch;
    if (!other->in_use || batch.size == 0) continue;
    // (Taking away from an owner that is about to come by itself would cost more than it gains.)
    const bool take = batch.size > 1 && (batch.stuck(now, stuck_ticks_) || all);
    batch.scavenge(
        take, [this](Op* op) { ready_.push_front(op); }, [this](Op* op) { complete(op); });
  }
  if (internal_ != nullptr) [[unlikely]]
    settle_internal();
}

// Of what is ready, and there is something: one, or as many short ones as leave enough for others.
inline size_t EngineImpl::take_ready(Batch& batch) {
  size_t size = 1;
  batch.ops[0] = ready_.pop();
  const int64_t each = policy_.body_ticks();
  if (policy_.worth_batching(each) && !ready_.urgent()) {
    if (each < kShortTicks && ready_.empty()) {
      // A chain then visits the lock once for many links. (Other workers take it away again if they have
      // nothing to do, and a failure ends the batch.) Mode check reads links as the operation runs, which
      // must then have all its grants; with streams, grants are not all that an operation waits for.
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

// The same with everything that is rarely there: a pause, devices, lanes, priorities, replays, chance.
size_t EngineImpl::take_special(Worker& worker) {
  Batch& batch = worker.batch;
  worker.lane = nullptr;
  if (paused_ > 0) {
    drain(kDrainLimit);
    return 0;
  }
  if (streams_busy_) {
    poll_devices();  // (which gives the lock up)
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
  // In turns: an operation of the replay may wait for one that it offers, however much else is ready.
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
  // The counter is read for a few batches only, while operations are short.
  const int64_t typical = policy_.body_ticks();
  const bool timed = typical >= kShortTicks || (++worker.sample & 15) == 0;
  const uint64_t begin = timed ? ticks() : 0;
  uint32_t ran = 0;
  RunContext context;
  context.check_ = check_mode_;
  current_task.engine = this;
  do {
    // (The first has been claimed under the lock.)
    if (ran > 0 && !batch.claim_next(ran)) break;
    const bool well = run(worker, batch.ops[ran], context);
    ++ran;
    if (!well) [[unlikely]] {
      batch.mark_failed(ran);
      break;  // what stands behind it may have to be skipped
    }
    batch.mark_done(ran);
    // Come back early when others look for work or something urgent is there.
  } while (ran < size && attention_.load(std::memory_order_relaxed) == 0);
  current_task.operation = nullptr;
  // (Asynchronous operations have left the batch; how long they ran says nothing of the others.)
  if (timed && batch.ops[0] != nullptr) {
    policy_.observe(typical, static_cast<int64_t>(ticks() - begin) / ran);
  }
}

// False when it failed.
inline bool EngineImpl::run(Worker& worker, Op*& slot, RunContext& context) {
  Op* op = slot;
  current_task.operation = op;
  if ((op->flags & (kOpSkip | kOpCancelled | kOpAsync | kOpNode)) != 0 ||
      instrumented_.load(std::memory_order_relaxed)) [[unlikely]] {
    return run_unusual(worker, slot, context);
  }
  return run_function(op, context);
}

// An operation that has not started and never will: makes the failure that it ends with, if that is not one
// of a variable that it reads. After its function has been destroyed. (For a node of a replay the replay does
// it.)
void EngineImpl::describe_unstarted(Op* op) noexcept {
  if (op->flags & kOpNode) return;
  const OpCold& cold = op->cold();
  if (is_stale(op)) {
    op->failure() = failure_of_deleted(cold.name, cold.where);
  } else if (op->flags & kOpCancelled) {
    op->failure() = failure_of_cancelled(cold.name, cold.where);
  }
}

// Runs and destroys the function of a synchronous operation. False: it failed, and the failure is left in it.
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

// Skipped, asynchronous or a node of a replay, or watched by the profiler or the watchdog.
bool EngineImpl::run_unusual(Worker& worker, Op*& slot, RunContext& context) {
  bool well = true;
  Op* op = slot;
  const int64_t begin_ns = now_ns();
  worker.running_since.store(begin_ns, std::memory_order_relaxed);
  worker.running.store(op, std::memory_order_release);
  const char* outcome = "ran";
  bool async = false;
  if ((op->flags & kOpNode) && node_of(op).group->stopped()) {
    const uint8_t flags = op->flags | kOpSkip;  // (a waiter may be looking at it)
    std::atomic_ref<uint8_t>(op->flags).store(flags, std::memory_order_relaxed);
  }
  if (op->flags & (kOpSkip | kOpCancelled)) {
    destroy_function(op);
    describe_unstarted(op);
    outcome = op->flags & kOpCancelled ? "cancelled" : "skipped";
  } else if (op->type->async) {
    async = true;
    Batch::leave(slot);  // its completion ends it, maybe before this line is left
    run_async(worker, op, profiler_.tracing() ? begin_ns : 0);
  } else {
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
  if (run_ahead_.sleepers()) run_ahead_.wake();
  finish_after_lock(after);
}

void EngineImpl::finish_after_lock(AfterLock& after) {
  op_pool_.give_chains(after.chains);
  if (after.vars != nullptr) var_pool_.give_all(after.vars);
  while (after.holds != nullptr) delete std::exchange(after.holds, after.holds->next);
  if (Failure::dead != nullptr) {
    // Exceptions of users go here, and what they own. It may push; if it waited, it could wait for what only
    // this thread runs.
    InsideOperations inside(this);
    inside.enter(epilogue_);
    free_dead_failures();
    if (inline_mode_) inline_again_.store(true);
  }
  release_waiters(after.waiters);
  if (after.replays != nullptr) end_replays(after.replays);
}

}  // namespace mx::detail
