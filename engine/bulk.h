// BulkScope: many small pushes submitted as one operation.
//
//   {
//     BulkScope bulk(engine, {.max_ops = 32});
//     for (auto& p : parameters) engine.push([&] { p.step(); }, {.reads = {p.grad}, .updates = {p.value}});
//   }                                             // submitted here, and after every 32 pushes
//
// What is collected runs in push order on one worker, and never side by side: for chains of small operations
// that are not to be spread over cores, and for programs that come from Apache MXNet and use its bulk size.
// It does not make an operation cheaper here: the engine's own cost of one is some 50 ns, and collecting
// costs as much or more (docs/performance.md).
//
// What the scope collects becomes one operation, which reads, writes and updates what they all do. So the
// engine is told later and less: an operation elsewhere that depends on one of them waits for all of them;
// a failure in one poisons what any of them writes or updates, and those behind it do not run; if something
// that any of them reads or updates is poisoned (and not written by the scope before), none runs. The error
// names the operation that failed and where it was pushed. Counters and write_dot() show one operation,
// "bulk".
//
// Collected pushes are submitted at the end of the scope, by flush(), when max_ops is reached, when a push
// cannot join them (asynchronous, another device or lane, another priority, a replay) and before wait(),
// wait_all(), recover(), record(), cancel(), pause(), resume() and shutdown() of this thread. A deletion
// comes behind what has been collected. Until they are submitted other threads do not see them: who shares
// them with another thread (that waits for them, pushes behind them, or deletes their variables) calls
// flush() first. A lone push is submitted as it is.
//
// Thread-safety: a scope belongs to the thread that made it, which destroys it; it is about that thread's own
// pushes, not those of operations that the thread helps with while it waits. Scopes nest: an inner one
// submits what the outer has and takes over until its end. Inside record() a scope does nothing. The engine
// must outlive it.
//
// The idea is Apache MXNet's bulk execution (engine bulk size).
#pragma once

namespace mx {

class Engine;

namespace detail {
class Bulk;
}

struct BulkOptions {
  int max_ops = 32;  ///< pushes per operation
};

class BulkScope {
 public:
  /// Throws InvalidArgument (max_ops), InvalidState (after shutdown, in a forked child), std::bad_alloc.
  explicit BulkScope(Engine& engine, const BulkOptions& options = {});
  /// flush()
  ~BulkScope();
  BulkScope(const BulkScope&) = delete;
  BulkScope& operator=(const BulkScope&) = delete;

  /// Submits what has been collected. Without memory for one operation it submits them one by one.
  void flush() noexcept;

 private:
  detail::Bulk* bulk_ = nullptr;  // null inside record()
};

}  // namespace mx
