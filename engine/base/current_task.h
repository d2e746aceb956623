// CurrentTask: the operation that a thread works for. Internal.
//
// The thread that runs an operation and the threads that help with its loops have the same CurrentTask. So
// the same rules hold on all of them: waiting throws, pushing never blocks, and mode `check` compares
// accesses with what the operation declared. The types belong to the engine; this layer only passes the
// pointers on.
#pragma once

#include <cstdint>

namespace mx::detail {

struct Op;
class EngineImpl;
class SegmentImpl;

struct CurrentTask {
  Op* operation = nullptr;       // the operation that this thread works for; null outside of operations
  EngineImpl* engine = nullptr;  // the engine of that operation
  const SegmentImpl* segment = nullptr;  // not null: the thread runs this segment's operation number `node`
  uint32_t node = 0;
  SegmentImpl* recording = nullptr;        // not null: pushes are recorded into it
  EngineImpl* recording_engine = nullptr;  // the engine of that segment; null with it
};

extern thread_local constinit CurrentTask current_task __attribute__((tls_model("initial-exec")));

/// While this object lives, the calling thread works for `task`, and its pushes are not recorded: only the
/// thread that called record() records.
class WorkingFor {
 public:
  explicit WorkingFor(const CurrentTask& task) : before_(current_task) {
    current_task = task;
    current_task.recording = nullptr;
    current_task.recording_engine = nullptr;
  }
  ~WorkingFor() { current_task = before_; }
  WorkingFor(const WorkingFor&) = delete;
  WorkingFor& operator=(const WorkingFor&) = delete;

 private:
  const CurrentTask before_;
};

}  // namespace mx::detail
