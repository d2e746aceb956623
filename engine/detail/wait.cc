// Waiting, and the work a waiter does on the way.
//
// A waiter sleeps only when there is nothing it can do: a thread that sleeps costs some 20 us to wake. It
// runs ready operations that what it waits for depends on, never others, so that unrelated long work cannot
// delay it. For wait_all() everything is on the way.
#include <algorithm>
#include <optional>

#include "engine/base/clock.h"
#include "engine/base/cpus.h"
#include "engine/base/shared_loop.h"
#include "engine/detail/engine_inl.h"
#include "engine/detail/hold.h"
#include "engine/detail/segment_group.h"
#include "engine/detail/segment_impl.h"

namespace mx::detail {

namespace {

// How far a waiter looks for operations on its way: links seen, and ready operations tried.
constexpr int kWalkLimit = 512;
constexpr size_t kReadyLimit = 64;

}  // namespace

void EngineImpl::refuse_inside_operation(const char* call) const {
  if (!inside_operation() && tls.recording == nullptr) [[likely]]
    return;
  MX_CHECK(tls.recording == nullptr || tls.recording_engine != this, InvalidState, "[", call,
           "] expected to be called outside of record(), got a call while recording: nothing recorded runs "
           "before the segment is replayed");
  if (!inside_operation()) return;
  Op* op = tls.segment != nullptr ? tls.segment->operation(tls.node) : tls.running;
  throw InvalidState(concat("[", call, "] expected to be called outside of operations, got a call inside '",
                            name_or_default(op->cold().name), "' (pushed at ", place(op->cold().where),
                            "): it could wait for itself; use push_async to go on when something is done"));
}

bool EngineImpl::wait(Var v, int64_t timeout_ms) {
  refuse_inside_operation("wait");
  if (forked()) check_usable("wait");
  check_var(v, "wait");
  flush_bulk();
  VarBlock* var = v.block;
  Waiter waiter;
  waiter.var = var;
  lock_.lock();
  drain_to(ring_.tail());
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

// wait_all() without a word about errors.
bool EngineImpl::drain_all(int64_t timeout_ms) {
  Waiter waiter;
  lock_.lock();
  drain_to(ring_.tail());
  waiter.epoch = epoch_;
  // What comes later belongs to a new epoch, unless 255 are open: then this call waits for more than it must.
  if (epoch_count_[epoch_ & 255] != 0 && epoch_ + 1 - oldest_epoch_ < 255) ++epoch_;
  waiter.next = epoch_waiters_;
  epoch_waiters_ = &waiter;
  check_epoch_waiters();
  const bool in_time = waiter.finished || block(waiter, timeout_ms);
  if (!in_time) remove_waiter(waiter);
  unlock();
  rouse();
  return in_time;
}

bool EngineImpl::wait_all(int64_t timeout_ms) {
  refuse_inside_operation("wait_all");
  if (forked()) check_usable("wait_all");
  flush_bulk();
  if (!drain_all(timeout_ms)) return false;
  lock_.lock();
  Failure* first = std::exchange(first_failure_, nullptr);
  const uint64_t count = std::exchange(failures_, 0);
  for (Failure* failure : unobserved_) failure->release();
  unobserved_.clear();
  unlock();
  if (first != nullptr) {
    first->observed.store(true, std::memory_order_relaxed);
    std::exception_ptr error = first->error;
    first->release();
    if (count > 1)
      error = with_note(error, concat("; and ", count - 1, " more failed since the last wait_all"));
    std::rethrow_exception(error);
  }
  return true;
}

// The version that the waiter waits for is what the variable holds now: later ones do not concern it. What a
// device still does for it may fail; then maybe_landed() tells.
void EngineImpl::version_made(Waiter& waiter) {
  VarBlock* var = waiter.var;
  waiter.written = true;
  waiter.failure = var->failure;
  waiter.recoverable = (var->flags & kVarRecoverable) != 0;
  if (waiter.failure != nullptr) waiter.failure->retain();
  if (!streams_in_use_ || streams_->landed(var, waiter.target)) {
    finish_waiter(waiter);
  } else {
    waiter.landing = var->marks->write;
  }
}

void EngineImpl::finish_waiter(Waiter& waiter) {
  if (waiter.finished) return;
  waiter.finished = true;
  remove_waiter(waiter);
  if (waiter.word.exchange(2, std::memory_order_acq_rel) == 1) futex_wake(waiter.word);
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

// Called and left with the lock held; false when the time is over.
bool EngineImpl::block(Waiter& waiter, int64_t timeout_ms) {
  const int64_t deadline = timeout_ms < 0 ? INT64_MAX : now_ns() + timeout_ms * 1'000'000;
  // In the inline modes run_inline() has one. Without memory for one, this thread waits and does not help.
  Worker* const worker = inline_mode_ ? nullptr : borrow_worker();
  add_waiting(1);
  uint64_t idle_since = 0;
  uint64_t seen_ended = ended_count_;
  bool flowing = false;
  using Look = SharedLoop::Look;
  Look look;
  while (!waiter.finished) {
    size_t size = 0;
    if (inline_mode_) {
      unlock();
      run_inline(true, true);
      lock_.lock();
      if (streams_in_use_) poll_devices();
    } else if (!flowing && worker != nullptr) {
      size = take_for(waiter, *worker);
    } else if (streams_in_use_) {
      poll_devices();
    }
    if (waiter.finished) {
      if (size > 0) give_back(*worker);  // the look for work has found the end of the wait as well
      break;
    }
    const bool on_the_way = timeout_ms < 0 && is_on_the_way(waiter);
    unlock();
    if (size > 0) {
      rouse();
      run_batch(*worker, size);
      idle_since = 0;
      lock_.lock();
      finish_batch(*worker);
      continue;
    }
    // Nothing to do here. Look on for a while, then sleep.
    const uint64_t now = ticks();
    if (idle_since == 0) idle_since = now;
    const bool patient = single_ || static_cast<double>(now - idle_since) > ticks_per_us() * options_.spin_us;
    const bool timed = timeout_ms >= 0;
    if (timed && now_ns() >= deadline) {
      lock_.lock();
      if (waiter.finished) break;
      add_waiting(-1);
      if (worker != nullptr) return_worker(*worker);
      return false;
    }
    if (patient && !flowing) {
      look.set(Look::nothing);
      if (single_ && !inline_mode_ &&
          (ready_hint_.load(std::memory_order_relaxed) > 0 || ring_.maybe_nonempty())) {
        start_worker();  // this thread leaves the processor
      } else {
        rouse();
      }
      uint32_t expected = 0;
      if (waiter.word.compare_exchange_strong(expected, 1, std::memory_order_acq_rel)) {
        // With devices at work a waiter comes back to look at them, should no worker do so.
        // Without workers, what another thread's completion has made ready is the waiter's to run.
        const int64_t limit = timed          ? std::max<int64_t>(0, deadline - now_ns())
                              : inline_mode_ ? 1'000'000
                                             : -1;
        futex_wait(waiter.word, 1, limit);
        expected = 1;
        waiter.word.compare_exchange_strong(expected, 0, std::memory_order_acq_rel);
      }
      idle_since = 0;
    } else {
      const auto finished = [&] { return waiter.word.load(std::memory_order_relaxed) == 2; };
      // Loops whose pieces are long may be those of an operation that has nothing to do with this wait, and
      // one piece may take longer than there is time.
      if (!single_ && !inline_mode_) look.set(on_the_way ? Look::all : Look::brief);
      for (int i = 0; i < 64 && !finished(); ++i) {
        if (look.at() != Look::nothing && SharedLoop::offered() && SharedLoop::help(look.at(), finished))
          idle_since = 0;
        cpu_relax();
      }
      sched_yield();
    }
    // While others bring operations to their end at a good pace, staying away from the lock and the lines
    // it guards is the best help.
    const uint64_t ended = ended_.load(std::memory_order_relaxed);
    flowing = !inline_mode_ && !single_ && ended != seen_ended &&
              active_.load(std::memory_order_relaxed) > 0 &&
              body_ticks_.load(std::memory_order_relaxed) < 1000;
    seen_ended = ended;
    if (flowing && waiter.word.load(std::memory_order_acquire) != 2) {
      idle_since = 0;
    }
    lock_.lock();
  }
  add_waiting(-1);
  if (worker != nullptr) return_worker(*worker);
  return true;
}

// Must what runs now end before this wait can? Nothing else is going on: then it is what it waits for.
bool EngineImpl::is_on_the_way(const Waiter& waiter) const {
  return waiter.var == nullptr ||
         (running_ == 1 && ready_.empty() && comm_.empty() && paused_ == 0 && !streams_in_use_);
}

// Undoes a take(): nothing of the batch has begun.
void EngineImpl::give_back(Worker& worker) {
  Batch& batch = worker.batch;
  if (worker.lane != nullptr) {
    worker.lane->ready.push_front(batch.ops[0]);
    ++device_ready_;
    issuing_[static_cast<size_t>(worker.lane->issuer)] = 0;
    worker.lane = nullptr;
  } else if (worker.run != nullptr) {
    worker.run = nullptr;  // (not the last reference: shared_runs_ has one)
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
  if (streams_in_use_) poll_devices();
  if (ready_.empty() && comm_.empty()) {
    drain(kDrainLimit);
    if (ready_.empty() && running_ > 0) scavenge();
  }
  if (waiter.finished || computing() >= threads_) return 0;
  mark_ancestors(waiter.var);
  const auto on_the_way = [&](Op* op) {
    if (op->flags & kOpNode) return node_of(op).group->touches_marked(walk_);
    bool found = false;
    for_each_link(op, [&](Link& link) { found |= link.var()->mark == walk_; });
    return found;
  };
  Op* op = ready_.pop_if(kReadyLimit, on_the_way);
  if (op == nullptr && communicating_ < threads_) {
    op = comm_.pop_if(kReadyLimit, on_the_way);
    if (op != nullptr) {
      worker.lane = nullptr;
      worker.batch.ops[0] = op;
      start_communication(worker);
      return 1;
    }
  }
  if (op == nullptr && running_ > 0) {
    // What it waits for may be hidden behind a long operation in somebody's batch.
    scavenge();
    if (waiter.finished) return 0;
    op = ready_.pop_if(kReadyLimit, on_the_way);
  }
  Batch& batch = worker.batch;
  worker.lane = nullptr;
  if (op != nullptr) {
    batch.ops[0] = op;
  } else if (device_ready_ == 0 || !take_device_op(worker)) {
    return 0;  // (issuing is short: any operation of a device may be on the way)
  }
  start_batch(batch, 1);
  return 1;
}

// Marks the variables behind which something on the way to `var` waits, backwards from its queue.
void EngineImpl::mark_ancestors(VarBlock* var) {
  ++walk_;
  struct Place {
    VarBlock* var;
    const Link* until;  // only what stands before it in the queue is an ancestor
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
      visit(place.var->holder->hold->own, nullptr);  // (all its replays, some more than are on the way)
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

// After a change: if there is work that nobody looks for, somebody is called.
void EngineImpl::rouse() {
  if (inline_mode_) return;
  if (ready_hint_.load(std::memory_order_relaxed) > 0 || ring_.maybe_nonempty()) wake_after_submit();
}

}  // namespace mx::detail
