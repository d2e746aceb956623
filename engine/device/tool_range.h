// Named ranges of time that a tool outside this library sees: the engine's operations as NVTX ranges of the
// domain "mxrun", which Nsight Systems shows beside the work of the GPU.
//
// A tool announces itself by NVTX_INJECTION64_PATH before the process's first engine starts. Without one,
// with MX_NVTX=0, or in a build without CUDA, tool_listens() is false, and the engine makes no ranges.
//
// Thread-safety: safe from any thread; a range belongs to its thread.
#pragma once

namespace mx {

/// Returns whether a tool listens. The first call decides for the whole process.
bool tool_listens() noexcept;

/// Precondition: tool_listens(). Ranges of a thread end in the reverse order of their beginning.
void begin_tool_range(const char* name) noexcept;
void end_tool_range() noexcept;

class ToolRange {
 public:
  /// Does nothing if `on` is false. The name is read at once; null stands for "operation".
  ToolRange(bool on, const char* name) noexcept : on_(on) {
    if (on_) [[unlikely]]
      begin_tool_range(name);
  }
  ~ToolRange() {
    if (on_) [[unlikely]]
      end_tool_range();
  }
  ToolRange(const ToolRange&) = delete;
  ToolRange& operator=(const ToolRange&) = delete;

 private:
  const bool on_;
};

}  // namespace mx
