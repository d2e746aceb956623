// Profiler: records when and on which row each operation ran, and the dependencies between them. Internal.
//
// While it is off, it costs one load per operation. While it is on, it keeps every operation in memory until
// the next start. Thread-safe. No file is written under its mutex, because the engine takes that under its
// lock. An entry for which there is no memory is missing from the trace; the operation does not fail.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <iosfwd>
#include <mutex>
#include <new>
#include <string>
#include <unordered_map>
#include <vector>

#include "engine/detail/op.h"
#include "engine/device/context.h"

namespace mx::detail {

class Profiler {
 public:
  /// `history` is the number of operations that write_dot() shows; 0: none are kept.
  explicit Profiler(size_t history) : history_(history), tracking_(history > 0) {}

  bool tracing() const { return tracing_.load(std::memory_order_relaxed); }
  /// Returns true if dependencies are recorded: while tracing, or if a history is kept.
  bool tracking() const { return tracking_.load(std::memory_order_relaxed); }

  void start();
  void stop();

  /// Records an operation and its dependencies, when it is linked. Calls must be in the order of the program.
  void linked(Op* op) noexcept;
  /// The same for the nodes of a replay, which run as operations later: see replay_begins().
  void linked(const Op* replay, const std::vector<Op*>& nodes) noexcept;
  /// Assigns what linked() has recorded for this replay to `nodes`, which now run for it.
  void replay_begins(const Op* replay, const std::vector<Op*>& nodes) noexcept;
  /// Records that the operation ran, on the row that row() names. The times are of now_ns().
  template <class Row>
  void ran(const Op* op, Row&& row, int64_t begin_ns, int64_t end_ns, const char* outcome) noexcept {
    try {
      add(op, row(), begin_ns, end_ns, outcome);
    } catch (const std::bad_alloc&) {
    }
  }
  /// Forgets the address of an operation, because its memory will be reused.
  void released(const Op* op);
  /// Records a span that is not an operation: a segment's node, or work of a device.
  void span(const std::string& row, const char* name, int64_t begin_ns, int64_t end_ns,
            const char* category = nullptr);

  /// Records how much memory of a device is allocated, and how much is reserved for it. An entry for which
  /// there is no memory is missing.
  void memory(Context context, int64_t at_ns, size_t in_use_bytes, size_t reserved_bytes) noexcept;

  void write_trace(const std::string& path) const;  // throws InvalidArgument
  void write_dot(std::ostream& out) const;

 private:
  void add(const Op* op, std::string row, int64_t begin_ns, int64_t end_ns, const char* outcome);

  struct Node {
    uint64_t id = 0;
    const char* name = nullptr;
    std::string where;
    std::vector<uint64_t> after;  // ids of its direct dependencies
  };
  struct Span {
    uint64_t id = 0;  // 0: none
    std::string row;
    const char* name = nullptr;
    const char* outcome = nullptr;
    const char* category = nullptr;
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
  };
  struct MemorySample {
    Context context;
    int64_t at_ns = 0;
    size_t in_use_bytes = 0;
    size_t reserved_bytes = 0;
  };
  struct VarHistory {
    uint64_t writer = 0;
    std::vector<uint64_t> readers;
  };
  static void write_events(std::ostream& out, const std::deque<Node>& nodes, const std::vector<Span>& spans,
                           const std::vector<MemorySample>& samples);
  uint64_t add_node(Op* op);

  const size_t history_;
  std::atomic<bool> tracing_{false};
  std::atomic<bool> tracking_;
  mutable std::mutex mutex_;
  uint64_t next_id_ = 1;
  std::unordered_map<const Op*, uint64_t> ids_;
  std::unordered_map<const VarBlock*, VarHistory> vars_;
  std::deque<Node> nodes_;  // by id; all of them while tracing, else the last history_
  std::vector<Span> spans_;
  std::vector<MemorySample> memory_;
};

}  // namespace mx::detail
