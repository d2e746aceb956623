#include "engine/device/cuda/cuda_driver.h"

#include <cuda_runtime_api.h>

#include <array>
#include <atomic>

namespace mx {

namespace {

constexpr size_t kMostDevices = 1024;

// `version`: of CUDA, since which the function has had this type.
template <class F>
void find(F& function, const char* name, [[maybe_unused]] unsigned version) {
  void* pointer = nullptr;
  cudaDriverEntryPointQueryResult found{};
#if CUDART_VERSION >= 12050
  const cudaError_t code =
      cudaGetDriverEntryPointByVersion(name, &pointer, version, cudaEnableDefault, &found);
#else
  const cudaError_t code = cudaGetDriverEntryPoint(name, &pointer, cudaEnableDefault, &found);
#endif
  if (code != cudaSuccess) (void)cudaGetLastError();
  if (code == cudaSuccess && found == cudaDriverEntryPointSuccess) function = reinterpret_cast<F>(pointer);
}

CudaDriver find_all() {
  CudaDriver driver;
  find(driver.device_get, "cuDeviceGet", 2000);
  find(driver.retain_primary, "cuDevicePrimaryCtxRetain", 7000);
  find(driver.push_current, "cuCtxPushCurrent", 4000);
  find(driver.pop_current, "cuCtxPopCurrent", 4000);
  find(driver.wait_value, "cuStreamWaitValue32", 11070);
  find(driver.library_load, "cuLibraryLoadData", 12000);
  find(driver.library_kernel, "cuLibraryGetKernel", 12000);
  find(driver.launch_kernel, "cuLaunchKernel", 7000);
  return driver;
}

}  // namespace

const CudaDriver& cuda_driver() noexcept {
  static const CudaDriver driver = find_all();
  return driver;
}

CUcontext primary_context(int device) noexcept {
  static std::array<std::atomic<CUcontext>, kMostDevices> known{};
  const auto index = static_cast<size_t>(device);
  if (index >= kMostDevices) return nullptr;
  if (const CUcontext context = known[index].load(std::memory_order_acquire)) return context;
  const CudaDriver& driver = cuda_driver();
  if (driver.device_get == nullptr || driver.retain_primary == nullptr || driver.push_current == nullptr ||
      driver.pop_current == nullptr)
    return nullptr;
  CUdevice handle = 0;
  CUcontext context = nullptr;
  if (driver.device_get(&handle, device) != CUDA_SUCCESS) return nullptr;
  // Two threads may both retain it; that does no harm, because it is never given back.
  if (driver.retain_primary(&context, handle) != CUDA_SUCCESS) return nullptr;
  known[index].store(context, std::memory_order_release);
  return context;
}

}  // namespace mx
