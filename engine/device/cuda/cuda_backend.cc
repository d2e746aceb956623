#include "engine/device/cuda/cuda_backend.h"

#include <atomic>

#include "engine/base/check.h"
#include "engine/device/cuda/cuda_device.h"
#include "engine/device/host_memory.h"

namespace mx {

namespace {

// Page-locked memory belongs to the context of one GPU. That is the first GPU started, so that an allocation
// does not start another one. Portable memory is page-locked for all GPUs.
std::atomic<int> first_gpu{-1};

void* allocate_pinned(size_t bytes) {
  const CudaGuard guard(first_gpu.load(std::memory_order_relaxed));
  const CaptureExempt exempt;
  void* memory = nullptr;
  if (cudaHostAlloc(&memory, bytes, cudaHostAllocPortable | cudaHostAllocMapped) == cudaSuccess)
    return memory;
  (void)cudaGetLastError();
  return nullptr;  // the caller then uses pageable memory, whose copies are correct but slower
}

void free_pinned(void* memory) {
  const CudaGuard guard(first_gpu.load(std::memory_order_relaxed));
  const CaptureExempt exempt;
  if (cudaFreeHost(memory) != cudaSuccess) (void)cudaGetLastError();
}

bool lock_pages(void* memory, size_t bytes) {
  const CudaGuard guard(first_gpu.load(std::memory_order_relaxed));
  const CaptureExempt exempt;
  if (cudaHostRegister(memory, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped) == cudaSuccess)
    return true;
  (void)cudaGetLastError();
  return false;
}

void unlock_pages(void* memory) {
  const CudaGuard guard(first_gpu.load(std::memory_order_relaxed));
  const CaptureExempt exempt;
  if (cudaHostUnregister(memory) != cudaSuccess) (void)cudaGetLastError();
}

// Memory of the host that is page-locked from now on. Free memory from before is given back, so that it is
// not used again; the rest is locked where it is.
void use_pinned_memory() {
  set_pinned_host_memory({allocate_pinned, free_pinned, lock_pages, unlock_pages});
  get_device(cpu()).trim_memory();
  lock_host_memory();
}

}  // namespace

int cuda_device_count() {
  // Called once: the result cannot change, and without a driver each call would search for the driver again.
  static const int count = [] {
    int devices = 0;
    if (cudaGetDeviceCount(&devices) == cudaSuccess) return devices;
    (void)cudaGetLastError();
    return 0;
  }();
  return count;
}

CudaSupport find_cuda_support() {
  const auto text = [](int version) {
    return version == 0 ? "" : detail::concat(version / 1000, '.', version % 1000 / 10);
  };
  CudaSupport support;
  support.toolkit = text(CUDART_VERSION);
  int driver = 0, devices = 0;
  if (cudaDriverGetVersion(&driver) == cudaSuccess) support.driver = text(driver);
  const cudaError_t error = cudaGetDeviceCount(&devices);
  (void)cudaGetLastError();
  if (error != cudaSuccess) support.problem = cudaGetErrorString(error);
  return support;
}

std::unique_ptr<Device> open_cuda_device(int id) {
  auto device = std::make_unique<CudaDevice>(id);
  int none = -1;
  if (first_gpu.compare_exchange_strong(none, id)) use_pinned_memory();
  return device;
}

}  // namespace mx
