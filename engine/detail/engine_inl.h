// The hot path of the engine: the code that runs for every operation under the lock. Internal; included by
// the files that run it, so that it is inlined there.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include "engine/detail/engine_impl.h"

namespace mx::detail {

inline void EngineImpl::epoch_done(uint16_t epoch) {
  if (epochs_.remove(epoch)) [[unlikely]]
    check_epoch_waiters();
}

inline void EngineImpl::release_op(Op* op) {
  op->next() = free_ops_;
  free_ops_ = op;
  if (++free_count_ == OpPool::kChain) {
    OpPool::next_chain(op) = after_.chains;
    after_.chains = op;
    free_ops_ = nullptr;
    free_count_ = 0;
  }
}

inline void EngineImpl::finish_op(Op* op, Outcome outcome, Failure* failure, bool release_epoch) {
  deps_.complete(op, outcome, failure);
  if ((op->flags & kOpWide) || profiler_.tracking()) [[unlikely]]
    release_extras(op);
  if (release_epoch) [[likely]] {
    ++ended_count_;
    epoch_done(op->epoch);
  }
  release_op(op);
}

inline void EngineImpl::complete(Op* op) {
  if ((op->flags & (kOpSkip | kOpFailed | kOpCancelled | kOpHasBytes | kOpNode)) == 0) [[likely]] {
    finish_op(op, Outcome::done, nullptr);
  } else {
    complete_unusual(op);
  }
}

inline void EngineImpl::unlock() {
  // Publish what other threads read without the lock.
  const bool full = computing() >= threads_;
  if (full_hint_.load(std::memory_order_relaxed) != full) full_hint_.store(full, std::memory_order_relaxed);
  if (special_) [[unlikely]] {
    publish_special();
  } else {
    const uint32_t hint = full ? 0 : static_cast<uint32_t>(ready_.size());
    if (ready_hint_.load(std::memory_order_relaxed) != hint)
      ready_hint_.store(hint, std::memory_order_relaxed);
  }
  run_ahead_.publish_ended(ended_count_);
  if (after_.any() || Failure::dead != nullptr) [[unlikely]]
    return unlock_and_finish();
  lock_.unlock();
  run_ahead_.wake_if_due();
}

inline void EngineImpl::start_batch(Batch& batch, size_t size) {
  ++running_;
  batch.start(size);
}

inline void EngineImpl::start_communication(Worker& worker) {
  start_batch(worker.batch, 1);
  ++communicating_;
  worker.communicates = true;
}

inline void EngineImpl::end_communication(Worker& worker) {
  --communicating_;
  worker.communicates = false;
}

inline void EngineImpl::finish_batch(Worker& worker) {
  if (worker.batch.size == 0) return;
  if (worker.communicates) [[unlikely]]
    end_communication(worker);
  worker.batch.finish([this](Op* op) { ready_.push_front(op); }, [this](Op* op) { complete(op); });
  --running_;
  if (internal_ != nullptr) [[unlikely]]
    settle_internal();
}

}  // namespace mx::detail
