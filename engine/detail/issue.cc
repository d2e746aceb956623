// Operations of accelerators. They are planned under the lock and enqueued outside it, by one issuer per
// device at a time, so that each stream gets its operations in the order of its clock.
#include "engine/base/clock.h"
#include "engine/base/thread_kept.h"
#include "engine/detail/engine_inl.h"
#include "engine/detail/segment_group.h"

namespace mx::detail {

size_t EngineImpl::take_device_op(Worker& worker) {
  Lane* const lane = lanes_.begin_issue();
  if (lane == nullptr) return 0;
  worker.lane = lane;
  worker.batch.ops[0] = fuzz_ ? lane->ready.pop_nth(random_() % lane->ready.size()) : lane->ready.pop();
  return 1;
}

// Creates streams_ if there is none yet. It then stays until the engine ends.
void EngineImpl::make_streams() {
  auto streams = std::make_unique<StreamOrder>(*this, options_.compute_streams);  // allocated before the lock
  lock_.lock();
  if (streams_ == nullptr) streams_.swap(streams);
  unlock();
}

// Called under the lock; releases it while it queries the devices.
void EngineImpl::poll_devices() {
  if (streams_ == nullptr) return;
  if (streams_->begin_poll()) {
    do {
      unlock();
      streams_->query();
      lock_.lock();
    } while (streams_->continue_poll());
  }
  last_poll_.store(ticks(), std::memory_order_relaxed);
  streams_busy_ = streams_->outstanding();
  streams_outstanding_.store(streams_busy_, std::memory_order_relaxed);
}

// Gives the operation a place on a stream. Returns false if the operation is to be skipped, or if it cannot
// be planned; in the latter case sets `failure`. Called without the lock: objects that only the device can
// make are requested while the lock is not held.
bool EngineImpl::plan(Op* op, const Lane& lane, StreamOrder::Issue& issue, Failure*& failure) {
  const bool node = (op->flags & kOpNode) != 0;
  std::exception_ptr error;
  try {
    StreamOrder::throw_if_lost(lane.context);
  } catch (...) {
    error = std::current_exception();
  }
  bool planned = false;
  for (;;) {
    auto missing = StreamOrder::Missing::nothing;
    lock_.lock();
    // A device may have failed after the operation was granted the variables that it reads.
    if (deps_.cause_of(op) != nullptr || (node && node_of(op).group->stopped())) op->flags |= kOpSkip;
    const bool skip = (op->flags & (kOpSkip | kOpCancelled)) != 0;
    if (!skip && error == nullptr) {
      try {
        missing = streams_->try_plan(op, lane.context, lane.kind, issue);
        planned = missing == StreamOrder::Missing::nothing;
      } catch (const std::bad_alloc&) {
        error = std::current_exception();
      }
    }
    if (planned) {
      streams_busy_ = special_ = true;
      if (!streams_outstanding_.load(std::memory_order_relaxed))
        streams_outstanding_.store(true, std::memory_order_relaxed);
      if (op->type->async || node) {
        // retired() counts an end on the device that has not been added yet. An asynchronous operation ends a
        // second time, by its token; a node of a replay was not added when its replay was pushed.
        epochs_.add(op->epoch);
        --ended_count_;
      }
    }
    unlock();
    if (!skip && error != nullptr) failure = failure_of(error, op->cold().name, op->cold().where);
    if (missing == StreamOrder::Missing::nothing) return planned;
    try {
      streams_->supply(missing, lane.context, lane.kind, issue);
    } catch (...) {
      error = std::current_exception();
    }
  }
}

void EngineImpl::issue(Worker& worker, Op*& slot) {
  Op* op = slot;
  Batch::leave(slot);
  Lane& lane = *worker.lane;
  const bool async = op->type->async;
  const bool node = (op->flags & kOpNode) != 0;
  struct Tag;
  StreamOrder::Issue& issue = thread_kept<StreamOrder::Issue, Tag>();
  issue.stream = nullptr;
  issue.waits.clear();
  issue.event = nullptr;
  issue.begin_error = nullptr;
  issue.issued_ns = 0;
  Failure* failure = nullptr;
  const bool planned = plan(op, lane, issue, failure);

  if (planned) {
    StreamOrder::begin(issue);
    if (issue.begin_error != nullptr) {
      failure = failure_of(issue.begin_error, op->cold().name, op->cold().where);
    } else {
      current_task.operation = op;
      current_task.engine = this;
      if (instrumented_.load(std::memory_order_relaxed)) {
        worker.running_since.store(now_ns(), std::memory_order_relaxed);
        worker.running.store(op, std::memory_order_release);
      }
      const int64_t begin_ns = profiler_.tracing() ? now_ns() : 0;
      RunContext context;
      context.op_ = op;
      context.stream_ = issue.stream;
      context.context_ = lane.context;
      context.check_ = check_mode_;
      if (async) start_token(op);
      try {
        const ToolRange range(ranges_, op->cold().name);
        Completion completion = async ? Completion(this, op) : Completion();
        op->type->run(op->closure(), context, &completion);
      } catch (...) {
        failure = failure_of_current_exception(op->cold().name, op->cold().where);
      }
      if (begin_ns != 0) {
        profiler_.ran(
            op, [&] { return to_string(lane.context) + " issue"; }, begin_ns, now_ns(),
            failure ? "failed" : "issued");
        const MemoryStats memory = issue.stream->device().memory_stats();
        profiler_.memory(lane.context, now_ns(), memory.in_use_bytes, memory.reserved_bytes);
        issue.issued_ns = begin_ns;
      }
      worker.running.store(nullptr, std::memory_order_release);
      current_task.operation = nullptr;
    }
    StreamOrder::end(issue);
  }
  const bool ends_by_token = async && planned && issue.begin_error == nullptr;
  // The function's destructor may push. Its pushes count as made inside the operation.
  current_task.operation = op;
  current_task.engine = this;
  destroy_function(op);
  current_task.operation = nullptr;
  if (failure != nullptr) {
    op->failure() = failure;
    mark_failed(op);
  } else if (!planned) {
    describe_unstarted(op);
  }

  lock_.lock();
  lanes_.end_issue(lane);
  if (planned) {
    streams_->issued(op, issue, failure);
    op->flags &= static_cast<uint8_t>(~kOpHasBytes);  // retired() subtracts its bytes
    if (node && failure != nullptr) node_failed(node_of(op).group->replay(), failure, false);
    if (async && !node && !ends_by_token) {
      epoch_done(op->epoch);
      ++ended_count_;
    }
  }
  if (!planned || (node && !ends_by_token)) {
    complete(op);
  } else if (!ends_by_token) {
    // Only releases the operations that depend on this one. It ends on the device, and retired() counts that.
    finish_op(op, failure != nullptr ? Outcome::failed : Outcome::done, failure, false);
    if (failure != nullptr) failure->release_later();
  }
  if (internal_ != nullptr) settle_internal();
  unlock();
  issue.begin_error = nullptr;
  if (ends_by_token) function_returned(op);
  if (inline_mode_ && planned) {
    // A random schedule is repeatable only if it does not depend on the speed of the devices. So wait until
    // their work has ended.
    lock_.lock();
    while (streams_->outstanding()) {
      poll_devices();
      unlock();
      sched_yield();
      lock_.lock();
    }
    unlock();
  }
}

}  // namespace mx::detail
