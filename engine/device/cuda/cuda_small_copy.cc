#include "engine/device/cuda/cuda_small_copy.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <list>
#include <memory>
#include <mutex>

namespace mx {

namespace {

struct SmallResult {
  CudaDevice& device;
  uint32_t* staged;
  std::byte* target;
  size_t bytes;
  bool abandoned = false;  // the device is lost
};

// The results that are on their way.
struct Results {
  std::mutex mutex;
  std::condition_variable delivered;
  std::list<SmallResult> all;
  std::atomic<size_t> count{0};  // of `all`
};

Results& results() {
  static Results* const only = new Results;
  return *only;
}

// Called by CUDA, and not at all if the device is lost. Then the staged memory is not used again.
void deliver(void* data) {
  Results& r = results();
  SmallResult* const result = static_cast<SmallResult*>(data);
  std::memcpy(result->target, result->staged, result->bytes);
  result->device.give_flag(result->staged);
  const std::lock_guard lock(r.mutex);
  r.all.erase(std::find_if(r.all.begin(), r.all.end(), [&](const SmallResult& x) { return &x == result; }));
  r.count.store(r.all.size());
  r.delivered.notify_all();
}

bool is_pageable(const void* host) {
  cudaPointerAttributes attributes{};
  MX_CUDA(cudaPointerGetAttributes(&attributes, host));
  return attributes.type == cudaMemoryTypeUnregistered;
}

// Returns true if the device works, as far as a call can tell.
bool works(CudaDevice& device) {
  if (device.lost() != nullptr) return false;
  const CudaGuard guard(device.id());
  device.examine(cudaStreamPerThread);
  return device.lost() == nullptr;
}

}  // namespace

bool copy_small_result(CudaDevice& device, void* target, const void* source, size_t bytes,
                       cudaStream_t stream) {
  if (!is_pageable(target)) return false;
  Results& r = results();
  uint32_t* const staged = device.take_flag();
  MX_CUDA(cudaMemcpyAsync(staged, source, bytes, cudaMemcpyDeviceToHost, stream));
  SmallResult* result = nullptr;
  {
    const std::lock_guard lock(r.mutex);
    result = &r.all.emplace_back(SmallResult{device, staged, static_cast<std::byte*>(target), bytes});
    r.count.store(r.all.size());
  }
  if (const cudaError_t code = cudaLaunchHostFunc(stream, deliver, result); code != cudaSuccess) {
    const std::lock_guard lock(r.mutex);
    r.all.remove_if([&](const SmallResult& x) { return &x == result; });
    r.count.store(r.all.size());
    throw_cuda_error(code, "cudaLaunchHostFunc(stream, deliver, result)", __FILE__, __LINE__);
  }
  return true;
}

void await_small_results(const void* memory, size_t bytes) noexcept {
  Results& r = results();
  if (r.count.load() == 0) [[likely]]
    return;
  const auto* const begin = static_cast<const std::byte*>(memory);
  std::unique_lock lock(r.mutex);
  while (true) {
    const auto found = std::find_if(r.all.begin(), r.all.end(), [&](const SmallResult& x) {
      return !x.abandoned && x.target < begin + bytes && begin < x.target + x.bytes;
    });
    if (found == r.all.end()) return;
    CudaDevice& device = found->device;
    if (r.delivered.wait_for(lock, std::chrono::milliseconds(1)) == std::cv_status::no_timeout) continue;
    lock.unlock();
    const bool working = works(device);
    lock.lock();
    if (working) continue;
    for (SmallResult& x : r.all) x.abandoned = x.abandoned || &x.device == &device;
  }
}

}  // namespace mx
