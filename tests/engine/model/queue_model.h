// The production SubmitRing, BasicEngineLock, DependencyState, ReadyQueue and Batch, combined as in the
// engine, under the explorer. Pushers submit a small program and workers run it. Every operation must see the
// values it would see if the operations ran one after another in the order of the ring.
//
// The bodies of worker() and batch_worker() follow EngineImpl::step(), take() and run_batch() line by line,
// without the parts that concern time (spinning, sleeping, measuring) and devices. Executions are
// sequentially consistent, so fences are left out.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>

#include "engine/detail/batch.h"
#include "engine/detail/dependency.h"
#include "engine/detail/lock.h"
#include "engine/detail/ready_queue.h"
#include "engine/detail/submit_ring.h"
#include "tests/engine/model/checked_atomic.h"
#include "tests/engine/model/explorer.h"
#include "tests/engine/model/program.h"
#include "tests/engine/model/serial_oracle.h"

namespace mx::test::model {

/// An empty fence: the explorer's executions are already sequentially consistent.
struct NoFence {
  static void light() {}
  static void heavy() {}
};

template <template <class> class Deps = detail::DependencyState,
          template <class> class Atomic = CheckedAtomic, class Batch = detail::BasicBatch<Atomic, NoFence>>
class QueueModel : public Model {
 public:
  explicit QueueModel(Program program) : program_(std::move(program)) {
    for (const int pusher : program_.pushers) pushers_ = std::max(pushers_, pusher + 1);
  }

  int threads() const override { return pushers_ + program_.workers + (program_.scavenges > 0); }
  // Workers differ only in their batches.
  int group(int thread) const override { return program_.batches || thread < pushers_ ? thread : pushers_; }

  void reset() override {
    ring_.emplace(program_.ring);
    lock_.emplace();
    attention_.emplace(0);
    for (int i = 0; i < program_.workers; ++i) batches_[i].emplace();
    ready_.emplace();
    running_ = 0;
    completed_ = 0;
    hint_ = false;
    ordered_ = 0;
    oracle_ = {};
    for (int v = 0; v < kModelVars; ++v) {
      vars_[v] = {};
      facts_[v] = {};
    }
    uint64_t hint = 0;
    for (int i = 0; i < total(); ++i) {
      make(i);
      if (program_.pushers.empty())
        require(ring_->try_push(&ops_[i], hint) == static_cast<uint64_t>(i), "setup");
    }
    if (program_.linked) drain();
    hint_ = !ready_->empty();
  }

  void run(int thread) override {
    if (thread < pushers_) return push_all(thread);
    thread -= pushers_;
    if (thread == program_.workers) return scavenger();
    program_.batches ? batch_worker(thread) : worker();
  }

  uint64_t digest() const override {
    uint64_t hash = static_cast<uint64_t>(completed_ * 4 + running_ * 2 + hint_);
    for (int v = 0; v < kModelVars; ++v) {
      const detail::VarBlock& var = vars_[v];
      hash = mix(hash, uint64_t{var.readers} << 32 | uint64_t{var.flags} << 16 |
                           static_cast<uint64_t>(facts_[v].readers * 2 + facts_[v].writer));
      hash = mix(mix(hash, reinterpret_cast<uintptr_t>(var.failure)), facts_[v].value);
      for (const detail::Link* link = var.head; link != nullptr; link = link->next) {
        hash = mix(hash, reinterpret_cast<uintptr_t>(link));
      }
    }
    for (int i = 0; i < total(); ++i) {
      const detail::Op& op = ops_[i];
      uint64_t word = uint64_t{op.pending} << 32 | uint64_t{op.flags} << 16 |
                      static_cast<uint64_t>(marks_[i].runs * 8 + marks_[i].completions);
      for (size_t k = 0; k < op.links; ++k) word = word * 2 + const_cast<detail::Op&>(op).link(k).granted();
      hash = mix(hash, word);
    }
    for (int i = 0; i < ordered_; ++i) hash = mix(hash, static_cast<uint64_t>(order_[i]));
    const_cast<detail::ReadyQueue&>(*ready_).for_each(
        [&](detail::Op* op) { hash = mix(hash, index(op) + 50); });
    for (int i = 0; program_.batches && i < program_.workers; ++i) {
      const auto& batch = *batches_[i];
      hash = mix(hash, batch.size * 16 + batch.completed);
      for (uint32_t k = 0; k < batch.size; ++k) hash = mix(hash, index(batch.ops[k]));
    }
    return hash;
  }

  void check_end() override {
    require(completed_ == total() && ready_->empty() && running_ == 0, "something is left over");
    int poisoned[kModelOps] = {};
    for (int v = 0; v < kModelVars; ++v) {
      const detail::VarBlock& var = vars_[v];
      require(var.head == nullptr && var.readers == 0 && !var.writing(), "a variable is not idle at the end");
      require(var.writes_done == var.writes_linked, "a variable's writes were miscounted");
      require(var.failure == oracle_.versions[v].failure,
              "a variable is poisoned otherwise than in serial order");
      require(((var.flags & detail::kVarRecoverable) != 0) == oracle_.versions[v].recoverable,
              "a variable is recoverable otherwise than in serial order");
      require(facts_[v].value == oracle_.versions[v].value,
              "a variable has another value than in serial order");
      if (var.failure != nullptr) ++poisoned[var.failure - failures_];
    }
    for (int i = 0; i < total(); ++i) {
      require(marks_[i].completions == 1, "an operation did not end exactly once");
      require(failures_[i].refs.load() == 1 + poisoned[i],
              "a failure was retained or released once too often");
    }
  }

  // ---- DependencyState's sink ----

  void ready(detail::Op* op, bool) {
    if (op->flags & detail::kOpTaken) return;  // the worker that took it runs it next
    ready_->push(op);
  }
  void written(detail::VarBlock*) { fail("nobody waits for a variable"); }

 private:
  // The actual value of a variable, and the operations that are accessing it.
  struct Fact {
    uint64_t value = 0;
    int readers = 0;
    int writer = 0;
  };
  struct Marks {
    int runs = 0;
    int completions = 0;
  };

  int total() const { return static_cast<int>(program_.ops.size()); }
  uint64_t index(const detail::Op* op) const { return op == nullptr ? 99 : static_cast<uint64_t>(op - ops_); }
  bool fails(uint64_t i) const { return program_.failing >> i & 1; }
  uint64_t result_of(uint64_t i) const { return i * 2 + fails(i); }
  detail::Failure* failure_of(uint64_t i) { return fails(i) ? &failures_[i] : nullptr; }

  void make(int i) {
    static constexpr detail::OpType kType = {};
    detail::Op& op = ops_[i];
    op.type = &kType;
    op.pending = 0;
    op.links = 0;
    op.flags = 0;
    op.priority = 0;
    op.device = 0;
    const Touches& touches = program_.ops[static_cast<size_t>(i)];
    for (size_t v = 0; v < touches.size(); ++v) {
      if (touches[v] == '.') continue;
      const detail::Access access = touches[v] == 'r'   ? detail::Access::read
                                    : touches[v] == 'w' ? detail::Access::write
                                                        : detail::Access::update;
      op.link(op.links).next = nullptr;
      op.link(op.links++).set(&vars_[v], access);
    }
    marks_[i] = {};
    expected_[i] = {};
    failures_[i].refs.store(1);
  }

  // ---- the threads ----

  void push_all(int pusher) {
    uint64_t hint = 0;
    for (int i = 0; i < total(); ++i) {
      if (program_.pushers[static_cast<size_t>(i)] != pusher) continue;
      checkpoint(static_cast<uint64_t>(i) << 8 | hint);
      while (ring_->try_push(&ops_[i], hint) == detail::SubmitRing<detail::Op, Atomic>::kFull) {
        wait_until([this] { return ring_->tail() - ring_->head() < ring_->capacity(); }, "wait for room");
        checkpoint(static_cast<uint64_t>(i) << 8 | hint);
      }
    }
  }

  // One step under the lock: complete, drain, take one operation. Then the worker runs it.
  void worker() {
    detail::Op* finished = nullptr;
    for (;;) {
      checkpoint(500 + index(finished));
      if (finished == nullptr && !wait_for_work()) return;
      lock_->lock();
      observe(digest());
      if (finished != nullptr) complete(finished);
      if (ready_->empty()) drain();
      finished = ready_->empty() ? nullptr : ready_->pop();
      check_queues();
      hint_ = !ready_->empty();
      checkpoint(700 + index(finished));
      lock_->unlock();
      if (finished != nullptr) run_function(finished);
    }
  }

  bool wait_for_work() {
    wait_until([this] { return hint_ || completed_ == total() || ring_->maybe_nonempty(); }, "search");
    return completed_ != total();
  }

  void batch_worker(int me) {
    auto& batch = *batches_[me];
    for (;;) {
      checkpoint(500);
      if (batch.size == 0) {
        attention_->fetch_add(1);
        const bool work = wait_for_work();
        attention_->fetch_sub(1);
        if (!work) return;
      }
      lock_->lock();
      observe(digest());
      if (batch.size != 0) {
        batch.finish([this](detail::Op* op) { ready_->push_front(op); },
                     [this](detail::Op* op) { complete(op); });
        --running_;
      }
      const size_t size = take(me);
      check_queues();
      hint_ = !ready_->empty();
      checkpoint(600 + size);
      lock_->unlock();
      if (size > 0) run_batch(batch, size);
    }
  }

  size_t take(int me) {
    auto& batch = *batches_[me];
    if (ready_->empty()) {
      drain();
      if (ready_->empty() && running_ > 0) scavenge(me);
      if (ready_->empty()) return 0;
    }
    size_t size = 1;
    batch.ops[0] = ready_->pop();
    if (ready_->empty()) {
      size = batch.extend(size);
    } else {
      // The engine leaves some operations for other workers; how many depends on time.
      while (!ready_->empty()) batch.ops[size++] = ready_->pop();
    }
    ++running_;
    batch.start(size);
    return size;
  }

  void run_batch(Batch& batch, size_t size) {
    uint32_t ran = 0;
    do {
      if (ran > 0 && !batch.claim_next(ran)) break;
      const bool well = run_function(batch.ops[ran]);
      batch.mark_done(++ran);
      if (!well && !program_.stubborn) break;
    } while (ran < size && attention_->load() == 0);
  }

  void scavenge(int me) {
    for (int i = 0; i < program_.workers; ++i) {
      auto& batch = *batches_[i];
      if (i == me || batch.size == 0) continue;
      batch.scavenge(
          true, [this](detail::Op* op) { ready_->push_front(op); }, [this](detail::Op* op) { complete(op); });
      for (uint32_t k = 0; k < batch.size; ++k) {
        require(batch.ops[k]->pending == 0, "a claimed operation has not got its grants");
      }
    }
  }

  void scavenger() {
    for (int i = 0; i < program_.scavenges; ++i) {
      checkpoint(900 + static_cast<uint64_t>(i));
      lock_->lock();
      observe(digest());
      scavenge(-1);
      hint_ = !ready_->empty();
      checkpoint(950 + static_cast<uint64_t>(i));
      lock_->unlock();
    }
  }

  // ---- what happens to an operation ----

  void drain() {
    detail::Op* ops[kModelOps];
    const size_t n = ring_->pop(ops, kModelOps);
    for (size_t i = 0; i < n; ++i) {
      order_[ordered_++] = static_cast<int>(index(ops[i]));
      expected_[index(ops[i])] =
          oracle_.run(ops[i], vars_, result_of(index(ops[i])), failure_of(index(ops[i])));
      deps_.link(ops[i]);
    }
  }

  // The first operation of a queue must be waiting for another operation.
  void check_queues() {
    for (const detail::VarBlock& var : vars_) {
      if (var.head == nullptr || var.writing()) continue;
      require(var.head->exclusive(), "a reader waits although nobody writes");
      require(var.readers > 0, "a writer waits for nobody");
    }
  }

  // Returns false if the operation fails.
  bool run_function(detail::Op* op) {
    const uint64_t i = index(op);
    require(++marks_[i].runs == 1, "an operation ran twice");
    observe(op->flags);
    if (op->flags & detail::kOpSkip) {
      require(expected_[i].cause != nullptr, "an operation was skipped without a reason");
      return true;
    }
    require(expected_[i].cause == nullptr, "an operation ran on a poisoned version");
    detail::for_each_link(op, [&](detail::Link& link) {
      Fact& fact = facts_[link.var() - vars_];
      require(fact.writer == 0 && (!link.exclusive() || fact.readers == 0),
              "two operations exclude each other");
      ++(link.exclusive() ? fact.writer : fact.readers);
    });
    require(inputs_of(op, vars_, facts_) == expected_[i].inputs,
            "an operation saw another version than in serial order");
    point("in the middle of an operation");
    detail::for_each_link(op, [&](detail::Link& link) {
      Fact& fact = facts_[link.var() - vars_];
      --(link.exclusive() ? fact.writer : fact.readers);
      if (link.exclusive()) fact.value = mix(expected_[i].inputs, result_of(i));
    });
    if (!fails(i)) return true;
    op->failure() = failure_of(i);
    op->flags |= detail::kOpFailed;
    return false;
  }

  void complete(detail::Op* op) {
    const uint64_t i = index(op);
    require(op->pending == 0, "an operation ended before it was ready");
    require(marks_[i].runs == 1 && ++marks_[i].completions == 1,
            "an operation ended without running, or twice");
    if (op->flags & detail::kOpFailed) {
      deps_.complete(op, detail::Outcome::failed, op->failure());
    } else if (op->flags & detail::kOpSkip) {
      detail::Failure* cause = Deps<QueueModel>::cause_of(op);
      require(cause == expected_[i].cause,
              "an operation was skipped for another reason than in serial order");
      deps_.complete(op, detail::Outcome::skipped, cause);
    } else {
      deps_.complete(op, detail::Outcome::done, nullptr);
    }
    ++completed_;
  }

  const Program program_;
  int pushers_ = 0;
  detail::Op ops_[kModelOps];
  detail::VarBlock vars_[kModelVars];
  detail::Failure failures_[kModelOps];
  std::optional<detail::SubmitRing<detail::Op, Atomic>> ring_;
  std::optional<detail::BasicEngineLock<Atomic, CheckedBackoff>> lock_;
  std::optional<Atomic<uint32_t>> attention_;
  std::optional<Batch> batches_[3];
  std::optional<detail::ReadyQueue> ready_;
  Deps<QueueModel> deps_{*this};
  int running_ = 0;
  int completed_ = 0;
  bool hint_ = false;
  Fact facts_[kModelVars];
  SerialOracle oracle_;
  Expectation expected_[kModelOps];
  Marks marks_[kModelOps];
  int order_[kModelOps] = {};
  int ordered_ = 0;
};

}  // namespace mx::test::model
