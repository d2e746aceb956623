// Errors of the CUDA runtime as mx errors, and the current device of a thread.
#pragma once

#include <cuda_runtime_api.h>

#include "engine/base/error.h"

/// Throws DeviceError with the call, its place and CUDA's text unless the call succeeds:
///   MX_CUDA(cudaMemsetAsync(p, 0, bytes, stream));
#define MX_CUDA(expression)                                                                        \
  do {                                                                                             \
    if (const cudaError_t mx_cuda_error = (expression); mx_cuda_error != cudaSuccess) [[unlikely]] \
      ::mx::throw_cuda_error(mx_cuda_error, #expression, __FILE__, __LINE__);                      \
  } while (false)

namespace mx {

/// Thrown by MX_CUDA. Carries the CUDA error code, from which the backend recognises a lost device.
class CudaError final : public DeviceError {
 public:
  /// `subject`: what the text says first, for instance "gpu(0) is lost: "; null: nothing.
  CudaError(cudaError_t code, const char* call, const char* file, int line, const char* subject = nullptr);
  cudaError_t code() const { return code_; }

 private:
  cudaError_t code_;
};

/// Clears the thread's last error, which the exception replaces, and throws CudaError.
[[noreturn]] void throw_cuda_error(cudaError_t code, const char* call, const char* file, int line);

/// Returns true if every call on the device's context fails after this error. Only a new process can then use
/// the device again.
bool is_sticky(cudaError_t code) noexcept;

/// Returns true for the errors 900 to 908, which CUDA gives for calls that a graph capture does not allow.
/// Also a capture of other code in global mode, which restricts every thread.
bool is_capture_error(cudaError_t code) noexcept;

/// Returns whether an event of a device has been reached. May be called while any thread captures. Neither
/// leaves "not ready" as the thread's last error nor clears an earlier one.
cudaError_t query_event(int device, cudaEvent_t event) noexcept;

/// Scope in which a thread may make calls that CUDA forbids during a capture because they could touch the
/// captured stream: a capture of this thread, or one of any other code in global mode, which restricts every
/// thread. Use it only for calls that do not touch such a stream, or that only launch work on it: launches
/// are captured in every mode.
class CaptureExempt {
 public:
  CaptureExempt() noexcept;
  ~CaptureExempt();
  CaptureExempt(const CaptureExempt&) = delete;

 private:
  bool exchanged_ = false;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // the mode to restore
};

/// Makes a device current for the calling thread, until the end of the scope. Does not throw: a device that
/// cannot be made current fails the calls that follow. Leaves no last error.
///
/// It pushes the device's primary context instead of calling cudaSetDevice(). To restore a thread's device,
/// cudaSetDevice() would create a context on it: on GPU 0, for every thread that has chosen none.
class CudaGuard {
 public:
  explicit CudaGuard(int id) noexcept;
  ~CudaGuard();
  CudaGuard(const CudaGuard&) = delete;
  CudaGuard& operator=(const CudaGuard&) = delete;

 private:
  bool pushed_ = false;
  int before_ = -1;  // without the driver's functions, the device to restore; -1: none
};

}  // namespace mx
