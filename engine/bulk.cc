#include "engine/bulk.h"

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/log.h"
#include "engine/base/make_room.h"
#include "engine/detail/bulk_impl.h"
#include "engine/detail/engine_impl.h"
#include "engine/detail/segment_impl.h"
#include "engine/engine.h"

namespace mx {
namespace detail {

// The function of the combined operation. The collected ones stay the operations that they were pushed as;
// what has run, or is never to run, goes back to the engine's pool.
class BulkFunction {
 public:
  BulkFunction(EngineImpl& engine, Op* head, size_t count) : engine_(&engine), head_(head), count_(count) {
    engine_->collected_.fetch_add(static_cast<int64_t>(count_), std::memory_order_relaxed);
  }
  BulkFunction(BulkFunction&& other) noexcept
      : engine_(other.engine_),
        head_(std::exchange(other.head_, nullptr)),
        done_(std::exchange(other.done_, nullptr)),
        count_(std::exchange(other.count_, 0)) {}
  ~BulkFunction() {
    while (head_ != nullptr) end_first();
    give_back();
    engine_->collected_.fetch_sub(static_cast<int64_t>(count_), std::memory_order_relaxed);
  }

  void operator()(RunContext context) {
    struct Restore {
      Op* outer = current_task.operation;
      ~Restore() { current_task.operation = outer; }
    } restore;
    while (head_ != nullptr) {
      current_task.operation = head_;
      context.op_ = head_;
      const int64_t begin_ns = engine_->profiler().tracing() ? now_ns() : 0;
      try {
        head_->type->run(head_->closure(), context, nullptr);
      } catch (...) {
        // With the name and the place of this one; the engine adds those of the whole.
        Failure* failure = failure_of_current_exception(head_->cold().name, head_->cold().where);
        const std::exception_ptr error = failure->error;
        failure->release();
        std::rethrow_exception(error);
      }
      if (begin_ns != 0) engine_->profiler().part(head_->cold().name, begin_ns, now_ns());
      end_first();
    }
    give_back();
  }

  /// The operations are somebody else's.
  void release() { head_ = nullptr; }

  static void construct(Op* op, void* function) {
    ::new (op->closure()) BulkFunction(std::move(*static_cast<BulkFunction*>(function)));
  }

 private:
  void end_first() noexcept {
    Op* op = head_;
    head_ = op->next();
    destroy_function(op);
    prepend_blocks(op, done_);
  }
  void give_back() noexcept {
    while (done_ != nullptr) {  // in chains of the usual length: a pusher takes whole ones
      Op* chain = done_;
      Op* last = chain;
      for (int i = 1; i < OpPool::kChain && last->next() != nullptr; ++i) last = last->next();
      done_ = std::exchange(last->next(), nullptr);
      engine_->give_ops(chain);
    }
  }

  EngineImpl* engine_;
  Op* head_;
  Op* done_ = nullptr;
  size_t count_;  // that count as in flight
};
static_assert(fits_inline<BulkFunction>);

void Bulk::begin(EngineImpl& engine, size_t max_ops) {
  engine_ = &engine;
  max_ops_ = max_ops;
  running_ = current_task.operation;
  segment_ = current_task.segment;
  outer_ = std::exchange(tls.bulk, this);
  outer_engine_ = std::exchange(current_task.recording_engine, &engine);
}

void Bulk::end() noexcept {
  flush();
  tls.bulk = outer_;
  current_task.recording_engine = outer_engine_;
}

bool Bulk::add(Op* op) {
  // Pushed by an operation that this thread runs on the way while it waits: none of this scope's business.
  if (current_task.operation != running_ || current_task.segment != segment_) return false;
  if (op->type == &kDeleteType) {
    // No later push can use the variable, so its end may come behind them.
    if (count_ == 0) return false;
    append(deleted_, op);
    if (++deletions_ == max_ops_) flush();
    return true;
  }
  if (op->device == kInternalLane || op->type->async) {
    flush();
    return false;
  }
  if (count_ > 0 && (op->device != ops_.head->device || op->priority != ops_.head->priority)) flush();
  if (!note_links(op)) {
    flush();
    return false;
  }
  append(ops_, op);
  bytes_ += bytes_of(op);
  if (++count_ == max_ops_) flush();
  return true;
}

void Bulk::append(List& list, Op* op) {
  op->next() = nullptr;
  (list.head == nullptr ? list.head : list.tail->next()) = op;
  list.tail = op;
}

// What the whole does to a variable: one whose old value matters is updated, one that is replaced first is
// written. False when there is no memory; then nothing has changed.
bool Bulk::note_links(Op* op) {
  try {
    size_t links = 0;
    for_each_link(op, [&](Link&) { ++links; });
    if (links_.capacity() - links_.size() < links) make_room(links_, links);
    if (slots_.capacity() - slots_.size() < links) make_room(slots_, links);
    if (2 * (links_.size() + links) > table_.size()) grow(4 * (links_.size() + links));
  } catch (const std::bad_alloc&) {
    return false;
  }
  for_each_link(op, [&](Link& link) {
    const size_t slot = slot_of(link.var());
    if (table_[slot] == 0) {
      links_.emplace_back().set(link.var(), link.access());
      links_.back().generation = link.generation;
      slots_.push_back(static_cast<uint32_t>(slot));
      table_[slot] = static_cast<uint32_t>(links_.size());
    } else if (Link& before = links_[table_[slot] - 1]; before.access() == Access::read && link.exclusive()) {
      before.set(link.var(), Access::update);
    }
  });
  return true;
}

// Where in the table the variable is or belongs.
size_t Bulk::slot_of(const VarBlock* var) const {
  const size_t mask = table_.size() - 1;
  size_t slot = (reinterpret_cast<uintptr_t>(var) / sizeof(VarBlock) * 0x9e3779b97f4a7c15) >> 32 & mask;
  while (table_[slot] != 0 && links_[table_[slot] - 1].var() != var) slot = (slot + 1) & mask;
  return slot;
}

void Bulk::grow(size_t wanted) {
  size_t size = 64;
  while (size < wanted) size *= 2;
  table_ = std::vector<uint32_t>(size);
  slots_.clear();
  for (const Link& link : links_) {
    const size_t slot = slot_of(link.var());
    slots_.push_back(static_cast<uint32_t>(slot));
    table_[slot] = static_cast<uint32_t>(slots_.size());
  }
}

void Bulk::flush() noexcept {
  if (count_ == 0) return;
  // First of all empty: what is submitted may run at once, on this thread.
  Op* ops = std::exchange(ops_, {}).head;
  Op* deleted = std::exchange(deleted_, {}).head;
  const size_t count = std::exchange(count_, 0);
  const uint64_t bytes = std::exchange(bytes_, 0);
  deletions_ = 0;
  EngineImpl* const collecting = std::exchange(current_task.recording_engine, nullptr);
  submit_all(ops, count, bytes);
  while (deleted != nullptr) {
    Op* op = std::exchange(deleted, deleted->next());
    engine_->end_push(op);
  }
  for (const uint32_t slot : slots_) table_[slot] = 0;
  slots_.clear();
  links_.clear();
  current_task.recording_engine = collecting;
}

void Bulk::submit_all(Op* ops, size_t count, uint64_t bytes) noexcept {
  try {
    engine_->check_usable("bulk");
  } catch (...) {  // shut down by another thread, or forked
    const BulkFunction ends_them(*engine_, ops, 0);
    if (EngineImpl::forked()) return;
    log(LogLevel::error,
        "the engine was shut down before a bulk scope ended; what it had collected is dropped");
    return;
  }
  if (count > 1) {
    BulkFunction function(*engine_, ops, count);
    try {
      engine_->push_links(&kOpType<BulkFunction, false>, links_, ops->priority, ops->device, "bulk",
                          ops->cold().where, &BulkFunction::construct, &function, bytes);
      engine_->throttle_bulk();
      return;
    } catch (const std::bad_alloc&) {
    } catch (const OutOfMemory&) {  // (of the engine's pool)
    }
    function.release();
  }
  while (ops != nullptr) {
    Op* op = std::exchange(ops, ops->next());  // which its end may use again
    engine_->end_push(op);
  }
}

bool EngineImpl::collect(Op* op) {
  if (current_task.recording != nullptr) {
    if (op->device == kInternalLane) return false;
    current_task.recording->add(op);
    return true;
  }
  return tls.bulk->add(op);
}

void EngineImpl::flush_collected() noexcept { tls.bulk->flush(); }

namespace {

// One stays with each thread, so that a scope allocates nothing after the first.
thread_local std::unique_ptr<Bulk> spare;

}  // namespace
}  // namespace detail

BulkScope::BulkScope(Engine& engine, const BulkOptions& options) {
  engine.impl_->check_usable("bulk");
  MX_CHECK(options.max_ops > 0, InvalidArgument, "[bulk] expected max_ops to be positive, got ",
           options.max_ops);
  if (detail::current_task.recording != nullptr) return;
  if (detail::spare == nullptr) detail::spare = std::make_unique<detail::Bulk>();
  detail::EngineImpl::flush_bulk();
  bulk_ = detail::spare.release();
  bulk_->begin(*engine.impl_, static_cast<size_t>(options.max_ops));
}

BulkScope::~BulkScope() {
  if (bulk_ == nullptr) return;
  bulk_->end();
  detail::spare.reset(bulk_);
}

void BulkScope::flush() noexcept {
  if (bulk_ != nullptr) bulk_->flush();
}

}  // namespace mx
