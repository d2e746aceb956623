// The engine's construction, shutdown, behaviour after fork, pause and statistics, and the access checks of
// mode `check`.
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <utility>

#include "engine/base/clock.h"
#include "engine/base/cpus.h"
#include "engine/base/log.h"
#include "engine/base/threads.h"
#include "engine/detail/engine_inl.h"
#include "engine/detail/hold.h"
#include "engine/detail/segment_run.h"
#include "engine/detail/worker_host.h"

namespace mx {
namespace detail {

namespace {

void nothing(void*, const RunContext&, Completion*) {}

std::atomic<uint32_t> next_engine_id{1};

constexpr size_t kRingCapacity = 4096;

// Returns the number of threads for operations: as many as were asked for, or fewer, with a warning, if the
// system cannot start enough. Leaves threads for the monitor, for loops outside of operations, and for the
// worker that is called beyond the limit. Sets `most` to the number of threads that oneTBB may start. Throws
// OutOfMemory if the system cannot start two threads.
int affordable_threads(const EngineOptions& options, int& most) {
  const int wanted = options.threads > 0 ? options.threads : usable_cpus();
  const bool inline_mode = options.mode == EngineMode::naive || options.mode == EngineMode::fuzz;
  if (inline_mode || wanted > 4096 || EngineImpl::forked()) return wanted;
  const int all = WorkerHost::most_started(wanted) + 1;
  const int startable = startable_threads(all);
  most = startable - 1;
  MX_CHECK(most > 0, OutOfMemory,
           "[Engine] expected the system to allow at least 2 more threads, but it allows ", startable);
  const int threads = std::clamp(most - 1, 1, wanted);
  if (threads < wanted) {
    log(LogLevel::warning,
        concat("[Engine] expected ", wanted,
               " threads, but the system does not allow that many: running with ", threads));
  }
  return threads;
}

// Returns true if two messages say the same of operations that one line of the program has called, such as an
// operator and its gradient. The names of the operations and their inputs may differ:
//
//   [take_backward] [take] expected indices ..., got 9 (inputs: f32 (2,)) (pushed at a.cc:5)
bool same_reason(std::string_view a, std::string_view b) {
  const auto split = [](std::string_view text) {
    while (text.starts_with('[') && text.find("] ") != text.npos) text.remove_prefix(text.find("] ") + 2);
    const size_t inputs = text.find(" (inputs: "), place = text.rfind(" (pushed at ");
    return std::pair(text.substr(0, std::min(inputs, place)), place == text.npos ? "" : text.substr(place));
  };
  return split(a) == split(b);
}

void watch_forks() {
  static const int once = pthread_atfork(nullptr, nullptr, [] { in_forked_child.store(true); });
  (void)once;
}

// If exit() is called inside an operation, the destructors of static objects and of oneTBB must not run: the
// calling thread is one of oneTBB's, and other threads still run operations. So this handler ends the process
// with the status that exit() was given. It is registered with on_exit(), because a handler of atexit() does
// not get the status.
void end_process(int status, void*) {
  if (EngineImpl::forked() || !inside_operation()) return;
  std::cout.flush();
  std::clog.flush();
  std::fflush(nullptr);
  ::_exit(status);
}

void watch_exit() {
  static const int once = on_exit(&end_process, nullptr);
  (void)once;
}

}  // namespace

constinit std::atomic<bool> in_forked_child{false};

const OpType kDeleteType = {&nothing, nullptr, false, 0};
const OpType kRecoverType = {&nothing, nullptr, false, 0};
const OpType kReplayGroupType = {&nothing, nullptr, false, 0};

EngineImpl::EngineImpl(const EngineOptions& options)
    : options_(options),
      id_(next_engine_id.fetch_add(1)),
      threads_(affordable_threads(options, most_threads_)),
      inline_mode_(options.mode == EngineMode::naive || options.mode == EngineMode::fuzz),
      check_mode_(options.mode == EngineMode::check),
      fuzz_(options.mode == EngineMode::fuzz),
      monitored_(!inline_mode_ || fuzz_ || options.watchdog_ms > 0),
      single_(processors() == 1),
      stuck_ticks_(static_cast<uint64_t>(10 * ticks_per_us())),
      issuing_poll_ticks_(static_cast<uint64_t>(10 * ticks_per_us())),
      searching_poll_ticks_(static_cast<uint64_t>(ticks_per_us())),
      profiler_(static_cast<size_t>(std::max(0, options.history))),
      ring_(kRingCapacity),
      policy_(threads_, static_cast<int64_t>(4 * ticks_per_us())),
      run_ahead_(options, threads_) {
  MX_CHECK(options.threads >= 0 && options.threads <= 4096, InvalidArgument,
           "[Engine] expected from 0 to 4096 threads, got ", options.threads);
  MX_CHECK(options.max_ops_in_flight > 0, InvalidArgument,
           "[Engine] expected max_ops_in_flight to be positive, got ", options.max_ops_in_flight);
  MX_CHECK(options.spin_us >= 0 && options.watchdog_ms >= 0 && options.history >= 0, InvalidArgument,
           "[Engine] expected spin_us, watchdog_ms and history not to be negative, got ", options.spin_us,
           ", ", options.watchdog_ms, " and ", options.history);
  MX_CHECK(!forked(), InvalidState,
           "[Engine] expected the process that loaded the library, got a forked child of it, in which the "
           "library's threads do not exist; create engines only after fork(), or call exec() in the child");
  watch_forks();
  watch_exit();
  prepare_failures();
  unobserved_.reserve(8);
  auto first_worker = std::make_unique<Worker>();  // so that there is always one to borrow
  first_worker->row = worker_count_ = 1;
  epilogue_ = op_pool_.take_chain();
  op_pool_.give_chain(epilogue_->next());
  epilogue_->type = &kRecoverType;
  epilogue_->set_header(0, 0, 0);
  epilogue_->cold() = {"the end of an operation", std::source_location::current(), {nullptr}};
  random_.seed(options.seed);
  inline_random_.seed(options.seed ^ 0x9e3779b97f4a7c15);
  if (!inline_mode_) host_ = std::make_unique<WorkerHost>(threads_, most_threads_, [this] { work(); });
  special_ = fuzz_;
  profile(false);
  register_engine(id_, this);
  workers_ = first_worker.get();  // set before the monitor starts, which reads it
  try {
    if (monitored_) start_monitor();
  } catch (...) {
    unregister_engine(id_);
    throw;
  }
  (void)first_worker.release();
}

EngineImpl::~EngineImpl() {
  while (completers_.load(std::memory_order_acquire) > 0) sched_yield();
  unregister_engine(id_);
  {
    std::lock_guard lock(monitor_mutex_);
    monitor_stop_ = true;
    monitor_wake_.notify_all();
  }
  if (monitor_thread_.joinable()) monitor_thread_.join();
  if (host_) host_->join();  // before host_ changes: a worker that is leaving may still call another
  host_.reset();
  if (tls.cache_engine == id_) {
    tls.cache = nullptr;
    tls.cache_engine = 0;
  }
  VarPool::for_each(var_pool_.slabs(), [this](VarBlock& var) {
    if (var.failure != nullptr) var.failure->release();
    var.failure = nullptr;
    if (streams_ && var.marks != nullptr) streams_->forget(&var);
  });
  free_dead_failures();
  for (Hold* hold : holds_) {
    while (hold != nullptr) delete std::exchange(hold, hold->next);
  }
  while (workers_ != nullptr) delete std::exchange(workers_, workers_->next);
  op_memory_->engine_gone.store(true, std::memory_order_release);
}

void EngineImpl::check_usable(const char* call) const {
  MX_CHECK(!forked(), InvalidState, "[", name_or_default(call),
           "] expected the process that created the engine, got a forked child of it, in which the engine's "
           "threads do not exist; create engines only after fork(), or call exec() in the child");
  if (refusing_.load(std::memory_order_relaxed) && !(inside_operation() && current_task.engine == this))
    throw_shut_down(call);
}

void EngineImpl::throw_shut_down(const char* call) {
  throw InvalidState(
      concat("[", name_or_default(call), "] expected a running engine, got one that was shut down"));
}

void EngineImpl::shutdown() {
  refuse_inside_operation("shutdown");
  if (forked()) return;
  if (!shut_down_.exchange(true)) {
    lock_.lock();
    paused_ = 0;
    paused_hint_.store(false);
    unlock();
    rouse();
  }
  // Operations may push while the engine drains. So pushes are refused after a drain, and the loop repeats if
  // something was pushed between the two. A call that finds another thread in this loop runs it as well, so
  // that it does not return earlier.
  for (bool drained = false; !drained;) {
    drain_all(-1);
    refusing_.store(true, std::memory_order_seq_cst);
    lock_.lock();
    drained = !ring_.maybe_nonempty() && epochs_.none_in_flight();
    if (drained && closed_at_ == UINT64_MAX) closed_at_ = ring_.head();
    unlock();
  }
  lock_.lock();
  std::vector<Failure*> failures = std::exchange(unobserved_, {});
  const uint64_t more = std::exchange(failures_, 0) - failures.size();
  Failure* first = std::exchange(first_failure_, nullptr);
  unlock();
  for (const Failure* failure : failures) {
    const bool reported = std::any_of(failures.begin(), failures.end(), [&](const Failure* other) {
      return other->observed.load() && same_reason(other->text, failure->text);
    });
    if (!reported) log(LogLevel::error, "an error that no wait has reported: ", failure->text);
  }
  for (Failure* failure : failures) failure->release();
  if (more > 0) log(LogLevel::error, "and ", more, " more errors that no wait has reported");
  if (first != nullptr) first->release();
}

void EngineImpl::abandon() noexcept {
  lock_.lock();
  // Pauses instead of refusing pushes: exit() may take a while, in which other threads may still push. If
  // their pushes threw, the exceptions could end the process with another status.
  ++paused_;
  special_ = true;
  paused_hint_.store(true);
  unlock();
}

void EngineImpl::pause() {
  check_usable("pause");
  lock_.lock();
  ++paused_;
  special_ = true;
  paused_hint_.store(true);
  unlock();
}

void EngineImpl::resume() {
  lock_.lock();
  const bool was_paused = paused_ > 0;
  if (was_paused && --paused_ == 0) paused_hint_.store(false);
  unlock();
  MX_CHECK(was_paused, InvalidState, "[resume] expected a paused engine, got one that runs");
  if (inline_mode_) {
    run_inline(options_.mode == EngineMode::naive, true);
  } else {
    rouse();
  }
}

void EngineImpl::profile(bool on) {
  const bool instrumented = on || ranges_ || options_.watchdog_ms > 0;
  direct_.store(!instrumented && options_.mode == EngineMode::threaded && options_.history == 0);
  on ? profiler_.start() : profiler_.stop();
  instrumented_.store(instrumented);
}

EngineStats EngineImpl::stats() {
  EngineStats stats;
  lock_.lock();
  stats.pushed = ring_.tail() - refused_ops_ + linked_directly_;
  // The sum is negative while devices have more nodes of replays in flight than operations have ended: plan()
  // has subtracted each such node from ended_count_.
  stats.completed = static_cast<uint64_t>(
      std::max<int64_t>(0, static_cast<int64_t>(ended_count_ - refused_ops_ + linked_directly_)));
  stats.failed = failed_ops_;
  stats.skipped = skipped_ops_;
  stats.in_flight = stats.pushed - linked_directly_ - (ended_count_ - refused_ops_);
  stats.bytes_in_flight = run_ahead_.bytes_in_flight();
  stats.ready = ready_.size() + comm_.size() + lanes_.ready();
  stats.running = static_cast<uint64_t>(running_);
  stats.waiting = static_cast<uint64_t>(waiting_.load(std::memory_order_relaxed));
  stats.worker_starts = worker_starts_;
  stats.monitor_calls = monitor_calls_.load(std::memory_order_relaxed);
  stats.worker_steps = steps_;
  stats.throttled = run_ahead_.times_held();
  if (streams_) {
    stats.stream_ops = streams_->issued_count();
    stats.stream_waits = streams_->wait_count();
  }
  stats.vars = var_pool_.live();
  stats.op_pool_bytes = op_pool_.bytes();
  unlock();
  return stats;
}

namespace {

// How an operation has declared its access to a variable.
struct Declaration {
  bool declared = false;
  Access access = Access::read;

  Declaration(const Op* op, const Var& v) {
    for_each_link(const_cast<Op*>(op), [&](Link& link) {
      if (link.var() != v.block) return;
      declared = true;
      access = link.access();
    });
  }
  bool allows(bool write) const {
    return declared && (write ? access != Access::read : access != Access::write);
  }
};

}  // namespace

std::optional<std::string> EngineImpl::undeclared_in(const Var& v, bool write) {
  if (!inside_operation()) [[likely]]
    return std::nullopt;
  const EngineImpl& engine =
      current_task.segment != nullptr ? current_task.segment->engine() : *current_task.engine;
  if (!engine.check_mode_) return std::nullopt;
  Op* const op = current_task.segment != nullptr ? current_task.segment->operation(current_task.node)
                                                 : current_task.operation;
  if (Declaration(op, v).allows(write)) return std::nullopt;
  return name_or_default(op->cold().name);
}

void EngineImpl::check_access(const Op* op, const Var& v, bool write) {
  const Declaration said(op, v);
  if (said.allows(write) && VarPool::alive(v)) return;
  const char* name = v.block != nullptr ? VarPool::name_of(v.block) : nullptr;
  const char* wanted = write ? "writes or updates" : "reads or updates";
  const char* has = !said.declared                 ? "none of its lists"
                    : said.access == Access::read  ? "its reads"
                    : said.access == Access::write ? "its writes"
                                                   : "its updates";
  throw AccessError(concat("[", name_or_default(const_cast<Op*>(op)->cold().name),
                           "] expected the operation to declare the variable '",
                           name != nullptr ? name : "unnamed", "' among its ", wanted,
                           ", got it declared among ", has));
}

}  // namespace detail

void RunContext::check(Var v, bool write) const { detail::EngineImpl::check_access(op_, v, write); }

}  // namespace mx
