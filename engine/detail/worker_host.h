// WorkerHost: the oneTBB arena that lends its threads to the engine's workers. Internal.
//
// A worker is a task of the arena that loops until there has been no work for a while. Then it returns its
// thread to oneTBB, so that parallel loops inside operations can use it. By default oneTBB has n - 1 workers
// on a machine of n processors, because it counts the main thread; the global_control here allows the threads
// that WorkerHost() needs.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

namespace mx::detail {

class WorkerHost {
 public:
  /// Makes room for `threads` workers, and for one more that is called for work that must not wait for them.
  /// Keeps oneTBB from starting more than `most` threads in the whole process.
  WorkerHost(int threads, int most, std::function<void()> work);
  ~WorkerHost();

  /// Returns how many threads oneTBB may start in this process for an engine with `threads` workers,
  /// including those for other loops.
  static int most_started(int threads);

  /// Queues a call of work() on a thread of the arena. If it throws std::bad_alloc, nothing was queued.
  void call();
  /// Blocks until no call is queued or running.
  void join();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mx::detail
