// Waiting, and the work that a waiter does meanwhile.
//
// A waiter runs ready operations that its result depends on (they are "on its way"), and never others, so
// that unrelated long work cannot delay it. For wait_all() every operation is on the way. A waiter sleeps
// only if there is nothing for it to run, because waking a sleeping thread costs some 20 us. A wait with a
// time limit runs nothing, because any operation may take longer than the limit.
#include <algorithm>

#include "engine/base/clock.h"
#include "engine/base/cpus.h"
#include "engine/base/shared_loop.h"
#include "engine/detail/engine_inl.h"
#include "engine/detail/hold.h"
#include "engine/detail/segment_group.h"
#include "engine/detail/segment_impl.h"
#include "engine/device/host_stream.h"

namespace mx::detail {

namespace {

// Limits of the search for operations on the way: the links that the walk visits, and the ready operations
// that are tried.
constexpr int kWalkLimit = 512;
constexpr size_t kReadyLimit = 64;

// A waiter first sleeps for kFirstNapNs, and twice as long each time that it finds nothing, up to kLastNapNs.
// So it is late by no more than the time that it has already waited.
constexpr int64_t kFirstNapNs = 1'000'000;
constexpr int64_t kLastNapNs = 64'000'000;
constexpr int64_t kMostMs = 1'000'000'000'000;  // so that no deadline overflows

}  // namespace

void EngineImpl::refuse_inside_operation(const char* call) const {
  if (!inside_operation() && current_task.recording == nullptr && HostStream::current() == nullptr) [[likely]]
    return;
  MX_CHECK(HostStream::current() == nullptr, InvalidState, "[", call,
           "] expected a call from outside of operations, got one from inside a task of a stream: the task "
           "could wait for itself for ever; use push_async to continue when other work has finished");
  MX_CHECK(current_task.recording_engine != this, InvalidState, "[", call,
           "] expected a call from outside of record(), got one from inside: recorded operations do not run "
           "until the segment is replayed");
  if (!inside_operation()) return;
  Op* op = current_task.segment != nullptr ? current_task.segment->operation(current_task.node)
                                           : current_task.operation;
  throw InvalidState(concat("[", call, "] expected a call from outside of operations, got one from inside '",
                            name_or_default(op->cold().name), "' (pushed at ", place(op->cold().where),
                            "): the operation could wait for itself for ever; use push_async to continue "
                            "when other work has finished"));
}

bool EngineImpl::wait(Var v, int64_t timeout_ms) {
  refuse_inside_operation("wait");
  if (forked()) check_usable("wait");
  check_var(v, "wait");
  VarBlock* var = v.block;
  Waiter waiter;
  waiter.var = var;
  lock_.lock();
  drain_to(tail());
  if (var->generation != v.generation) [[unlikely]] {  // another thread has deleted it meanwhile
    unlock();
    refuse_var(v, "wait");
  }
  if ((var->flags & kVarKept) && var->holder->hold->pending()) give_up(var);
  waiter.target = var->writes_linked;
  if (var->writes_done == waiter.target) version_made(waiter);
  bool in_time = true;
  if (!waiter.finished) {
    var->flags |= kVarWatched;
    waiter.next = var_waiters_;
    var_waiters_ = &waiter;
    in_time = block(waiter, timeout_ms);
    if (!in_time) remove_waiter(waiter);
  }
  unlock();
  rouse();
  if (in_time) await_release(waiter);
  if (!in_time) {
    if (waiter.failure != nullptr) waiter.failure->release();
    return false;
  }
  if (waiter.failure != nullptr) {
    waiter.failure->observed.store(true, std::memory_order_relaxed);
    const std::exception_ptr error = waiter.failure->error;
    waiter.failure->release();
    std::rethrow_exception(error);
  }
  return true;
}

// Precondition: the lock is held. Counts the failures since the last call as seen.
EngineImpl::Failures EngineImpl::take_failures() {
  for (Failure* failure : unobserved_) failure->release_later();
  unobserved_.clear();
  return {std::exchange(first_failure_, nullptr), std::exchange(failures_, 0)};
}

// wait_all() without reporting errors. If `failures` is given, they are taken under the lock that is held
// anyway.
bool EngineImpl::drain_all(int64_t timeout_ms, Failures* failures) {
  Waiter waiter;
  lock_.lock();
  while (!epochs_.has_room()) {
    const size_t size = epochs_.size();
    unlock();
    MX_CHECK(size < Epochs::kMost, OutOfMemory, "[wait_all] expected fewer than ", Epochs::kMost,
             " earlier calls whose operations are still in flight, got that many");
    std::vector<Epochs::Entry> larger(std::min(2 * size, Epochs::kMost));
    lock_.lock();
    epochs_.grow(larger);
  }
  drain_to(tail());
  waiter.end = epochs_.close();
  bool in_time = epochs_.over(waiter.end);
  if (!in_time) {
    waiter.next = epoch_waiters_;
    epoch_waiters_ = &waiter;
    in_time = block(waiter, timeout_ms);
    if (in_time) {
      if (failures != nullptr) *failures = take_failures();
      unlock();
      rouse();
      await_release(waiter);
      return true;
    }
    remove_waiter(waiter);
  }
  if (in_time && failures != nullptr) *failures = take_failures();
  unlock();
  rouse();
  return in_time;
}

bool EngineImpl::wait_all(int64_t timeout_ms) {
  refuse_inside_operation("wait_all");
  if (forked()) check_usable("wait_all");
  Failures failures;
  if (!drain_all(timeout_ms, &failures)) return false;
  const auto [first, count] = failures;
  if (first != nullptr) [[unlikely]] {
    first->observed.store(true, std::memory_order_relaxed);
    std::exception_ptr error = first->error;
    first->release();
    if (count > 1)
      error =
          with_note(error, concat("; and ", count - 1, " more operations failed since the last wait_all"));
    std::rethrow_exception(error);
  }
  return true;
}

// Called when the variable holds the version that the waiter waits for; later versions do not concern the
// waiter. A device may still be working on this version and may fail; maybe_landed() reports that.
void EngineImpl::version_made(Waiter& waiter) {
  VarBlock* var = waiter.var;
  waiter.written = true;
  waiter.failure = var->failure;
  waiter.recoverable = (var->flags & kVarRecoverable) != 0;
  if (waiter.failure != nullptr) waiter.failure->retain();
  if (!streams_ || streams_->landed(var, waiter.target)) {
    finish_waiter(waiter);
  } else {
    waiter.landing = var->marks->write;
  }
}

void EngineImpl::finish_waiter(Waiter& waiter) {
  if (waiter.finished) return;
  waiter.finished = true;
  remove_waiter(waiter);
  waiter.next = after_.waiters;  // unlock() wakes its thread
  after_.waiters = &waiter;
}

// Called without the lock. A Waiter lies on the stack of its thread, which may return as soon as `word` is
// kReleased. So nothing touches the Waiter afterwards.
void EngineImpl::release_waiters(Waiter* first) {
  while (first != nullptr) {
    Waiter& waiter = *first;
    first = waiter.next;
    if (waiter.word.exchange(Waiter::kWaking, std::memory_order_acq_rel) == Waiter::kAsleep)
      futex_wake(waiter.word);
    waiter.word.store(Waiter::kReleased, std::memory_order_release);
  }
}

void EngineImpl::await_release(Waiter& waiter) {
  spin_until([&] { return waiter.word.load(std::memory_order_acquire) == Waiter::kReleased; });
}

void EngineImpl::remove_waiter(Waiter& waiter) {
  bool watched = false;
  for (Waiter** place = waiter.var != nullptr ? &var_waiters_ : &epoch_waiters_; *place != nullptr;) {
    if (*place == &waiter) {
      *place = waiter.next;
    } else {
      watched |= (*place)->var == waiter.var;
      place = &(*place)->next;
    }
  }
  if (waiter.var == nullptr || watched) return;
  waiter.var->flags &= static_cast<uint8_t>(~kVarWatched);
  give_deleted_var(waiter.var);
}

// Blocks until the waiter is finished; returns false if the time is over before that. Called with the lock
// held, and returns with the lock held.
bool EngineImpl::block(Waiter& waiter, int64_t timeout_ms) {
  using Look = SharedLoop::Look;
  const bool timed = timeout_ms >= 0;
  const int64_t deadline = timed ? now_ns() + std::min(timeout_ms, kMostMs) * 1'000'000 : INT64_MAX;
  // A timed wait runs nothing, and in the inline modes run_inline() borrows a worker itself. If there is no
  // memory for a worker, this thread waits without helping.
  Worker* const worker = inline_mode_ || timed ? nullptr : borrow_or_make_worker();
  const WorkingFor outside(CurrentTask{});  // pushes made here are not part of what this thread records
  add_waiting(1);
  uint64_t idle_since = 0;
  uint64_t seen_ended = ended_count_;
  int64_t nap_ns = kFirstNapNs;
  bool flowing = false;
  bool in_time = true;
  Look look;
  while (!waiter.finished) {
    size_t size = 0;
    if (inline_mode_) {
      unlock();
      timed ? ask_for_inline_run() : run_inline(true, true);
      lock_.lock();
      if (streams_busy_) poll_devices();
    } else if (!flowing && worker != nullptr) {
      size = take_for(waiter, *worker);
    } else if (streams_busy_) {
      poll_devices();
    }
    if (waiter.finished) {
      if (size > 0) give_back(*worker);  // take_for() has ended the wait as well
      break;
    }
    const bool on_the_way = !timed && is_on_the_way(waiter);
    unlock();
    if (size > 0) {
      rouse();
      run_batch(*worker, size);
      idle_since = 0;
      nap_ns = kFirstNapNs;
      lock_.lock();
      finish_batch(*worker);
      continue;
    }
    // There is nothing to run. Keep looking for a while, then sleep.
    const uint64_t now = ticks();
    if (idle_since == 0) idle_since = now;
    const bool patient = single_ || static_cast<double>(now - idle_since) > ticks_per_us() * options_.spin_us;
    if (timed && now_ns() >= deadline) {
      lock_.lock();
      in_time = waiter.finished;
      break;
    }
    if (patient && !flowing) {
      look.set(Look::nothing);
      if (single_ && !inline_mode_ &&
          (ready_hint_.load(std::memory_order_relaxed) > 0 || ring_.maybe_nonempty())) {
        start_worker();  // this thread is about to leave the processor to it
      } else {
        rouse();
      }
      // An untimed waiter wakes now and then: an operation on its way may have become ready while all workers
      // are in long operations that are unrelated to it. In the inline modes, if another thread's completion
      // has made operations ready, the waiter runs them or asks the monitor to do so.
      const int64_t nap = inline_mode_ ? kFirstNapNs : timed ? INT64_MAX : nap_ns;
      sleep(waiter, std::min(nap, deadline - now_ns()));
      nap_ns = std::min(2 * nap_ns, kLastNapNs);
      idle_since = 0;
    } else {
      const auto finished = [&] { return waiter.word.load(std::memory_order_relaxed) >= Waiter::kWaking; };
      // A loop with long pieces may belong to an operation that is unrelated to this wait. So the waiter
      // helps with long pieces only if the running operation is on its way. A timed waiter helps with none,
      // because one piece may take longer than the time that is left.
      if (!single_ && !inline_mode_ && !timed) look.set(on_the_way ? Look::all : Look::brief);
      for (int i = 0; i < 64 && !finished(); ++i) {
        if (look.at() != Look::nothing && SharedLoop::offered() && SharedLoop::help(look.at(), finished))
          idle_since = 0;
        cpu_relax();
      }
      sched_yield();
    }
    // While other threads complete operations at a good pace, this thread helps best by not contending for
    // the lock and for the cache lines that it guards.
    const uint64_t ended = run_ahead_.ended_ops();
    flowing = !inline_mode_ && !single_ && ended != seen_ended && policy_.active() > 0 &&
              policy_.body_ticks() < WorkerPolicy::kShortTicks;
    seen_ended = ended;
    if (flowing && waiter.word.load(std::memory_order_acquire) < Waiter::kWaking) {
      idle_since = 0;
    }
    lock_.lock();
  }
  add_waiting(-1);
  if (worker != nullptr) return_worker(*worker);
  if (after_.waiters == &waiter) {  // this thread itself has found the end, so it needs no wake-up
    after_.waiters = waiter.next;
    waiter.word.store(Waiter::kReleased, std::memory_order_relaxed);
  }
  return in_time;
}

// Sleeps until the waiter is woken, or for at most limit_ns. Called without the lock.
void EngineImpl::sleep(Waiter& waiter, int64_t limit_ns) {
  uint32_t expected = Waiter::kAwake;
  if (limit_ns <= 0 ||
      !waiter.word.compare_exchange_strong(expected, Waiter::kAsleep, std::memory_order_acq_rel))
    return;
  futex_wait(waiter.word, Waiter::kAsleep, limit_ns);
  expected = Waiter::kAsleep;
  waiter.word.compare_exchange_strong(expected, Waiter::kAwake, std::memory_order_acq_rel);
}

// Returns true if the operations that run now are taken to be on the way: for wait_all(), and if only one
// thread runs operations and nothing else is ready or in flight on a device.
bool EngineImpl::is_on_the_way(const Waiter& waiter) const {
  return waiter.var == nullptr ||
         (running_ == 1 && ready_.empty() && comm_.empty() && paused_ == 0 && !streams_busy_);
}

// Undoes take() or take_for(). Precondition: no operation of the batch has begun.
void EngineImpl::give_back(Worker& worker) {
  Batch& batch = worker.batch;
  if (worker.lane != nullptr) {
    lanes_.give_back(*worker.lane, batch.ops[0]);
    worker.lane = nullptr;
  } else if (worker.run != nullptr) {
    worker.run = nullptr;  // destroys nothing under the lock: shared_runs_ has another reference
  } else {
    ReadyQueue& queue = worker.communicates ? comm_ : ready_;
    batch.undo([&queue](Op* op) { queue.push_front(op); });
    if (worker.communicates) end_communication(worker);
  }
  batch.size = 0;
  --running_;
}

size_t EngineImpl::take_for(Waiter& waiter, Worker& worker) {
  if (waiter.var == nullptr) return take(worker);
  if (paused_ > 0) return 0;
  if (streams_busy_) poll_devices();  // releases the lock meanwhile
  if (ready_.empty() && comm_.empty()) {
    drain(kDrainLimit);
    if (ready_.empty() && running_ > 0) scavenge();
  }
  if (waiter.finished || paused_ > 0) return 0;
  Batch& batch = worker.batch;
  worker.lane = nullptr;
  const bool full = computing() >= threads_;
  Op* op = nullptr;
  if (!full || may_run_beside(waiter)) {
    mark_ancestors(waiter.var);
    const auto on_the_way = [this](Op* candidate) { return is_marked(candidate); };
    // Running operations that are unrelated to this wait do not count against the number of threads, because
    // the wait would be delayed by them.
    const bool may_compute = !full || related_running() < threads_;
    if (may_compute) op = ready_.pop_if(kReadyLimit, on_the_way);
    if (op == nullptr && communicating_ < threads_) {
      op = comm_.pop_if(kReadyLimit, on_the_way);
      if (op != nullptr) {
        batch.ops[0] = op;
        start_communication(worker);
        return 1;
      }
    }
    if (op == nullptr && may_compute && running_ > 0) {
      // An operation on the way may be behind a long operation in a worker's batch.
      scavenge();
      if (waiter.finished) return 0;
      op = ready_.pop_if(kReadyLimit, on_the_way);
    }
  }
  // If there is none, issue an operation of a device, even one that is not on the way: issuing is short.
  if (op != nullptr) {
    batch.ops[0] = op;
  } else if (!take_device_op(worker)) {
    return 0;
  }
  start_batch(batch, 1);
  return 1;
}

// Precondition: as many operations run as there are threads. Returns true if the waiter may search for a
// ready operation on its way. Returns false while operations end at a good pace, because a worker will soon
// take that operation, and if the last search was a short time ago, because the walk is not free.
bool EngineImpl::may_run_beside(Waiter& waiter) {
  const uint64_t now = ticks();
  const bool moving =
      waiter.seen_ended != ended_count_ && policy_.body_ticks() < static_cast<int64_t>(stuck_ticks_);
  if (waiter.seen_ticks == 0 || moving) {
    waiter.seen_ended = ended_count_;
    waiter.seen_ticks = now;
    return false;
  }
  if (now - waiter.seen_ticks < stuck_ticks_) return false;
  waiter.seen_ticks = now;
  return true;
}

// Returns true if the wait depends on this operation, which is ready or runs. Precondition: mark_ancestors().
bool EngineImpl::is_marked(Op* op) {
  if (flags_of(op) & kOpNode) return node_of(op).group->touches_marked(walk_);
  bool found = false;
  for_each_link(op, [&](Link& link) { found |= link.var()->mark == walk_; });
  return found;
}

// Returns how many running operations the wait depends on. Precondition: mark_ancestors(). An operation that
// has left its batch is not known here and does not count.
int EngineImpl::related_running() {
  int related = 0;
  for (Worker* worker = workers_; worker != nullptr; worker = worker->next) {
    if (!worker->in_use || worker->batch.size == 0 || worker->communicates) continue;
    Op* const op = worker->batch.current();
    related += op != nullptr && is_marked(op);
  }
  return related;
}

// Walks backwards from the queue of `var` through the operations that it depends on, and marks the variables
// that these operations wait for. Visits about kWalkLimit links at most.
void EngineImpl::mark_ancestors(VarBlock* var) {
  ++walk_;
  struct Place {
    VarBlock* var;
    const Link* until;  // only links before this one in the queue are ancestors
  };
  Place stack[64];
  int depth = 0;
  int budget = kWalkLimit;
  const auto visit = [&](VarBlock* next, const Link* until) {
    if (next->mark == walk_ || depth == 64) return;
    next->mark = walk_;
    stack[depth++] = {next, until};
  };
  const auto expand = [&](Op* op) {
    if (!waits_for_more_than(op, 0)) return;
    for_each_link(op, [&](Link& link) {
      --budget;
      if (!link.granted()) visit(link.var(), &link);
    });
  };
  visit(var, nullptr);
  while (depth > 0 && budget > 0) {
    const Place place = stack[--depth];
    if (place.var->flags & (kVarKept | kVarLost)) {
      // Visits all replays of the segment, although some may not be on the way.
      visit(place.var->holder->hold->own, nullptr);
    } else if (place.var->writing()) {
      expand(op_of(place.var->holder));
    }
    for (Link* link = place.var->head; link != nullptr && link != place.until && budget > 0;
         link = link->next) {
      --budget;
      expand(op_of(link));
    }
  }
}

// Called after a change of the state: calls a worker if there is work that no worker looks for.
void EngineImpl::rouse() {
  if (inline_mode_) return;
  if (ready_hint_.load(std::memory_order_relaxed) > 0 || ring_.maybe_nonempty()) wake_after_submit();
  if (lanes_wait()) [[unlikely]]
    call_beyond_limit();
}

}  // namespace mx::detail
