// LimitTimer: a thread that calls a function when a point in time passes. Internal.
//
//   LimitTimer timer([&] { ... });
//   timer.set(comm::Deadline::after_ms(1000));   // replaces an earlier point
//   timer.clear();
//
// A call of the function may have begun when clear() is called, so the function checks whether its reason is
// still there. In a child that the process has forked there is no such thread: the destructor does nothing.
//
// Thread-safety: any thread may call set() and clear(). The function runs on the timer's thread; it may call
// both, and must not throw.
#pragma once

#include <functional>
#include <memory>
#include <thread>

#include "comm/deadline.h"
#include "engine/base/process_mark.h"

namespace mx::detail {

class LimitTimer {
 public:
  /// Starts the thread. Throws OutOfMemory if the system cannot.
  explicit LimitTimer(std::function<void()> passed);
  /// Waits for a call of the function that is running.
  ~LimitTimer();
  LimitTimer(const LimitTimer&) = delete;
  LimitTimer& operator=(const LimitTimer&) = delete;

  void set(comm::Deadline at);
  void clear();

 private:
  struct State;

  const ProcessMark process_;
  std::unique_ptr<State> state_;
  std::thread thread_;
};

}  // namespace mx::detail
