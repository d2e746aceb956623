// The part of the engine that runs under its lock: moves operations from the ring into the queues of the
// variables, and completes them.
#include <algorithm>

#include "engine/detail/engine_inl.h"
#include "engine/detail/segment_group.h"
#include "engine/detail/segment_run.h"

namespace mx::detail {

void EngineImpl::drain(size_t limit) {
  Op* ops[kDrainLimit];
  const size_t n = ring_.pop(ops, std::min(limit, kDrainLimit));
  if (n == 0) return;
  if (closed_at_ != UINT64_MAX) [[unlikely]] {
    // Their pushers refuse them, and may have freed them already.
    refused_ops_ += n;
    ended_count_ += n;
    return;
  }
  // The operations' cache lines come from another core, and serial cache misses would cost more than all the
  // other work here. pop() has prefetched the first line of each operation. Prefetch the variables and the
  // second lines before any of them is used.
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < ops[i]->links && k < 2; ++k) __builtin_prefetch(ops[i]->link(k).var(), 1);
    if (ops[i]->links > 2) __builtin_prefetch(reinterpret_cast<char*>(ops[i]) + 64, 1);
  }
  const bool tracking = profiler_.tracking();
  const uint16_t epoch = epochs_.open();
  epochs_.add(epoch, static_cast<uint32_t>(n));  // all at once: none can end before the last is linked
  for (size_t i = 0; i < n; ++i) {
    Op* op = ops[i];
    op->epoch = epoch;
    if (tracking) [[unlikely]]
      op->type == &kReplayGroupType ? SegmentGroup::linked(profiler_, op) : profiler_.linked(op);
    if (!op->ordinary()) [[unlikely]] {
      if (hurries(op)) {
        hurried_.fetch_sub(1, std::memory_order_relaxed);
        attention_.fetch_sub(1, std::memory_order_relaxed);
      }
      // Handles to the variable are stale from this point of the program order on.
      if (op->type == &kDeleteType) ++op->link(0).var()->generation;
    }
    deps_.link(op);
  }
  if (internal_ != nullptr) [[unlikely]]
    settle_internal();
}

// A deletion may overtake a push that has already checked its handles. By now the memory of the deleted
// variable may belong to another variable. So the operation is not queued there, and fails.
void EngineImpl::deleted_before(Op* op, Link& link) {
  link.set(&nowhere_, Access::read);
  if (op->device != kInternalLane) mark_stale(op);
}

void EngineImpl::release_extras(Op* op) {
  for_each_ext_block(op, [this](Op* block) { release_op(block); });
  profiler_.released(op);
}

void EngineImpl::complete_unusual(Op* op) {
  if (op->flags & kOpNode) return end_node(op);
  if (op->flags & kOpHasBytes) {
    run_ahead_.bytes_ended(bytes_of(op));
    special_ = true;  // so that the next unlock() publishes the bytes
  }
  if (op->flags & kOpFailed) {
    Failure* failure = op->failure();
    ++failed_ops_;
    count_error(failure);
    finish_op(op, is_stale(op) ? Outcome::skipped : Outcome::failed, failure);
    failure->release_later();
  } else if (op->flags & kOpCancelled) {
    Failure* failure = op->failure();                          // made by the thread that found it cancelled
    failure->observed.store(true, std::memory_order_relaxed);  // shutdown() need not log it
    ++skipped_ops_;
    count_error(failure);
    finish_op(op, Outcome::skipped, failure);
    failure->release_later();
  } else if (op->flags & kOpSkip) {
    ++skipped_ops_;
    Failure* cause = deps_.cause_of(op);
    cause->retain();
    finish_op(op, Outcome::skipped, cause);
    cause->release_later();
  } else {
    finish_op(op, Outcome::done, nullptr);
  }
}

void EngineImpl::drain_to(uint64_t tail) {
  while (static_cast<int64_t>(tail - ring_.head()) > 0) drain(kDrainLimit);
}

void EngineImpl::ready_special(Op* op, bool released) {
  if (op->flags & kOpTaken) return;  // it is in a worker's batch, which runs it next
  if (op->device == kInternalLane) {
    op->next() = internal_;
    internal_ = op;
    return;
  }
  special_ = true;
  if (op->device == 0) {
    if (streams_busy_ && !streams_->host_may_start(op)) return;
    released ? ready_.push_released(op) : ready_.push(op);
    return;
  }
  if (lanes_[op->device].accelerator) {
    lanes_.push(op, released);
  } else {
    if (streams_busy_ && !streams_->host_may_start(op)) return;
    comm_.push(op);
  }
}

void EngineImpl::host_may_start(Op* op) { (op->device == 0 ? ready_ : comm_).push(op); }

void EngineImpl::count_error(Failure* failure) {
  ++failures_;
  if (first_failure_ == nullptr) {
    failure->retain();
    first_failure_ = failure;
  }
  if (unobserved_.size() < unobserved_.capacity()) {  // reserved: nothing is allocated under the lock
    failure->retain();
    unobserved_.push_back(failure);
  }
}

void EngineImpl::check_epoch_waiters() {
  for (Waiter* waiter = epoch_waiters_; waiter != nullptr;) {
    Waiter* next = waiter->next;
    if (epochs_.over(waiter->end)) finish_waiter(*waiter);
    waiter = next;
  }
}

void EngineImpl::written(VarBlock* var) {
  for (Waiter* waiter = var_waiters_; waiter != nullptr;) {
    Waiter* next = waiter->next;
    if (waiter->var == var && !waiter->written &&
        static_cast<int32_t>(var->writes_done - waiter->target) >= 0) {
      version_made(*waiter);
    }
    waiter = next;
  }
}

void EngineImpl::maybe_landed(VarBlock* var, StreamPoint point, Failure* failure) {
  for (Waiter* waiter = var_waiters_; waiter != nullptr;) {
    Waiter* next = waiter->next;
    if (waiter->var == var && waiter->written) {
      if (waiter->landing == point) {
        if (failure != nullptr && (waiter->failure == nullptr || waiter->recoverable)) {
          failure->retain();
          if (waiter->failure != nullptr) waiter->failure->release_later();
          waiter->failure = failure;
        }
        finish_waiter(*waiter);
      } else if (streams_->landed(var, waiter->target)) {
        finish_waiter(*waiter);
      }
    }
    waiter = next;
  }
}

void EngineImpl::retired(uint16_t epoch, uint64_t bytes, Failure* failure, bool inherited) {
  run_ahead_.bytes_ended(bytes);
  ++ended_count_;
  if (failure != nullptr) {
    if (inherited) {
      ++skipped_ops_;
    } else {
      ++failed_ops_;
      count_error(failure);
    }
  }
  epoch_done(epoch);
}

void EngineImpl::ended_on_device(const char* name, Context context, StreamId stream, int64_t begin_ns,
                                 int64_t end_ns) {
  try {
    profiler_.span(concat(to_string(context), " stream ", stream), name, begin_ns, end_ns, "device");
  } catch (const std::bad_alloc&) {  // missing from the trace, as Profiler says
  }
}

void EngineImpl::settle_internal() {
  while (internal_ != nullptr) {
    Op* op = internal_;
    internal_ = op->next();
    if (op->type == &kReplayGroupType) {
      start_replay(op);
      continue;
    }
    VarBlock* var = op->link(0).var();
    const bool deletes = op->type == &kDeleteType;
    if (!deletes && (var->flags & kVarRecoverable)) deps_.set_failure(var, nullptr, false);
    finish_op(op, Outcome::done, nullptr);
    if (deletes) {
      var->flags |= kVarDeleted;
      give_deleted_var(var);
    }
  }
}

// Returns a deleted variable to the pool if no segment pins it and no thread waits for it. Called again when
// the last pin is removed and when the last such thread has finished.
void EngineImpl::give_deleted_var(VarBlock* var) {
  if ((var->flags & (kVarDeleted | kVarWatched | kVarPinned)) == kVarDeleted) give_var(var);
}

void EngineImpl::give_var(VarBlock* var) {
  deps_.set_failure(var, nullptr, false);
  if (var->marks != nullptr) streams_->forget(var);
  var->flags = 0;
  var_pool_.end_life();
  VarPool::next_dead(var) = after_.vars;
  after_.vars = var;
}

void EngineImpl::pin(const std::vector<Link>& vars) {
  lock_.lock();
  const bool live = std::all_of(vars.begin(), vars.end(), [](const Link& link) {
    return link.generation == Link::kAnyGeneration || link.generation == link.var()->generation;
  });
  if (live) {
    for (const Link& link : vars) {
      if (VarPool::pins_of(link.var())++ == 0) link.var()->flags |= kVarPinned;
    }
  }
  unlock();
  MX_CHECK(live, InvalidHandle, "[record] expected live variables, got one that another thread has deleted");
}

void EngineImpl::unpin(const std::vector<Link>& vars) {
  lock_.lock();
  unpin_locked(vars);
  unlock();
}

void EngineImpl::unpin_locked(const std::vector<Link>& vars) {
  for (const Link& link : vars) {
    if (--VarPool::pins_of(link.var()) > 0) continue;
    link.var()->flags &= static_cast<uint8_t>(~kVarPinned);
    give_deleted_var(link.var());
  }
}

// Rare states: a pause, devices and other lanes, priorities, replays, bytes. All of them are checked behind
// the one flag `special_`, so that the common path pays for a single branch. Cleared here as soon as none
// applies.
void EngineImpl::publish_special() {
  // A device that is being issued for has its worker already.
  size_t hint = lanes_.issuable();
  if (computing() < threads_) {
    hint += ready_.size();
    for (const SegmentRun* run = shared_runs_; run != nullptr; run = run->next_shared_)
      hint += run->wants_company();
  }
  if (communicating_ < threads_) hint += comm_.size();
  ready_hint_.store(paused_ > 0 ? 0 : static_cast<uint32_t>(hint), std::memory_order_relaxed);
  run_ahead_.publish_bytes();
  if (ready_.urgent() != urgent_shown_) {
    urgent_shown_ = !urgent_shown_;
    attention_.fetch_add(urgent_shown_ ? 1u : ~0u, std::memory_order_relaxed);
  }
  special_ = fuzz_ || paused_ > 0 || streams_busy_ || lanes_.ready() > 0 || !comm_.empty() ||
             communicating_ > 0 || shared_runs_ != nullptr || ready_.has_priorities() || urgent_shown_;
}

void EngineImpl::cancel() {
  check_usable("cancel");
  // Operations on variables of slabs that are made later are pushed after this call, and are not cancelled.
  const auto slabs = var_pool_.slabs();
  lock_.lock();
  drain_to(ring_.tail());
  scavenge(true);
  const auto mark = [](Op* op) {
    if (op->device == kInternalLane && op->type != &kReplayGroupType) return;
    if (!op->type->always) op->flags |= kOpCancelled;
  };
  SegmentGroup::cancel_all(groups_);
  ready_.for_each(mark);
  comm_.for_each(mark);
  lanes_.for_each_ready(mark);
  if (streams_) streams_->for_each_parked(mark);
  VarPool::for_each(slabs, [&](VarBlock& var) {
    for (Link* link = var.head; link != nullptr; link = link->next) mark(op_of(link));
  });
  unlock();
}

}  // namespace mx::detail
