// cuDNN's graph API: its functions, loaded from the shared library at the first convolution on a GPU, its
// descriptors and its handles. Internal.
//
// Programs are not linked with the library and start without it. It is found like any shared library, or in
// a folder of MX_CUDA_LIBRARIES.
//
// Thread-safety: any thread may call. A descriptor belongs to one thread at a time.
#pragma once

#include <cudnn_graph.h>

#include <cstdint>
#include <mutex>
#include <span>
#include <string>

#include "engine/base/error.h"

namespace mx::cuda {

struct Cudnn {
  decltype(&cudnnGetVersion) version;
  decltype(&cudnnGetErrorString) error_text;
  decltype(&cudnnGetLastErrorString) last_error;
  decltype(&cudnnCreate) create;
  decltype(&cudnnSetStream) set_stream;
  decltype(&cudnnBackendCreateDescriptor) descriptor_create;
  decltype(&cudnnBackendDestroyDescriptor) descriptor_destroy;
  decltype(&cudnnBackendSetAttribute) set;
  decltype(&cudnnBackendGetAttribute) get;
  decltype(&cudnnBackendFinalize) finalize;
  decltype(&cudnnBackendExecute) execute;
};

/// Returns the functions. Throws DeviceError with the linker's message if the library cannot be loaded.
const Cudnn& cudnn();

/// Replaces the functions, for tests. Call it before the first convolution on a GPU.
void replace_cudnn(const Cudnn& functions);

/// A call of cuDNN that failed.
class CudnnError final : public DeviceError {
 public:
  CudnnError(cudnnStatus_t status, const char* call);
  /// Returns true if the work may have failed on the device. Otherwise the library refused it.
  bool of_execution() const { return CUDNN_STATUS_CATEGORY(status_) == CUDNN_STATUS_EXECUTION_FAILED; }

 private:
  cudnnStatus_t status_;
};

inline void check_cudnn(cudnnStatus_t status, const char* call) {
  if (status != CUDNN_STATUS_SUCCESS) [[unlikely]]
    throw CudnnError(status, call);
}

/// A descriptor of the library. Its calls throw CudnnError.
class CudnnDescriptor {
 public:
  explicit CudnnDescriptor(cudnnBackendDescriptorType_t type);
  CudnnDescriptor(CudnnDescriptor&& other) noexcept : raw_(other.raw_) { other.raw_ = nullptr; }
  CudnnDescriptor& operator=(CudnnDescriptor&&) = delete;
  ~CudnnDescriptor();

  cudnnBackendDescriptor_t raw() const { return raw_; }

  /// `T` must be the C type of `type`, such as int64_t for CUDNN_TYPE_INT64.
  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, std::span<const T> values) {
    set_values(name, type, static_cast<int64_t>(values.size()), values.data());
  }
  template <class T>
  void set(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, const T& value) {
    set_values(name, type, 1, &value);
  }
  void set(cudnnBackendAttributeName_t name, std::span<const int64_t> values) {
    set(name, CUDNN_TYPE_INT64, values);
  }
  void set(cudnnBackendAttributeName_t name, const CudnnDescriptor& other) {
    set(name, CUDNN_TYPE_BACKEND_DESCRIPTOR, other.raw_);
  }

  /// Reads up to `room` values and returns how many there are. Reads none if `to` is null.
  int64_t get(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t room,
              void* to) const;

  void finalize();

 private:
  void set_values(cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count,
                  const void* values);

  cudnnBackendDescriptor_t raw_ = nullptr;
};

/// The handle of the library for a device, which this scope has for itself: the library allows one thread at
/// a time to use a handle or a plan. The device must be the current one.
///
/// There is one for each device, whatever the stream, so plans are executed with the handle that they were
/// made with, and a capture, which has a stream of its own, makes none. It is never destroyed, because the
/// library may be gone when the process ends.
class CudnnHandle {
 public:
  /// Throws CudnnError if the library cannot use the device.
  explicit CudnnHandle(int device);
  CudnnHandle(const CudnnHandle&) = delete;
  CudnnHandle& operator=(const CudnnHandle&) = delete;

  cudnnHandle_t raw() const { return raw_; }

 private:
  std::unique_lock<std::mutex> lock_;
  cudnnHandle_t raw_ = nullptr;
};

}  // namespace mx::cuda
