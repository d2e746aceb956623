// What tests need from a device of any kind: memory, a few operations on doubles, and two ways to synchronize
// with the device in the middle of its work. The operations enqueue work on a stream and return. Operations
// of the engine call them with RunContext::stream().
#pragma once

#include <cstddef>
#include <memory>

#include "engine/device/device.h"

namespace mx::test {

/// `size` doubles on a device, usable on any of its streams.
class DeviceArray {
 public:
  DeviceArray(Context context, size_t size);
  ~DeviceArray();
  DeviceArray(const DeviceArray&) = delete;

  double* data() const { return data_; }
  size_t size() const { return size_; }
  size_t bytes() const { return size_ * sizeof(double); }
  Context context() const { return context_; }

 private:
  Context context_;
  size_t size_;
  double* data_;
};

/// Work that blocks until `expected` participants have arrived: streams that call attend(), and the host.
/// Gives up after some seconds, so that a test fails instead of hanging.
class Meeting {
 public:
  virtual ~Meeting() = default;
  virtual void attend(Stream& stream) = 0;
  /// Counts the host as arrived. Does not block.
  virtual void host_attends() = 0;
  /// Returns the number of arrivals so far. Never blocks.
  virtual int arrived() const = 0;
  /// Returns true if no participant has given up.
  virtual bool all_met() const = 0;
};

/// The operations of one kind of device. Except in matmul, element i of `out` depends only on element i of
/// the inputs, so `out` may be one of them.
class StreamOps {
 public:
  virtual ~StreamOps() = default;
  virtual void fill(Stream& stream, double* out, size_t size, double value) = 0;
  virtual void add(Stream& stream, const double* a, const double* b, double* out, size_t size) = 0;
  /// Multiplies square matrices of n rows.
  virtual void matmul(Stream& stream, const double* a, const double* b, double* out, size_t n) = 0;
  virtual std::unique_ptr<Meeting> new_meeting(int expected) = 0;

  /// Copies between devices, or between a device and the host, cpu().
  static void copy(Stream& stream, double* target, Context target_context, const double* source,
                   Context source_context, size_t size);
};

/// Returns the operations for the kind of device of `context`. Throws DeviceError for a kind that this build
/// has no operations for.
StreamOps& stream_ops(Context context);

/// Returns true if tasks are host code (the virtual device), so a test may put any code into a task.
bool runs_host_code(Context context);

/// Returns the operations of GPUs: tests/cuda/suites/stream_ops.cc, or a stub that throws.
StreamOps& cuda_stream_ops();

}  // namespace mx::test
