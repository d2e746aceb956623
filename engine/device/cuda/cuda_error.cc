#include "engine/device/cuda/cuda_error.h"

#include "engine/base/check.h"

namespace mx {

namespace {

thread_local int captures = 0;  // CapturingThreads that live on this thread

}  // namespace

CudaError::CudaError(cudaError_t code, const char* call, const char* file, int line)
    : DeviceError(detail::concat("[cuda] expected success of ", call, ", got ", cudaGetErrorName(code), " (",
                                 cudaGetErrorString(code), ") at ", file, ":", line)),
      code_(code) {}

void throw_cuda_error(cudaError_t code, const char* call, const char* file, int line) {
  (void)cudaGetLastError();
  throw CudaError(code, call, file, line);
}

bool is_sticky(cudaError_t code) noexcept {
  switch (code) {
    case cudaErrorCudartUnloading:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchTimeout:
    case cudaErrorContextIsDestroyed:
    case cudaErrorAssert:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorLaunchFailure:
    case cudaErrorMpsClientTerminated:
    case cudaErrorExternalDevice:
    case cudaErrorUnknown:
      return true;
    default:
      // Numbers that toolkits before 13 do not name: contained ECC error, tensor memory leak.
      return static_cast<int>(code) == 226 || static_cast<int>(code) == 721;
  }
}

CapturingThread::CapturingThread() noexcept { ++captures; }
CapturingThread::~CapturingThread() { --captures; }

CaptureExempt::CaptureExempt() noexcept {
  if (captures == 0) [[likely]]
    return;
  exchanged_ = cudaThreadExchangeStreamCaptureMode(&mode_) == cudaSuccess;
}

CaptureExempt::~CaptureExempt() {
  if (exchanged_) (void)cudaThreadExchangeStreamCaptureMode(&mode_);
}

bool is_capture_error(cudaError_t code) noexcept {
  return code >= cudaErrorStreamCaptureUnsupported && code <= cudaErrorStreamCaptureWrongThread;
}

cudaError_t query_event(cudaEvent_t event) noexcept {
  // Also on threads that do not capture: a capture in global mode by other code would refuse the query and
  // become invalid.
  cudaStreamCaptureMode mode = cudaStreamCaptureModeRelaxed;
  const bool exchanged = cudaThreadExchangeStreamCaptureMode(&mode) == cudaSuccess;
  const cudaError_t before = cudaPeekAtLastError();
  const cudaError_t code = cudaEventQuery(event);
  if (exchanged) (void)cudaThreadExchangeStreamCaptureMode(&mode);
  if (code != cudaSuccess && before == cudaSuccess) (void)cudaGetLastError();
  return code;
}

CudaGuard::CudaGuard(int id) noexcept {
  // With one GPU there is nothing to choose.
  static const bool single = [] {
    int count = 0;
    const bool known = cudaGetDeviceCount(&count) == cudaSuccess;
    if (!known) (void)cudaGetLastError();
    return known && count == 1;
  }();
  if (single) return;
  int current = -1;
  if (cudaGetDevice(&current) != cudaSuccess || current == id) return;
  if (cudaSetDevice(id) == cudaSuccess) before_ = current;
}

CudaGuard::~CudaGuard() {
  if (before_ >= 0) (void)cudaSetDevice(before_);
}

}  // namespace mx
