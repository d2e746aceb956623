// EngineLoad: the current load of an engine's threads. The layers above choose by it whether to push an
// operation or to run it in the caller, if Engine::direct() allows that. Internal. Any thread may call it; it
// takes no lock. The answers are hints: they may be out of date at once, and either choice is correct.
#pragma once

namespace mx {

class Engine;

namespace detail {

struct EngineLoad {
  /// Returns true if every thread of the engine is running an operation and another thread is waiting. A
  /// caller should then run its operation itself.
  static bool crowded(const Engine& engine);
  /// Returns true if the engine has two threads and the second one is polling for work. That thread joins the
  /// loops of an operation that the caller runs itself. False for any other number of threads: larger engines
  /// do better with one operation per thread.
  static bool second_thread_searches(const Engine& engine);
};

}  // namespace detail
}  // namespace mx
