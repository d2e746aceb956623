#include "operators/cuda/cudnn.h"

#include <array>
#include <map>
#include <mutex>
#include <new>
#include <string>
#include <vector>

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
  return mx::detail::concat("[cuDNN] expected success of ", call, ", got ", cudnn().error_text(status),
                            detail.front() == '\0' ? "" : ": ", detail.data());
}

struct CudnnHandles {
  std::mutex mutex;
  std::map<int, std::vector<cudnnHandle_t>> idle;  // guarded by mutex
};

CudnnHandles& cudnn_handles() {
  static CudnnHandles& all = *new CudnnHandles;
  return all;
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

CudnnHandle::CudnnHandle(int device) : device_(device) {
  CudnnHandles& all = cudnn_handles();
  {
    const std::lock_guard lock(all.mutex);
    std::vector<cudnnHandle_t>& idle = all.idle[device];
    if (!idle.empty()) {
      raw_ = idle.back();
      idle.pop_back();
      return;
    }
  }
  // The thread may be capturing a graph; creating a handle does not touch its stream.
  const CaptureExempt exempt;
  check_cudnn(cudnn().create(&raw_), "cudnnCreate");
}

CudnnHandle::~CudnnHandle() {
  CudnnHandles& all = cudnn_handles();
  const std::lock_guard lock(all.mutex);
  try {
    all.idle[device_].push_back(raw_);
  } catch (const std::bad_alloc&) {  // another one will be created
  }
}

}  // namespace mx::cuda
