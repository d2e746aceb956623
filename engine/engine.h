// The engine: runs each operation as soon as the variables that it reads and writes allow. The results are
// those of running the operations one after another in push order.
//
//   Engine& e = Engine::get();
//   Var a = e.new_var(), b = e.new_var();
//   e.push([&](RunContext) { x = load(); },   {.writes = {a}, .name = "load"});
//   e.push([&](RunContext) { y = f(x); },     {.reads = {a}, .writes = {b}, .name = "f"});
//   e.wait(b);                                // rethrows the error that poisoned b, if any
//
// Contract: docs/engine.md. In short: readers of a variable share it, a writer or updater has it alone. A
// push returns without waiting for its operation. wait() returns when the earlier writes have landed in
// memory.
//
// Thread-safety: any thread may call any member at any time, with one exception: inside an operation, wait,
// wait_all and shutdown throw InvalidState. They also throw on a thread that helps with a loop of an
// operation.
//
// Design: operations are submitted to one ring. The dependency state is plain data under one lock, which a
// worker takes once for a batch of operations (docs/engine.md gives the reasons, with measurements). The
// queues of the variables have the semantics of Apache MXNet's threaded engine (Chen et al., 2015), but
// another implementation.
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
  /// Returns the engine of the process. The first call starts it with EngineOptions::from_environment(). It
  /// drains when the process exits; after that, deleting a variable does nothing.
  static Engine& get();

  /// Starts an engine with variables, workers and counters of its own.
  explicit Engine(const EngineOptions& options = EngineOptions::from_environment());
  /// Calls shutdown(), and logs the errors that no caller has observed. Inside an operation, for instance if
  /// the operation calls exit(), the destructor does not wait: operations that have not started never run,
  /// and the engine's memory is not freed.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// Creates a variable. A new variable counts as written, so its first reader does not wait. The name is for
  /// messages and must outlive the engine.
  Var new_var(const char* name = nullptr);

  /// Invalidates the handle at once, and frees the variable after its last pushed use. Never blocks. Ignores
  /// a null handle, throws InvalidHandle for a stale one, and does nothing after shutdown.
  void delete_var(Var v);

  /// Queues `fn(RunContext)` (or `fn()`) and returns. `fn` is destroyed after it has run or has been skipped,
  /// and before dependants start. Throws InvalidArgument (null function), InvalidHandle, InvalidState (after
  /// shutdown, in a forked child) or OutOfMemory; a push that throws has queued nothing. If another thread
  /// calls delete_var() for one of the variables during the push, the push may succeed and the operation
  /// fail: it does not run, and what it would have written is poisoned with InvalidHandle.
  template <class F>
  void push(F&& fn, const PushOptions& options = {},
            std::source_location where = std::source_location::current()) {
    using Fn = std::decay_t<F>;
    static_assert(std::invocable<Fn&, RunContext> || std::invocable<Fn&>,
                  "an operation is called as fn(RunContext) or fn()");
    push_closure<Fn, false>(std::forward<F>(fn), options, where);
  }

  /// Queues `fn(RunContext, Completion)`. The operation ends when `fn` has returned and the completion has
  /// been called, inside `fn` or later, from any thread. If `fn` throws, the operation fails, unless the
  /// completion was already used.
  template <class F>
  void push_async(F&& fn, const PushOptions& options = {},
                  std::source_location where = std::source_location::current()) {
    using Fn = std::decay_t<F>;
    static_assert(std::invocable<Fn&, RunContext, Completion>,
                  "an asynchronous operation is called as fn(RunContext, Completion)");
    push_closure<Fn, true>(std::forward<F>(fn), options, where);
  }

  /// Blocks until every write pushed to `v` before this call has landed in memory; pending readers do not
  /// delay it. Throws the root cause if that version of `v` is poisoned. While it blocks, the calling thread
  /// may run operations that those writes depend on.
  void wait(Var v);
  /// The same with a time limit; returns false if the limit passes first. Runs no operation meanwhile,
  /// because an operation could take longer than the limit.
  bool wait(Var v, int64_t timeout_ms);

  /// Blocks until everything pushed before this call has ended. Throws the first error since the last
  /// wait_all(); its message gives the number of further errors.
  void wait_all();
  /// The same with a time limit; returns false if the limit passes first.
  bool wait_all(int64_t timeout_ms);

  /// Heals a variable that only *skipped updates* have poisoned: it holds its last good value again. A
  /// variable whose writer itself failed stays poisoned. Queued like a push, and takes effect at its place in
  /// push order.
  void recover(Var v, std::source_location where = std::source_location::current());

  /// Skips every operation pushed before this call that has not started, and poisons what it would have
  /// written with Cancelled.
  void cancel();

  /// Between pause() and the matching resume() no operation starts. Pushes are still accepted. Calls nest.
  void pause();
  void resume();

  /// Records what `program` pushes to this engine, without running it, into a replayable segment.
  Segment record(const std::function<void()>& program, const RecordOptions& options = {});

  /// Returns whether the calling thread may run an operation itself instead of pushing it, provided that no
  /// pending operation uses its variables. True in mode threaded, if no profiler, history or watchdog is on
  /// and the pushes of this thread are not recorded; otherwise the difference would show.
  bool direct() const;
  /// Returns true if this thread is recording a segment of this engine. The operations that the thread pushes
  /// then run with every replay of that segment.
  bool recording() const;

  /// Returns the name of the operation that the calling thread runs, if its engine is in mode `check` and the
  /// operation has not declared `v` for reading (`write`: for writing). Returns nullopt in all other cases.
  /// For layers that use memory without waiting.
  static std::optional<std::string> undeclared_in(Var v, bool write);

  /// Drains, then refuses further pushes: when it returns, every push that did not throw has run. A push on
  /// another thread that shutdown() overtakes throws InvalidState; its function is destroyed and never runs.
  /// Idempotent.
  void shutdown();

  const EngineOptions& options() const;
  EngineStats stats() const;

  /// profiler_start() begins a new trace and profiler_stop() ends it. write_trace() writes it to a file that
  /// Perfetto opens: a row per thread and stream, arrows for dependencies. The file is written as a whole or
  /// not at all; if it cannot be written, write_trace() throws InvalidArgument with the reason.
  void profiler_start();
  void profiler_stop();
  void write_trace(const std::string& path) const;
  /// Writes the last EngineOptions::history operations and their dependencies in Graphviz's language.
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

  // The parts of a push. The closure is built in place after the checks of begin_push() and before end_push()
  // submits the operation; if its constructor throws, abandon_push() takes the operation back.
  detail::Op* begin_push(const detail::OpType* type, const PushOptions& options,
                         const std::source_location& where);
  void abandon_push(detail::Op* op) noexcept;
  void end_push(detail::Op* op);

  detail::EngineImpl* const impl_;  // owned; leaked if the destructor cannot drain
};

/// Returns the one copy of `name` in the process, which outlives every engine.
const char* intern(const std::string& name);

}  // namespace mx
