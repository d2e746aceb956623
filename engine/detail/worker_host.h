// WorkerHost: the oneTBB arena that lends its threads to the engine's workers. Internal.
//
// A worker is a task of the arena that loops until there has been nothing to do for a while, and then goes
// back to oneTBB, so that parallel loops inside operations get the threads. oneTBB alone would give a machine
// of n processors n - 1 workers (it counts the main thread); the global_control here makes them n.
#pragma once

#include <atomic>
#include <functional>
#include <memory>

namespace mx::detail {

class WorkerHost {
 public:
  /// `threads` workers, and one more that is only called for communication.
  WorkerHost(int threads, std::function<void()> work);
  ~WorkerHost();

  /// Runs work() on a thread of the arena, soon. Throws std::bad_alloc; then it does not.
  void call();
  /// Blocks until no call is queued or running.
  void join();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mx::detail
