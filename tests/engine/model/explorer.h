// The exhaustive checker: runs a small program of a few threads under every schedule.
//
// The threads are fibers. Each access to a CheckedAtomic (checked_atomic.h) is a scheduling point: there the
// explorer decides which thread continues. It runs the program repeatedly from the beginning, depth first
// over those decisions, until no decision is left. This is stateless search as in CHESS (Musuvathi et al.
// 2008), extended by a set of visited states, so that two orders of independent steps are not both followed
// to their end.
//
// A state consists of the value of every CheckedAtomic, of Model::digest() for everything else that the
// threads share, and, for each thread, of a digest of the values it has observed since its last checkpoint().
// The last part suffices because threads are deterministic. A state is kept as a 64-bit hash. If two
// different states had the same hash, schedules would be missed; with the ten million states of the largest
// case the probability is one in three hundred thousand.
//
// The explorer assumes sequential consistency. Comments at the memory orders in the code argue, by the
// release that each acquire pairs with, that they suffice on machines with weaker ordering; ThreadSanitizer
// tests them in the other tests of the engine. A weak compare-and-swap never fails spuriously here.
#pragma once

#include <cstdint>
#include <string>

namespace mx::test::model {

/// A program to check. The explorer calls reset(), then run() for each thread, then check_end().
class Model {
 public:
  virtual ~Model() = default;
  virtual int threads() const = 0;  // at most kMaxThreads
  /// Constructs all shared state again.
  virtual void reset() = 0;
  /// The body of a thread. At a scheduling point it must not own memory that an exception would leak: the
  /// explorer stops threads by an exception there.
  virtual void run(int thread) = 0;
  /// Returns a digest of all shared state that is not in a CheckedAtomic and that affects the rest of the run
  /// or a check.
  virtual uint64_t digest() const { return 0; }
  /// Called after all threads have ended; calls fail() if something is wrong.
  virtual void check_end() {}
  /// Returns the group of a thread. Threads of one group run the same code, and no shared state distinguishes
  /// them.
  virtual int group(int thread) const { return thread; }
};

inline constexpr int kMaxThreads = 6;

struct Exploration {
  uint64_t executions = 0;  // schedules that were run
  uint64_t states = 0;      // distinct states in which there was a choice
  uint32_t longest = 0;     // steps of the longest schedule
  bool complete = false;    // nothing is left to explore (within the limit of preemptions)
  // Empty if there was none, otherwise the violation and the schedule that leads to it.
  std::string violation;
};

struct Limits {
  /// Maximum number of preemptions in one execution, that is, of switches away from a thread that could
  /// continue; negative: no limit. For cases whose full space is too large: most errors need very few
  /// preemptions (Musuvathi and Qadeer 2007).
  int preemptions = -1;
  uint64_t executions = 50'000'000;
  bool remember_states = true;  // if false, every schedule is run to its end
};

/// Explores until all schedules have been run, a violation is found, or a limit is reached.
Exploration explore(Model& model, Limits limits = {});

// For the bodies of threads, and for check_end().

/// Ends the run and reports that a property does not hold.
[[noreturn]] void fail(const std::string& what);
inline void require(bool condition, const char* what) {
  if (!condition) fail(what);
}

// For the bodies of threads.

/// A scheduling point without an access: other threads may run here.
void point(const char* what);

/// Blocks the thread until `condition()`, a function of shared state, holds.
void wait_until(bool (*condition)(void*), void* argument, const char* what);
template <class F>
void wait_until(F&& condition, const char* what) {
  wait_until([](void* f) { return (*static_cast<F*>(f))(); }, &condition, what);
}

/// Tells the explorer a value that this thread has read from shared state other than a CheckedAtomic.
void observe(uint64_t value);

/// Promises that the thread's further behaviour depends only on `value`, its place in the code and shared
/// state, and on nothing else that it has read. Different places need different values.
void checkpoint(uint64_t value);

/// For retry loops: blocks until the CheckedAtomic that the thread accessed last has another value than the
/// one it has seen there.
void wait_for_change();

/// The pause of BasicEngineLock between two attempts.
struct CheckedBackoff {
  void operator()() { wait_for_change(); }
};

bool set_peeking(bool on);  // returns the previous setting
/// Calls f() without counting its accesses as steps, so that a thread can inspect the state.
template <class F>
auto peek(F&& f) {
  const bool before = set_peeking(true);
  const auto value = f();
  set_peeking(before);
  return value;
}

inline uint64_t mix(uint64_t digest, uint64_t value) {
  uint64_t x = (digest ^ value) * 0x9E3779B97F4A7C15u + 0x632BE59BD9B4E019u;
  x = (x ^ (x >> 32)) * 0xD6E8FEB86659FD93u;
  return x ^ (x >> 29) ^ (digest << 1);
}

}  // namespace mx::test::model
