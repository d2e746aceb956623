// Work of a known length on a stream of any device; records when it began and ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/device/device.h"

namespace mx::bench {

struct Span {
  int64_t begin_ns = 0, end_ns = 0;  ///< by the device's clock
};

/// Holds `count` spans, which the device writes. Thread-safe for different indices.
class Work {
 public:
  virtual ~Work() = default;
  /// Enqueues work of `duration_ns` that records its begin and end in span `index`.
  virtual void enqueue(Stream& stream, size_t index, int64_t duration_ns) = 0;
  /// Enqueues the smallest work that the device can be given: a kernel of one thread that does nothing on a
  /// GPU.
  virtual void enqueue_empty(Stream& stream) = 0;
  /// Returns the span. Precondition: the work has ended.
  virtual Span span(size_t index) const = 0;
};

/// Creates the work for the device. Throws InvalidArgument for an unsupported kind of device.
std::unique_ptr<Work> make_work(Context device, size_t count);

/// Creates the work for GPUs; null without CUDA.
std::unique_ptr<Work> make_cuda_work(size_t count);

/// Launches empty kernels with bare CUDA, on a stream of its own, and returns the host's time per launch;
/// with `graph`, captured once and launched as a graph. 0 without CUDA.
double bare_launch_ns(int gpu, size_t count, bool graph);

}  // namespace mx::bench
