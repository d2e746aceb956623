// What tests ask of a device of any kind: memory, a few operations on doubles, and two ways to meet it in the
// middle of its work. Operations enqueue on a stream and return; they are meant to be called from operations
// of the engine with RunContext::stream().
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

/// Work that stops until `expected` pieces of work have got there: those of streams that attend() and the
/// host. Gives up after some seconds, so that a test fails instead of hanging.
class Meeting {
 public:
  virtual ~Meeting() = default;
  virtual void attend(Stream& stream) = 0;
  /// The host has come. Does not stop.
  virtual void host_attends() = 0;
  /// How many have come so far. Never blocks.
  virtual int arrived() const = 0;
  /// Nobody has given up.
  virtual bool all_met() const = 0;
};

/// The operations of one kind of device. Element i of `out` depends on element i of the inputs; out may be
/// one of them, except for matmul.
class StreamOps {
 public:
  virtual ~StreamOps() = default;
  virtual void fill(Stream& stream, double* out, size_t size, double value) = 0;
  virtual void add(Stream& stream, const double* a, const double* b, double* out, size_t size) = 0;
  /// Square matrices of n rows.
  virtual void matmul(Stream& stream, const double* a, const double* b, double* out, size_t n) = 0;
  virtual std::unique_ptr<Meeting> new_meeting(int expected) = 0;

  /// Between devices, or the host, cpu().
  static void copy(Stream& stream, double* target, Context target_context, const double* source,
                   Context source_context, size_t size);
};

/// Throws DeviceError for a kind of device that this build has no operations for.
StreamOps& stream_ops(Context context);

/// Tasks are host code (the virtual device), so that a test may put any code into one.
bool runs_host_code(Context context);

/// Those of GPUs: stream_ops_cuda.cu, or a stub that throws.
StreamOps& cuda_stream_ops();

}  // namespace mx::test
