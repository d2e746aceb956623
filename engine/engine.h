// The engine: runs operations as soon as what they read and write allows, and with serial meaning.
//
//   Engine& e = Engine::get();
//   Var a = e.new_var(), b = e.new_var();
//   e.push([&](RunContext) { x = load(); },   {.writes = {a}, .name = "load"});
//   e.push([&](RunContext) { y = f(x); },     {.reads = {a}, .writes = {b}, .name = "f"});
//   e.wait(b);                                // rethrows what went wrong on the way to b
//
// Contract: docs/engine.md. In short: any execution gives the result of running the operations in push
// order; readers of a variable share it, writers and updaters exclude; a push returns at once; wait()
// returns when the earlier writes have landed in memory.
//
// Thread-safety: every member may be called from any thread at any time, except that waiting (wait,
// wait_all, shutdown) from inside an operation throws InvalidState, also on threads that help with its loops.
//
// Design: one submission ring, and plain dependency state under one lock that a worker takes once for a
// batch of work (docs/engine.md tells why, with measurements). The variable queues follow Apache MXNet's
// threaded engine in meaning (Chen et al., 2015), not in mechanism.
#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <iosfwd>
#include <memory>
#include <new>
#include <optional>
#include <source_location>
#include <string>
#include <type_traits>
#include <utility>

#include "engine/base/error.h"
#include "engine/detail/op.h"
#include "engine/options.h"
#include "engine/run_context.h"
#include "engine/segment.h"
#include "engine/var.h"

namespace mx {

namespace detail {
struct EngineLoad;
}

class Engine {
 public:
  /// The engine of the process, started on first use with EngineOptions::from_environment(). It drains when
  /// the process exits; variables deleted after that are ignored.
  static Engine& get();

  /// An engine of its own: own variables, workers and counters.
  explicit Engine(const EngineOptions& options = EngineOptions::from_environment());
  /// shutdown(); errors that no caller has looked at are logged. Inside an operation, as when exit() is
  /// called there, it waits for nothing: what has not started never will, and the engine's memory stays.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// A variable. Fresh ones do not block: they count as written. The name is for messages and must outlive
  /// the engine.
  Var new_var(const char* name = nullptr);

  /// Ends the handle at once; the variable itself goes after its last pushed use. Never waits. A null handle
  /// is ignored, a stale one throws InvalidHandle; after shutdown it does nothing.
  void delete_var(Var v);

  /// Queues `fn(RunContext)` (or `fn()`) and returns. `fn` is destroyed after it has run, or when it is
  /// skipped, before dependants start. Throws InvalidArgument (null function), InvalidHandle, InvalidState
  /// (after shutdown, in a forked child), OutOfMemory; when it throws, nothing was queued. A push that
  /// another thread's delete_var() of one of its variables overtakes may fail instead: the operation does not
  /// run, and what it would have written is poisoned with InvalidHandle.
  template <class F>
  void push(F&& fn, const PushOptions& options = {},
            std::source_location where = std::source_location::current()) {
    using Fn = std::decay_t<F>;
    static_assert(std::invocable<Fn&, RunContext> || std::invocable<Fn&>,
                  "an operation is called as fn(RunContext) or fn()");
    push_closure<Fn, false>(std::forward<F>(fn), options, where);
  }

  /// Queues `fn(RunContext, Completion)`. The operation ends when the completion is called, from any thread,
  /// then or later. An exception out of `fn` fails it, unless the completion was already used.
  template <class F>
  void push_async(F&& fn, const PushOptions& options = {},
                  std::source_location where = std::source_location::current()) {
    using Fn = std::decay_t<F>;
    static_assert(std::invocable<Fn&, RunContext, Completion>,
                  "an asynchronous operation is called as fn(RunContext, Completion)");
    push_closure<Fn, true>(std::forward<F>(fn), options, where);
  }

  /// Blocks until every write pushed to `v` before this call has landed in memory; pending readers do not
  /// delay it. Throws the root error if that version of `v` is poisoned. Meanwhile the calling thread may run
  /// operations that this one depends on.
  void wait(Var v);
  /// The same with a limit; false when it passed first. Runs no operation, so that it keeps the limit.
  bool wait(Var v, int64_t timeout_ms);

  /// Blocks until everything pushed before this call has ended. Throws the first error since the last
  /// wait_all(), with how many there were.
  void wait_all();
  bool wait_all(int64_t timeout_ms);

  /// Queued like a push: when its turn comes, a variable that only *skipped updates* have poisoned is healed
  /// and holds its last good value again. A variable whose writer itself failed stays poisoned.
  void recover(Var v, std::source_location where = std::source_location::current());

  /// Skips everything pushed before this call that has not started; what it would have written is poisoned
  /// with Cancelled.
  void cancel();

  /// While paused nothing new starts; pushing goes on. Calls nest.
  void pause();
  void resume();

  /// Records what `program` pushes to this engine, without running it, into a replayable segment.
  Segment record(const std::function<void()>& program, const RecordOptions& options = {});

  /// Returns whether the calling thread may run an operation itself instead of pushing it, provided that no
  /// pending operation uses its variables. True in mode threaded, if no profiler, history or watchdog is on
  /// and the pushes of this thread are not recorded; otherwise the difference would show.
  bool direct() const;
  /// Does this thread record a segment of this engine? What it pushes then runs again with every replay.
  bool recording() const;

  /// Inside an operation of an engine in mode `check` that has not declared `v` for reading (or writing): the
  /// name of that operation; nothing in all other cases. For layers that use memory without waiting.
  static std::optional<std::string> undeclared_in(Var v, bool write);

  /// Drains, then refuses further pushes: when it returns, every push that did not throw has run. A push on
  /// another thread that shutdown() overtakes throws InvalidState; its function is destroyed and never runs.
  /// Idempotent.
  void shutdown();

  const EngineOptions& options() const;
  EngineStats stats() const;

  /// A trace of what ran: a row per thread and stream, arrows for dependencies. Opens in Perfetto. The file
  /// is written as a whole or not at all; throws InvalidArgument with the reason.
  void profiler_start();
  void profiler_stop();
  void write_trace(const std::string& path) const;
  /// The last EngineOptions::history operations and their dependencies, in Graphviz's language.
  void write_dot(std::ostream& out) const;

 private:
  friend class Segment;
  friend struct detail::EngineLoad;  // engine/detail/engine_load.h

  template <class Fn, bool kAsync, class F>
  void push_closure(F&& fn, const PushOptions& options, const std::source_location& where) {
    if constexpr (!std::is_function_v<std::remove_reference_t<F>> &&
                  requires { static_cast<bool>(fn == nullptr); }) {
      if (fn == nullptr) detail::throw_null_function(options.name, where);
    }
    detail::Op* op = begin_push(&detail::kOpType<Fn, kAsync>, options, where);
    if constexpr (std::is_nothrow_constructible_v<Fn, F&&> && detail::fits_inline<Fn>) {
      ::new (op->closure()) Fn(std::forward<F>(fn));
    } else {
      try {
        detail::construct_closure<Fn>(op, std::forward<F>(fn));
      } catch (const std::bad_alloc&) {
        abandon_push(op);
        detail::throw_no_memory(options.name, where);
      } catch (...) {
        abandon_push(op);
        throw;
      }
    }
    end_push(op);
  }

  // A push in three parts, so that the closure is built in place between the checks and the submission.
  detail::Op* begin_push(const detail::OpType* type, const PushOptions& options,
                         const std::source_location& where);
  void abandon_push(detail::Op* op) noexcept;
  void end_push(detail::Op* op);

  detail::EngineImpl* const impl_;  // owned; it stays when the destructor cannot drain
};

/// A name that outlives every engine: returns the one copy of `name` in the process.
const char* intern(const std::string& name);

}  // namespace mx
