// Work of a known length on a stream of any device, with the moments when it began and ended.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

#include "engine/device/device.h"

namespace mx::bench {

struct Span {
  int64_t begin_ns = 0, end_ns = 0;  ///< of the device's clock
};

/// Room for `count` spans, which the device writes. Thread-safe for different indices.
class Work {
 public:
  virtual ~Work() = default;
  /// Enqueues work of `duration_ns` that notes when it ran as span `index`.
  virtual void enqueue(Stream& stream, size_t index, int64_t duration_ns) = 0;
  /// Once the work has ended.
  virtual Span span(size_t index) const = 0;
};

/// For the device; throws InvalidArgument for a kind that it knows no work for.
std::unique_ptr<Work> make_work(Context device, size_t count);

/// For GPUs; null without CUDA.
std::unique_ptr<Work> make_cuda_work(size_t count);

}  // namespace mx::bench
