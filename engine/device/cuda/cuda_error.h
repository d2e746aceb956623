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

/// What MX_CUDA throws: carries the code, by which the backend tells a lost device.
class CudaError final : public DeviceError {
 public:
  CudaError(cudaError_t code, const char* call, const char* file, int line);
  cudaError_t code() const { return code_; }

 private:
  cudaError_t code_;
};

/// Clears the thread's last error, which the exception replaces, and throws CudaError.
[[noreturn]] void throw_cuda_error(cudaError_t code, const char* call, const char* file, int line);

/// After this error every call on the device's context fails: only ending the process heals it.
bool is_sticky(cudaError_t code) noexcept;

/// Asks whether an event has been reached, without leaving "not ready" behind as the thread's last error
/// and without hiding one that was there before.
cudaError_t query_event(cudaEvent_t event) noexcept;

/// While it lives, the calling thread captures a graph in thread-local mode.
class CapturingThread {
 public:
  CapturingThread() noexcept;
  ~CapturingThread();
  CapturingThread(const CapturingThread&) = delete;
};

/// Until the end of the scope a thread that captures may call what CUDA forbids it meanwhile, because it
/// could touch the captured stream: for calls that do not. Costs nothing on other threads.
class CaptureExempt {
 public:
  CaptureExempt() noexcept;
  ~CaptureExempt();
  CaptureExempt(const CaptureExempt&) = delete;

 private:
  bool exchanged_ = false;
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;  // to go back to
};

/// Makes a device current for the calling thread, until the end of the scope. Does not throw: a device that
/// cannot be made current fails the calls that follow.
class CudaGuard {
 public:
  explicit CudaGuard(int id) noexcept;
  ~CudaGuard();
  CudaGuard(const CudaGuard&) = delete;
  CudaGuard& operator=(const CudaGuard&) = delete;

 private:
  int before_ = -1;  // to go back to; -1 if the device was current already
};

}  // namespace mx
