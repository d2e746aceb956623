#include "operators/cuda/cudnn.h"

#include <algorithm>
#include <array>
#include <map>
#include <mutex>
#include <string>

#include "engine/base/check.h"
#include "engine/device/cuda/cuda_error.h"
#include "operators/cuda/cuda_library.h"

namespace mx::cuda {
namespace {

Cudnn load_cudnn() {
  // Not libcudnn.so, which loads this one at the first call and ends the process if that fails.
  const CudaLibrary library("cuDNN", "libcudnn_graph.so." + std::to_string(CUDNN_MAJOR));
  Cudnn f{};
  library.load(f.version, "cudnnGetVersion");
  library.load(f.error_text, "cudnnGetErrorString");
  library.load(f.last_error, "cudnnGetLastErrorString");
  library.load(f.create, "cudnnCreate");
  library.load(f.set_stream, "cudnnSetStream");
  library.load(f.descriptor_create, "cudnnBackendCreateDescriptor");
  library.load(f.descriptor_destroy, "cudnnBackendDestroyDescriptor");
  library.load(f.set, "cudnnBackendSetAttribute");
  library.load(f.get, "cudnnBackendGetAttribute");
  library.load(f.finalize, "cudnnBackendFinalize");
  library.load(f.execute, "cudnnBackendExecute");
  return f;
}

Cudnn& cudnn_functions() {
  static Cudnn all = load_cudnn();
  return all;
}

std::string message_of(cudnnStatus_t status, const char* call) {
  std::array<char, 1024> detail{};
  cudnn().last_error(detail.data(), detail.size());
  detail.back() = '\0';
  std::replace(detail.begin(), detail.end(), '\n', '\0');  // one line of it
  return mx::detail::concat("[cuDNN] expected success of ", call, ", got ", cudnn().error_text(status),
                            detail.front() == '\0' ? "" : ": ", detail.data());
}

struct DeviceHandle {
  std::mutex mutex;
  cudnnHandle_t raw = nullptr;  // guarded by mutex
};

DeviceHandle& device_handle(int device) {
  static std::mutex& mutex = *new std::mutex;
  static std::map<int, DeviceHandle>& handles = *new std::map<int, DeviceHandle>;
  const std::lock_guard lock(mutex);
  return handles[device];
}

}  // namespace

const Cudnn& cudnn() { return cudnn_functions(); }

void replace_cudnn(const Cudnn& functions) { cudnn_functions() = functions; }

CudnnError::CudnnError(cudnnStatus_t status, const char* call)
    : DeviceError(message_of(status, call)), status_(status) {}

CudnnDescriptor::CudnnDescriptor(cudnnBackendDescriptorType_t type) {
  check_cudnn(cudnn().descriptor_create(type, &raw_), "cudnnBackendCreateDescriptor");
}

CudnnDescriptor::~CudnnDescriptor() {
  if (raw_ != nullptr) (void)cudnn().descriptor_destroy(raw_);
}

void CudnnDescriptor::set_values(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                                 int64_t count, const void* values) {
  check_cudnn(cudnn().set(raw_, name, type, count, values), "cudnnBackendSetAttribute");
}

int64_t CudnnDescriptor::get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t room,
                             void* to) const {
  int64_t count = 0;
  check_cudnn(cudnn().get(raw_, name, type, to == nullptr ? 0 : room, &count, to),
              "cudnnBackendGetAttribute");
  return count;
}

void CudnnDescriptor::finalize() { check_cudnn(cudnn().finalize(raw_), "cudnnBackendFinalize"); }

CudnnHandle::CudnnHandle(int device) {
  DeviceHandle& handle = device_handle(device);
  lock_ = std::unique_lock(handle.mutex);
  if (handle.raw == nullptr) {
    // The thread may be capturing a graph; creating a handle does not touch its stream.
    const CaptureExempt exempt;
    check_cudnn(cudnn().create(&handle.raw), "cudnnCreate");
  }
  raw_ = handle.raw;
}

}  // namespace mx::cuda
