// Options of a push, of a recording and of an engine, and the counters of an engine.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/device/device.h"
#include "engine/var.h"

namespace mx {

/// A value that converts from and to T, for the members of PushOptions. If an aggregate has a default for a
/// *scalar* member, GCC 12 clears the whole aggregate before it fills it in: 300 bytes at every push. The
/// constructor of this class is not constexpr, which avoids that.
template <class T>
class Option {
 public:
  Option(T value) : value_(value) {}
  operator const T&() const { return value_; }
  const T& get() const { return value_; }

 private:
  T value_;
};

/// The variables of an operation, where it runs and its name. A variable listed twice counts once. A variable
/// that is both read and written counts as updated.
struct PushOptions {
  VarList reads{};    ///< shared with other readers
  VarList writes{};   ///< replaced as a whole: heals a poisoned variable
  VarList updates{};  ///< read and modified
  Option<Context> context = cpu();
  Option<int> priority = 0;  ///< higher first among ready operations; kept within -32768..32767
  Option<const char*> name =
      nullptr;  ///< for errors and traces; must outlive the engine (a literal, or intern())
  Option<StreamKind> lane =
      StreamKind::compute;               ///< which queue of the device: compute, a copy direction, comm
  Option<uint64_t> bytes = uint64_t{0};  ///< memory held while in flight; counts against max_bytes_in_flight
};

/// How a segment is recorded. See segment.h.
struct RecordOptions {
  /// Replay as a graph of the device where that is possible: the functions are called once, and each replay
  /// repeats the work that they enqueued.
  bool device_graph = true;
};

/// How an engine executes. See docs/engine.md.
enum class EngineMode {
  threaded,  ///< workers on oneTBB
  naive,     ///< every operation runs inside its push; the oracle
  check,     ///< threaded, and an access that was not declared is an error
  fuzz,      ///< a random legal schedule on the pushing thread, repeatable for a single pusher
};

struct EngineOptions {
  EngineMode mode = EngineMode::threaded;
  uint64_t seed = 0;  ///< of EngineMode::fuzz
  int threads = 0;    ///< CPU workers; 0: usable_cpus()
  /// A push beyond this limit waits, as long as something can end, until half the limit is in flight. Below
  /// the limit a push waits as well if about a millisecond of work per thread is queued (at least 256
  /// operations per thread) and operations end. If only completion tokens can end operations and none has
  /// ended for 100 ms, the pusher itself may hold the tokens: the engine then admits as many operations
  /// again, and twice as many each time that this repeats.
  int64_t max_ops_in_flight = 1 << 16;
  uint64_t max_bytes_in_flight = UINT64_MAX;  ///< of PushOptions::bytes
  int spin_us = 50;                           ///< how long an idle worker spins for work before it leaves
  int watchdog_ms = 0;                        ///< warn about an operation that runs longer; 0: off
  int compute_streams = 0;                    ///< per accelerator; 0: what the device proposes
  int history = 0;                            ///< operations kept for write_dot()

  /// MX_ENGINE (threaded, naive, check, fuzz:SEED), MX_NUM_THREADS, MX_WATCHDOG_MS, MX_ENGINE_HISTORY.
  /// Throws InvalidArgument naming the variable and what was expected.
  static EngineOptions from_environment();
};

/// Counters since the engine started. They are not all read at the same instant.
struct EngineStats {
  uint64_t pushed = 0;
  uint64_t completed = 0;  ///< ended in any way
  uint64_t failed = 0;     ///< of these, with an error of their own
  uint64_t skipped = 0;    ///< of these, because of a poisoned input or cancel()
  uint64_t in_flight = 0;
  uint64_t bytes_in_flight = 0;
  uint64_t ready = 0;
  uint64_t running = 0;
  uint64_t waiting = 0;        ///< threads in wait() or wait_all() that could not return at once
  uint64_t worker_starts = 0;  ///< times a thread of oneTBB began to work for the engine
  uint64_t monitor_calls =
      0;  ///< times the monitor found ready operations that no worker took, and called some
  uint64_t worker_steps = 0;   ///< visits to the dependency state
  uint64_t throttled = 0;      ///< pushes that had to wait
  uint64_t stream_ops = 0;     ///< operations enqueued on streams
  uint64_t stream_waits = 0;   ///< event waits between streams
  uint64_t vars = 0;           ///< live variables
  uint64_t op_pool_bytes = 0;  ///< memory held for pending operations

  std::string to_string() const;
};

}  // namespace mx
