// The exhaustive checker: runs a small program of a few threads under every schedule.
//
// The threads are fibers. Each access to a CheckedAtomic (checked_atomic.h) is a scheduling point: there the
// explorer decides who goes on. It runs the program again and again from its beginning, depth first over
// those decisions, until no decision is left: stateless search, as in CHESS (Musuvathi et al. 2008), with
// the states that have been seen remembered, so that two orders of independent steps are not both followed
// to their end.
//
// A state is: the value of every CheckedAtomic; Model::digest(), which stands for everything else the
// threads share; and for each thread a digest of what it has observed since the last checkpoint(), since
// threads are deterministic. It is kept as a 64-bit hash. Two different states of one hash would hide
// schedules; with the ten million states of the largest case the chance is one in three hundred thousand.
//
// What is explored is sequential consistency. That the memory orders in the code suffice on machines with
// weaker ones is argued where they stand, by what each acquire pairs with, and is tested by
// ThreadSanitizer in the other tests of the engine. A weak compare-and-swap never fails without reason here.
#pragma once

#include <cstdint>
#include <string>

namespace mx::test::model {

/// A program to check. The explorer calls reset(), then run() for each thread, then check_end().
class Model {
 public:
  virtual ~Model() = default;
  virtual int threads() const = 0;  // at most kMaxThreads
  /// Makes all shared state anew.
  virtual void reset() = 0;
  /// The body of a thread. It must not hold memory when it is stopped at a scheduling point by an exception.
  virtual void run(int thread) = 0;
  /// Everything shared that is not a CheckedAtomic and on which the rest of the run, or a check, depends.
  virtual uint64_t digest() const { return 0; }
  /// After all threads have ended; calls fail() if something is wrong.
  virtual void check_end() {}
  /// Threads of one group run the same code and are not told apart by anything shared.
  virtual int group(int thread) const { return thread; }
};

inline constexpr int kMaxThreads = 6;

struct Exploration {
  uint64_t executions = 0;  // schedules that were run
  uint64_t states = 0;      // different states in which there was a choice
  uint32_t longest = 0;     // steps of the longest
  bool complete = false;    // nothing is left to explore (within the number of preemptions)
  std::string violation;    // empty if there was none, else what, and the schedule that leads there
};

struct Limits {
  /// How often a thread that could go on may be stopped for another in one execution; negative: any number.
  /// For cases whose full space is too large: most errors need very few (Musuvathi and Qadeer 2007).
  int preemptions = -1;
  uint64_t executions = 50'000'000;
  bool remember_states = true;  // without, every schedule is run to its end
};

/// Explores until the end, the first violation, or a limit.
Exploration explore(Model& model, Limits limits = {});

// For the bodies of threads, and for check_end().

/// Ends the run: a property does not hold.
[[noreturn]] void fail(const std::string& what);
inline void require(bool condition, const char* what) {
  if (!condition) fail(what);
}

// For the bodies of threads.

/// A scheduling point that touches nothing: others may run here.
void point(const char* what);

/// Stops until `condition()`, a function of shared state, holds.
void wait_until(bool (*condition)(void*), void* argument, const char* what);
template <class F>
void wait_until(F&& condition, const char* what) {
  wait_until([](void* f) { return (*static_cast<F*>(f))(); }, &condition, what);
}

/// Tells the explorer a value that this thread has read from shared state other than CheckedAtomics.
void observe(uint64_t value);

/// Promises that what the thread does from here on depends on `value`, the place in the code and shared
/// state only, and on nothing else that it has read. Different places need different values.
void checkpoint(uint64_t value);

/// For loops that try again: stops until the CheckedAtomic that was accessed last has another value than
/// this thread has seen there.
void wait_for_change();

/// BasicEngineLock's pause between two tries.
struct CheckedBackoff {
  void operator()() { wait_for_change(); }
};

bool set_peeking(bool on);  // returns what was set before
/// f(), and its accesses are no steps: to look at the state from within a thread.
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
