// EngineImpl: the engine's state. Internal.
//
// It owns the engine's parts, each with a header that states its invariants and its locks: epochs
// (epochs.h), the run-ahead limits of pushers (run_ahead.h), the number of workers (worker_policy.h), lanes
// and their issuers (device_lanes.h), the order of streams (stream_order.h), the queues of the variables
// (dependency.h). EngineImpl connects them:
//   push.cc       a pusher builds an operation and submits it to the ring,
//   run_ahead.cc  and waits if too much is in flight
//   state.cc      under the lock: drains the ring into DependencyState, completes operations, keeps counts
//   worker.cc     a worker on oneTBB: step (under the lock), run (outside it), search, leave
//   issue.cc      operations of accelerators: one issuer per device at a time
//   hold.cc       variables that segments keep between their replays
//   wait.cc       waiters, and the operations that they run while they wait
//   monitor.cc    the thread that watches long operations and polls devices
//
// Two rules prevent deadlock. No thread blocks while it holds the lock. No thread calls out of the engine
// while it holds the lock: it runs no user code (functions, destructors, exceptions), allocates no slab,
// wakes no thread and asks no device. It collects such work in AfterLock, and unlock() does it. In debug and
// sanitizer builds assert_no_engine_lock() checks the second rule.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <source_location>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/clock.h"
#include "engine/base/current_task.h"
#include "engine/base/futex.h"
#include "engine/detail/batch.h"
#include "engine/detail/dependency.h"
#include "engine/detail/device_lanes.h"
#include "engine/detail/epochs.h"
#include "engine/detail/lock.h"
#include "engine/detail/op.h"
#include "engine/detail/participant.h"
#include "engine/detail/pools.h"
#include "engine/detail/profiler.h"
#include "engine/detail/ready_queue.h"
#include "engine/detail/run_ahead.h"
#include "engine/detail/stream_order.h"
#include "engine/detail/submit_ring.h"
#include "engine/detail/worker_policy.h"
#include "engine/device/tool_range.h"
#include "engine/options.h"

namespace mx::detail {

class SegmentGraph;
class SegmentGroup;
class SegmentImpl;
class SegmentRun;
class WorkerHost;
struct Hold;

inline constexpr size_t kDrainLimit = 64;

struct alignas(64) Worker {
  Batch batch;
  std::shared_ptr<SegmentRun> run;    // not null: the worker joins this replay instead of running a batch
  Lane* lane = nullptr;               // not null: the batch is one operation to issue on this lane's device
  bool in_use = false;                // under the lock
  bool communicates = false;          // under the lock: its batch is from comm_
  uint32_t row = 0;                   // its row in traces
  uint32_t sample = 0;                // counts batches; short ones are timed once in 16
  std::atomic<Op*> running{nullptr};  // for the watchdog; written only while it is on
  std::atomic<int64_t> running_since{0};  // ns
  int64_t reported = 0;                   // running_since at the watchdog's last report
  Worker* next = nullptr;                 // of EngineImpl::workers_
};

/// A thread that waits for a version of a variable, or (var == nullptr) for epochs. It is on the stack of
/// that thread, which must not return from the wait before `word` is kReleased.
struct Waiter {
  VarBlock* var = nullptr;
  uint32_t target = 0;         // VarBlock::writes_done to reach
  uint64_t end = 0;            // the end of the epochs: see Epochs::over()
  bool written = false;        // the target is reached, but a device may still be writing the version
  bool finished = false;       // under the lock
  bool recoverable = false;    // the failure is that of skipped updates only
  Failure* failure = nullptr;  // of the awaited version, not of later ones; retained
  StreamPoint landing;         // once `written`: the point at which the version is in memory
  Waiter* next = nullptr;
  uint64_t seen_ended = 0;  // for may_run_beside(): EngineImpl::ended_count_ at its last look, and the time
  uint64_t seen_ticks = 0;

  static constexpr uint32_t kAwake = 0, kAsleep = 1, kWaking = 2, kReleased = 3;
  std::atomic<uint32_t> word{kAwake};
};

/// Work that a thread finds under the engine's lock and does after it has released the lock.
struct AfterLock {
  Waiter* waiters = nullptr;  // to be released, through Waiter::next
  Op* chains = nullptr;       // operations for the pool, through OpPool::next_chain()
  VarBlock* vars = nullptr;   // for the pool, through VarPool::next_dead()
  Op* replays = nullptr;      // to be completed, through Op::next()
  Hold* holds = nullptr;      // to be deleted, through Hold::next

  bool any() const {
    return waiters != nullptr || chains != nullptr || vars != nullptr || replays != nullptr ||
           holds != nullptr;
  }
};

/// The engine's state of a thread, besides its CurrentTask.
struct ThreadState {
  uint32_t cache_engine = 0;  // id of the engine whose operations are cached
  Op* cache = nullptr;
  uint32_t ring_engine = 0;  // id of the engine to whose ring ring_hint belongs
  uint64_t ring_hint = 0;
};
void register_engine(uint32_t id, EngineImpl* engine);
void unregister_engine(uint32_t id);
/// Calls f with the engine of that id if it still exists. The engine is not destroyed during the call.
void with_engine(uint32_t id, const std::function<void(EngineImpl&)>& f);
extern constinit std::atomic<bool> in_forked_child;
extern thread_local constinit ThreadState tls __attribute__((tls_model("initial-exec")));

/// Returns true if this thread is inside an operation of any engine.
inline bool inside_operation() {
  return current_task.operation != nullptr || current_task.segment != nullptr;
}
/// Returns the operation that the thread is in. Precondition: inside_operation().
Op* current_operation();

/// While this object lives, the thread counts as inside an operation of the engine, and its pushes are not
/// recorded. For code that calls functions of operations or their destructors.
class InsideOperations {
 public:
  explicit InsideOperations(EngineImpl* engine) : working_for_(CurrentTask{.engine = engine}) {}
  InsideOperations(const InsideOperations&) = delete;
  /// From now on the thread counts as inside `op`.
  void enter(Op* op) { current_task.operation = op; }

 private:
  WorkingFor working_for_;
};

class EngineImpl final : public StreamOrder::Listener {
 public:
  explicit EngineImpl(const EngineOptions& options);
  ~EngineImpl() override;

  // The members of Engine.
  Var new_var(const char* name = nullptr);
  void delete_var(Var v);
  Op* begin_push(const OpType* type, const PushOptions& options, const std::source_location& where);
  void abandon_push(Op* op) noexcept;
  /// Releases the bytes of an operation that is not submitted.
  void forget_bytes(Op* op) noexcept;
  void end_push(Op* op);
  bool wait(Var v, int64_t timeout_ms);
  bool wait_all(int64_t timeout_ms);
  void recover(Var v, const std::source_location& where);
  void cancel();
  void pause();
  void resume();
  void shutdown();
  /// Prevents all operations from starting from now on. Called when the process or the engine ends inside an
  /// operation, which cannot be waited for.
  void abandon() noexcept;
  EngineStats stats();
  const EngineOptions& options() const { return options_; }
  Profiler& profiler() { return profiler_; }
  /// Returns whether a tool outside sees each operation (tool_range.h).
  bool makes_ranges() const { return ranges_; }
  bool direct() const {
    return direct_.load(std::memory_order_relaxed) && current_task.recording_engine == nullptr &&
           !paused_hint_.load(std::memory_order_relaxed) && !refusing_.load(std::memory_order_relaxed);
  }
  bool crowded() const {
    return full_hint_.load(std::memory_order_relaxed) && waiting_.load(std::memory_order_relaxed) > 0;
  }
  bool second_thread_searches() const {
    return threads_ == 2 && policy_.any_searching() && ready_hint_.load(std::memory_order_relaxed) == 0 &&
           !ring_.maybe_nonempty();
  }
  void profile(bool on);

  // For Completion.
  void end_async(Op* op, Failure* failure);
  /// Releases a reference to a segment. If it is the last one, the destructors of the segment's functions
  /// count as part of the token's operation.
  void let_go(std::shared_ptr<SegmentImpl>& segment, const Completion& token);
  void drop_async(Op* op);
  static void check_access(const Op* op, const Var& v, bool write);
  static std::optional<std::string> undeclared_in(const Var& v, bool write);

  // The sink of DependencyState; under the lock.
  void ready(Op* op, bool released) {
    if (op->ordinary() && !streams_busy_) [[likely]] {
      released ? ready_.push_released(op) : ready_.push(op);
    } else {
      ready_special(op, released);
    }
  }
  void written(VarBlock* var);
  void deleted_before(Op* op, Link& link);
  void give_up(VarBlock* var);
  void replayed(VarBlock* own, Outcome outcome, Failure* failure);

  uint32_t id() const { return id_; }
  void check_usable(const char* call) const;
  [[noreturn]] static void throw_shut_down(const char* call);
  void check_var(const Var& v, const char* call) const;
  int worker_limit() const { return threads_; }
  /// Calls a worker, unless as many as WorkerPolicy allows have been called. No lock. Returns false if none
  /// was called. `counter` is incremented before the worker can start.
  bool start_worker(std::atomic<uint64_t>* counter = nullptr);
  bool inline_mode() const { return inline_mode_; }

  // Replays (segment_run.cc).
  bool attention() const { return attention_.load(std::memory_order_relaxed) != 0; }
  void begin_part(Participant& participant);
  void end_part(Participant& participant);
  void offer_run(std::shared_ptr<SegmentRun> run);
  void withdraw_run(SegmentRun* run);
  void call_company();
  SegmentRun* run_that_wants_company() const;  // under the lock; null if none does
  void give_ops(Op* chain) noexcept { op_pool_.give_chain(chain); }

  /// Returns the cached operations of an ending thread to the pool, if the engine still exists.
  static void return_cache(uint32_t engine_id, Op* chain);
  static bool forked() { return in_forked_child.load(std::memory_order_relaxed); }

 private:
  friend class WorkerHost;
  friend class SegmentGraph;
  friend class SegmentGroup;
  friend class SegmentImpl;

  // state.cc: for segments; they take the lock
  void pin(const std::vector<Link>& vars);
  void unpin(const std::vector<Link>& vars);

  // segment.cc
  bool record(Op* op);  // returns false for an operation that is never recorded
  // hold.cc: for segments; they take the lock
  Hold* add_hold(std::unique_ptr<Hold> hold) noexcept;
  Hold** place_of_hold(const VarBlock* own);
  bool replay_keeping(Hold& hold, const OpType* type, int priority, const std::source_location& where,
                      void (*construct)(Op*, void*), void* argument);
  void end_hold(Hold& hold);
  void keep_nothing(Hold& hold);
  void remove_hold(Hold& hold);

  // push.cc
  class LinkWriter;
  void push_links(const OpType* type, const std::vector<Link>& links, int priority, uint8_t device,
                  const char* name, const std::source_location& where, void (*construct)(Op*, void*),
                  void* argument);
  Op* allocate();
  Op* take_cached();  // the same, for the hot path
  void refill_cache();
  void free_unsubmitted(Op* op) noexcept;
  void fill_links(Op* op, const PushOptions& options);
  void fill_many_links(Op* op, const PushOptions& options);
  void fill_rare(Op* op, const PushOptions& options);
  [[noreturn]] void refuse_var(const Var& v, const char* name) const;
  [[noreturn]] void refuse_push(Op* op, const PushOptions& options, const std::source_location& where);
  void submit(Op* op);
  void submit_special(Op* op);
  bool enter_ring(Op* op, bool internal, bool has_bytes);
  void submit_slowly(Op* op, bool internal);
  bool refuse_if_late(Op* op, uint64_t ticket);
  uint64_t try_submit(Op* op);
  uint64_t tail() const;
  /// Returns true if the operation must not wait behind others in the ring: it is urgent, or of another lane.
  static bool hurries(const Op* op) {
    if (op->device == kInternalLane) return op->type == &kReplayGroupType;
    return op->device != 0 || op->priority > 0;
  }
  void push_internal(Op* op, const OpType* type, VarBlock* var, uint64_t generation,
                     const std::source_location& where);
  uint8_t lane_index(Context context, StreamKind kind);
  void make_streams();
  void wake_after_submit();
  void call_worker();
  void call_beyond_limit();
  /// Returns true if as many operations compute as may, and operations of devices or communication lanes are
  /// ready (full_hint_ means that ready_hint_ counts only those).
  bool lanes_wait() const {
    return full_hint_.load(std::memory_order_relaxed) && ready_hint_.load(std::memory_order_relaxed) > 0;
  }

  // run_ahead.cc
  int64_t soft_limit() const;
  void throttle(uint64_t ticket);
  void throttle_softly(uint64_t ticket);

  // state.cc; under the lock
  void ready_special(Op* op, bool released);
  void drain(size_t limit);
  void drain_to(uint64_t tail);
  void complete(Op* op);
  void complete_unusual(Op* op);
  void release_extras(Op* op);
  void publish_special();
  void settle_internal();
  void give_var(VarBlock* var);
  void give_deleted_var(VarBlock* var);
  void unpin_locked(const std::vector<Link>& vars);
  void pin_locked(VarBlock* var);
  void finish_op(Op* op, Outcome outcome, Failure* failure, bool release_epoch = true);
  void count_error(Failure* failure);
  void release_op(Op* op);
  void epoch_done(uint16_t epoch);
  void check_epoch_waiters();
  void host_may_start(Op* op) override;
  void retired(uint16_t epoch, uint64_t bytes, Failure* failure, bool inherited) override;
  void maybe_landed(VarBlock* var, StreamPoint point, Failure* failure) override;

  // segment_group.cc; under the lock, except end_replays()
  void start_replay(Op* replay);
  void end_node(Op* op);
  void node_failed(Op* replay, Failure* failure, bool inherited) override;
  void ended_on_device(const char* name, Context context, StreamId stream, int64_t begin_ns,
                       int64_t end_ns) override;
  void end_replay(Op* replay);
  void end_replays(Op* replays);

  // worker.cc
  void work();  // the body of a worker, on a oneTBB thread
  size_t step(Worker& worker);
  void finish_batch(Worker& worker);
  size_t take(Worker& worker);
  size_t take_special(Worker& worker);
  int computing() const { return running_ - communicating_; }
  void add_waiting(int32_t change) {
    waiting_.store(waiting_.load(std::memory_order_relaxed) + change, std::memory_order_relaxed);
  }
  void start_communication(Worker& worker);
  void end_communication(Worker& worker);
  size_t take_ready(Batch& batch);
  void start_batch(Batch& batch, size_t size);
  /// Completes what other workers have run. Takes away what a worker has not started, if that worker is stuck
  /// in an operation; with `all`, from every worker.
  void scavenge(bool all = false);
  void run_batch(Worker& worker, size_t size);
  bool run(Worker& worker, Op*& slot, RunContext& context);
  bool run_function(Op* op, RunContext& context);
  static void describe_unstarted(Op* op) noexcept;
  bool run_unusual(Worker& worker, Op*& slot, RunContext& context);
  void run_async(Worker& worker, Op* op, int64_t begin_ns);
  void start_token(Op* op);
  void function_returned(Op* op);
  void finish_async(Op* op);
  void unlock();
  void unlock_and_finish();
  void finish_after_lock(AfterLock& after);
  bool search();
  bool may_be_work() const;
  void help();
  bool anything_to_take() const;
  bool more_workers_wanted() const {
    return policy_.more_wanted() && !paused_hint_.load(std::memory_order_relaxed);
  }
  Worker* borrow_worker() noexcept;          // null if all are in use
  Worker* borrow_or_make_worker() noexcept;  // releases the lock to make one; null without memory
  void return_worker(Worker& worker);

  // issue.cc
  size_t take_device_op(Worker& worker);
  bool plan(Op* op, const Lane& lane, StreamOrder::Issue& issue, Failure*& failure);
  void issue(Worker& worker, Op*& slot);
  void poll_devices();
  bool poll_is_due(uint64_t every_ticks) const {
    return ticks() - last_poll_.load(std::memory_order_relaxed) >= every_ticks;
  }

  // wait.cc
  struct Failures {
    Failure* first = nullptr;
    uint64_t count = 0;
  };
  Failures take_failures();
  bool drain_all(int64_t timeout_ms, Failures* failures = nullptr);
  bool block(Waiter& waiter, int64_t timeout_ms);
  static void sleep(Waiter& waiter, int64_t limit_ns);
  size_t take_for(Waiter& waiter, Worker& worker);
  bool may_run_beside(Waiter& waiter);
  int related_running();
  bool is_marked(Op* op);
  static void release_waiters(Waiter* first);
  static void await_release(Waiter& waiter);
  bool is_on_the_way(const Waiter& waiter) const;
  void give_back(Worker& worker);
  void mark_ancestors(VarBlock* var);
  void rouse();
  void version_made(Waiter& waiter);
  void finish_waiter(Waiter& waiter);
  void remove_waiter(Waiter& waiter);
  void refuse_inside_operation(const char* call) const;

  // The inline modes (naive, fuzz), in which pushers and waiters run everything themselves.
  void run_inline(bool all, bool wait_for_turn);
  void ask_for_inline_run();

  // monitor.cc
  void monitor();
  void start_monitor();
  void wake_monitor();
  void watchdog(int64_t now);

  const EngineOptions options_;
  const uint32_t id_;
  int most_threads_ = 4096;  // the most threads that oneTBB may start
  const int threads_;
  const bool inline_mode_;
  const bool check_mode_;
  const bool fuzz_;
  const bool monitored_;        // there is a monitor thread
  const bool single_;           // the process has one processor, so no thread spins
  const uint64_t stuck_ticks_;  // an operation that runs for longer counts as long
  // A query of a device takes a lock of its driver, which launches need as well. So threads that have
  // operations to issue, and threads that search for work, ask only so often.
  const uint64_t issuing_poll_ticks_, searching_poll_ticks_;

  std::atomic<bool> refusing_{false};   // pushes throw, except inside operations
  std::atomic<bool> shut_down_{false};  // shutdown() has begun

  const std::shared_ptr<OpPool> op_memory_ = std::make_shared<OpPool>();  // shared with recorded segments
  OpPool& op_pool_ = *op_memory_;
  VarPool var_pool_;
  Profiler profiler_;
  std::unique_ptr<WorkerHost> host_;

  alignas(64) SubmitRing<Op> ring_;

  WorkerPolicy policy_;

  // Read by every thread at every push or search; rarely written.
  alignas(64) std::atomic<bool> paused_hint_{false};
  std::atomic<bool> streams_outstanding_{false};
  std::atomic<bool> direct_{false};  // see Engine::direct()
  // The profiler, the watchdog or a tool outside looks at every operation.
  std::atomic<bool> instrumented_{false};
  const bool ranges_ = tool_listens();

  alignas(64) std::atomic<uint64_t> last_poll_{0};  // in ticks, when the devices were last asked

  // Written at many unlocks.
  alignas(64) std::atomic<uint32_t> ready_hint_{0};  // ready operations, as of the last unlock
  // Set while as many operations compute as may. A worker that ends one takes the next itself, so a pusher
  // need not wake another.
  std::atomic<bool> full_hint_{false};

  // Read by workers between two operations; written by pushers of urgent operations and by searching workers.
  alignas(64) std::atomic<uint32_t> attention_{0};  // not 0: running workers should acquire the lock soon
  std::atomic<uint32_t> hurried_{0};  // operations for which hurries() holds, in the ring or on the way there

  RunAhead run_ahead_;

  alignas(64) EngineLock lock_;
  // ---- under the lock ----
  DependencyState<EngineImpl> deps_{*this};
  ReadyQueue ready_;
  AfterLock after_;
  bool streams_busy_ = false;  // a device has work that the engine has not seen end
  bool special_ = false;       // one of the rare states holds: see publish_special()
  bool urgent_shown_ = false;  // an urgent operation is ready, and attention_ counts it
  bool run_turn_ = false;  // the last choice preferred a shared replay to ready operations; they alternate
  int paused_ = 0;
  int running_ = 0;        // threads that run operations
  int communicating_ = 0;  // of these, threads in communication, which has its own limit of threads
  uint64_t ended_count_ = 0;
  Op* free_ops_ = nullptr;
  int free_count_ = 0;
  Epochs epochs_;
  Waiter* epoch_waiters_ = nullptr;
  Waiter* var_waiters_ = nullptr;
  std::atomic<int32_t> waiting_{0};  // threads in block(); read without the lock
  uint32_t walk_ = 0;
  ReadyQueue comm_;  // operations of the CPU's communication lanes
  Op* internal_ = nullptr;
  SegmentGroup* groups_ = nullptr;  // groups with a running replay
  Worker* workers_ = nullptr;       // all workers ever made
  uint32_t worker_count_ = 0;
  std::unique_ptr<StreamOrder> streams_;
  Failure* first_failure_ = nullptr;
  uint64_t failures_ = 0;  // since the last wait_all
  uint64_t failed_ops_ = 0, skipped_ops_ = 0, steps_ = 0, worker_starts_ = 0;
  std::vector<Failure*> unobserved_;
  std::array<Hold*, 256> holds_{};     // by a hash of the segment's own variable; chains through Hold::next
  uint64_t closed_at_ = UINT64_MAX;    // operations from this place in the ring on are refused
  uint64_t refused_ops_ = 0;           // of these, how many have been taken from the ring
  uint64_t linked_directly_ = 0;       // operations that did not pass the ring; ended_count_ excludes them
  SegmentRun* shared_runs_ = nullptr;  // replays that other workers may join, oldest first
  std::mt19937_64 random_;
  // ---- end ----

  VarBlock nowhere_;  // replaces, in a link, a variable that was deleted before the operation was queued
  Op* epilogue_ = nullptr;  // destructors that run between two operations count as inside this one

  std::mutex watch_mutex_;                        // guards async_since_, which only a watchdog needs
  std::unordered_map<Op*, int64_t> async_since_;  // asynchronous operations that have begun

  std::mutex inline_mutex_;                // inline modes: held by the one thread that runs operations
  std::atomic<bool> inline_asked_{false};  // asks the monitor to run what is ready
  std::atomic<bool> inline_again_{false};  // tells the executor to look for ready operations once more
  std::atomic<int> completers_{0};         // threads inside end_async()
  std::mt19937_64 inline_random_;
  ParticipantRegistry participants_;
  DeviceLanes lanes_;

  std::mutex monitor_mutex_;
  std::condition_variable monitor_wake_;
  std::thread monitor_thread_;
  bool monitor_stop_ = false;
  std::atomic<bool> monitor_awake_{false};
  std::atomic<uint64_t> monitor_calls_{0};  // see EngineStats
};

}  // namespace mx::detail
