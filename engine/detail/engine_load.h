// EngineLoad: what an engine's threads do at this moment, for layers above that choose between pushing an
// operation and doing its work themselves (where Engine::direct() allows it). Internal; any thread, no lock.
// The answers are hints: they may be out of date when they arrive, and either choice is correct.
#pragma once

namespace mx {

class Engine;

namespace detail {

struct EngineLoad {
  /// Do as many threads run operations as the engine has, and does somebody wait (and perhaps help)? Who asks
  /// had then better do the work of an operation itself.
  static bool crowded(const Engine& engine);
  /// Does the second thread of an engine of two look for work that is not there? It then takes part in the
  /// loops of an operation that the caller runs itself. False for any other number of threads: more had
  /// better run several operations.
  static bool second_thread_searches(const Engine& engine);
};

}  // namespace detail
}  // namespace mx
