// Asynchronous operations, which end by a completion token.
//
// Such an operation ends when its function has returned and been destroyed and its token has been used. The
// two events may happen in either order and on different threads; the thread of the later one ends the
// operation. While the operation runs, `Op::pending` is free (0 once the operation is ready) and holds one
// bit for each event; `Op::next()` is free too and holds the token's failure.
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/detail/engine_inl.h"

namespace mx {
namespace detail {

namespace {

constexpr uint8_t kReturned = 1;
constexpr uint8_t kCompleted = 2;

std::atomic_ref<uint8_t> async_state(Op* op) { return std::atomic_ref<uint8_t>(op->pending); }

Failure*& token_failure(Op* op) { return op->link_a[0].token_failure; }

}  // namespace

void EngineImpl::run_async(Worker& worker, Op* op, int64_t begin_ns) {
  if (options_.watchdog_ms > 0) {
    const std::lock_guard guard(watch_mutex_);
    try {
      async_since_[op] = now_ns();
    } catch (const std::bad_alloc&) {
      // Without memory, the watchdog does not observe this operation.
    }
  }
  const uint32_t row = worker.row;
  start_token(op);
  RunContext context;
  context.op_ = op;
  context.check_ = check_mode_;
  Failure* thrown = nullptr;
  try {
    Completion completion(this, op);
    op->type->run(op->closure(), context, &completion);
  } catch (...) {
    thrown = failure_of_current_exception(op->cold().name, op->cold().where);
  }
  destroy_function(op);
  if (thrown != nullptr && (async_state(op).load(std::memory_order_acquire) & kCompleted) != 0 &&
      token_failure(op) == nullptr) {
    log(LogLevel::error,
        "ignored an exception that an operation threw after it had called its Completion: ", thrown->text);
    std::exchange(thrown, nullptr)->release();
  }
  if (thrown != nullptr) {
    op->failure() = thrown;
    mark_failed(op);
  }
  if (begin_ns != 0) {
    profiler_.ran(
        op, [&] { return concat("worker ", row); }, begin_ns, now_ns(),
        thrown != nullptr ? "failed" : "started");
  }
  function_returned(op);
}

void EngineImpl::start_token(Op* op) {
  token_failure(op) = nullptr;
  op->link_a[1].token_failure = nullptr;  // early_failure()
  run_ahead_.token_begins();
}

void EngineImpl::function_returned(Op* op) {
  if (async_state(op).fetch_or(kReturned, std::memory_order_acq_rel) & kCompleted) finish_async(op);
}

void EngineImpl::end_async(Op* op, Failure* failure) {
  // When the operation has ended, another thread may destroy the engine. ~EngineImpl waits for completers_ to
  // be 0, so that the engine lives until the end of this function.
  completers_.fetch_add(1, std::memory_order_relaxed);
  token_failure(op) = failure;
  if (async_state(op).fetch_or(kCompleted, std::memory_order_acq_rel) & kReturned) finish_async(op);
  completers_.fetch_sub(1, std::memory_order_release);
}

void EngineImpl::drop_async(Op* op) {
  Failure* failure = nullptr;
  try {
    throw OperationError(
        "expected the operation to call its Completion, but the Completion was destroyed without a call");
  } catch (...) {
    failure = failure_of_current_exception(op->cold().name, op->cold().where);
  }
  end_async(op, failure);
}

// If the function threw, its exception is the operation's failure and the token's failure is ignored: the
// throw itself usually drops the token.
void EngineImpl::finish_async(Op* op) {
  Failure* failure = token_failure(op);
  const bool thrown = (op->flags & kOpFailed) != 0;
  if (failure != nullptr) {
    if (thrown) {
      failure->release();
    } else {
      op->failure() = failure;
      mark_failed(op);
    }
  }
  async_state(op).store(0, std::memory_order_relaxed);
  if (options_.watchdog_ms > 0) {
    const std::lock_guard guard(watch_mutex_);
    async_since_.erase(op);
  }
  lock_.lock();
  run_ahead_.token_ends();
  Failure* early = streams_ ? streams_->take_early_failure(op) : nullptr;
  if (early != nullptr && (op->flags & kOpFailed) == 0) {
    finish_op(op, Outcome::failed, early);  // retired() has counted this failure
  } else if (thrown && (op->flags & kOpNode) == 0 && lanes_[op->device].accelerator) {
    Failure* own = op->failure();
    finish_op(op, Outcome::failed, own);  // retired() counts it with the enqueued work
    own->release_later();
  } else {
    complete(op);
  }
  if (early != nullptr) early->release_later();
  if (internal_ != nullptr) settle_internal();
  unlock();
  if (inline_mode_) {
    run_inline(options_.mode == EngineMode::naive, false);
  } else {
    rouse();
  }
}

}  // namespace detail

Completion& Completion::operator=(Completion&& other) noexcept {
  if (this == &other) return *this;
  if (op_ != nullptr) impl_->drop_async(op_);
  impl_ = other.impl_;
  op_ = std::exchange(other.op_, nullptr);
  return *this;
}

Completion::~Completion() {
  if (op_ != nullptr) impl_->drop_async(op_);
}

void Completion::fail(std::exception_ptr error) {
  finish(error != nullptr ? error
                          : std::make_exception_ptr(OperationError(
                                "expected a reason for the failure, got a null exception pointer")));
}

void Completion::finish(std::exception_ptr error) {
  MX_CHECK(
      op_ != nullptr, InvalidState,
      "[completion] expected a Completion that is used once, got one that was already used or moved from");
  detail::Op* op = std::exchange(op_, nullptr);
  impl_->end_async(op,
                   error == nullptr ? nullptr : detail::failure_of(error, op->cold().name, op->cold().where));
}

}  // namespace mx
