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
  /// `threads` workers, and one more that is called for what must not wait for them. oneTBB is kept from
  /// starting more than `most` threads in the whole process.
  WorkerHost(int threads, int most, std::function<void()> work);
  ~WorkerHost();

  /// How many threads oneTBB may start in this process, for an engine with so many or for other loops.
  static int most_started(int threads);

  /// Runs work() on a thread of the arena, soon. Throws std::bad_alloc; then it does not.
  void call();
  /// Blocks until no call is queued or running.
  void join();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace mx::detail
