#include "engine/device/cuda/cuda_error.h"

#include "engine/base/check.h"
#include "engine/device/cuda/cuda_driver.h"

namespace mx {

CudaError::CudaError(cudaError_t code, const char* call, const char* file, int line, const char* subject)
    : DeviceError(detail::concat("[cuda] ", subject == nullptr ? "" : subject, "expected success of ", call,
                                 ", got ", cudaGetErrorName(code), " (", cudaGetErrorString(code), ") at ",
                                 file, ":", line)),
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

CaptureExempt::CaptureExempt() noexcept {
  exchanged_ = cudaThreadExchangeStreamCaptureMode(&mode_) == cudaSuccess;
  if (!exchanged_) (void)cudaGetLastError();
}

CaptureExempt::~CaptureExempt() {
  if (exchanged_) (void)cudaThreadExchangeStreamCaptureMode(&mode_);
}

bool is_capture_error(cudaError_t code) noexcept {
  return code >= cudaErrorStreamCaptureUnsupported && code <= cudaErrorStreamCaptureWrongThread;
}

cudaError_t query_event(int device, cudaEvent_t event) noexcept {
  const CudaGuard guard(device);  // without it, the query may create the context of the thread's own device
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
  if (const CUcontext context = primary_context(id)) {
    pushed_ = cuda_driver().push_current(context) == CUDA_SUCCESS;
    if (pushed_) return;
  }
  int current = -1;
  if (cudaGetDevice(&current) == cudaSuccess) {
    if (current == id) return;
    if (cudaSetDevice(id) == cudaSuccess) {
      before_ = current;
      return;
    }
  }
  (void)cudaGetLastError();
}

CudaGuard::~CudaGuard() {
  if (pushed_) {
    CUcontext popped = nullptr;
    (void)cuda_driver().pop_current(&popped);
  } else if (before_ >= 0 && cudaSetDevice(before_) != cudaSuccess) {
    (void)cudaGetLastError();
  }
}

}  // namespace mx
