// What a push and an engine can be told, and what an engine tells about itself.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "engine/device/device.h"
#include "engine/var.h"

namespace mx {

/// A plain value that converts from and to T. Members of PushOptions are such because GCC (12) clears an
/// aggregate that has a default for a *scalar* member as a whole before it fills it in: 300 bytes at every
/// push. A constructor that is not constexpr avoids that.
template <class T>
class Option {
 public:
  Option(T value) : value_(value) {}
  operator const T&() const { return value_; }
  const T& get() const { return value_; }

 private:
  T value_;
};

/// How an operation touches variables, where it runs and what it is called. A variable listed twice counts
/// once; one that is read and written is updated.
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
  /// Replay as a graph of the device where that is possible: the functions are called once, and what they
  /// enqueued is what is replayed.
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
  /// A push beyond it waits while something can finish, until half of it is left; one below it, too, as long
  /// as operations end and a few milliseconds of them are waiting. Where only completion tokens can end
  /// operations and none has ended for 100 ms (the pusher itself may hold them), as many operations again are
  /// admitted, and twice as many each time that this repeats.
  int64_t max_ops_in_flight = 1 << 16;
  uint64_t max_bytes_in_flight = UINT64_MAX;  ///< of PushOptions::bytes
  int spin_us = 50;                           ///< how long an idle worker looks for work before it leaves
  int watchdog_ms = 0;                        ///< warn about an operation that runs longer; 0: off
  int compute_streams = 0;                    ///< per accelerator; 0: what the device proposes
  int history = 0;                            ///< operations kept for write_dot()

  /// MX_ENGINE (threaded, naive, check, fuzz:SEED), MX_NUM_THREADS, MX_WATCHDOG_MS, MX_ENGINE_HISTORY.
  /// Throws InvalidArgument naming the variable and what was expected.
  static EngineOptions from_environment();
};

/// Counters since the engine started. A snapshot: not one instant of all of them.
struct EngineStats {
  uint64_t pushed = 0;
  uint64_t completed = 0;  ///< ended in any way
  uint64_t failed = 0;     ///< of these, by their own error
  uint64_t skipped = 0;    ///< of these, because something they read had failed, or cancelled
  uint64_t in_flight = 0;
  uint64_t bytes_in_flight = 0;
  uint64_t ready = 0;
  uint64_t running = 0;
  uint64_t waiting = 0;        ///< threads in wait() or wait_all() that could not return at once
  uint64_t worker_starts = 0;  ///< times a worker was called from oneTBB
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
