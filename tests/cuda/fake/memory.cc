// Memory, its pools, and copies.
#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <map>
#include <utility>
#include <vector>

#include "tests/cuda/fake/state.h"

namespace mx::fake_cuda {
namespace {

constexpr size_t kAlignment = 4096;
constexpr size_t kFilled = size_t{4} << 20;   // what a fresh block begins with is not 0; more would take time
constexpr size_t kStaged = size_t{64} << 10;  // pageable memory up to this size is copied by the call

/// The end of a copy: what CUDA says it is, and what its address is.
struct Side {
  const void* address;
  bool on_device;
};

bool fits(const Side& side, size_t bytes) {
  const char* begin = nullptr;
  const Block* block = block_of(side.address, &begin);
  if (block == nullptr) return !side.on_device;
  if ((block->type == cudaMemoryTypeDevice) != side.on_device) return false;
  return static_cast<const char*>(side.address) + bytes <= begin + block->bytes;
}

/// Looks again when the copy runs: its memory may have been freed too early.
void check_alive(const Side& side, size_t bytes) {
  const Lock lock(state().mutex);
  if (side.on_device && !fits(side, bytes)) throw Fault{cudaErrorIllegalAddress};
}

bool is_pageable(const Side& side) { return !side.on_device && block_of(side.address) == nullptr; }

Step copy_step(Side target, Side source, size_t bytes) {
  return [=] {
    check_alive(target, bytes);
    check_alive(source, bytes);
    std::memmove(const_cast<void*>(target.address), source.address, bytes);
    return true;
  };
}

cudaError_t copy(Lock& lock, Side target, Side source, size_t bytes, cudaStream_t handle, bool waits) {
  cudaError_t code = cudaSuccess;
  const cudaStream_t stream = find(handle, code);
  if (stream == nullptr) return code;
  if (bytes == 0) return cudaSuccess;
  if (!fits(target, bytes) || !fits(source, bytes)) return cudaErrorInvalidValue;
  Step step = copy_step(target, source, bytes);
  if (stream->capture != nullptr) return append(*stream, {NodeKind::copy, std::move(step)});
  if (is_pageable(source) && target.on_device && bytes <= kStaged) {
    const auto* from = static_cast<const char*>(source.address);
    step = [target, content = std::vector<char>(from, from + bytes)] {
      check_alive(target, content.size());
      std::memcpy(const_cast<void*>(target.address), content.data(), content.size());
      return true;
    };
  } else if (is_pageable(source) || is_pageable(target)) {
    waits = true;
  }
  const DonePtr done = [&] {
    code = append(*stream, {NodeKind::copy, std::move(step)});
    return stream->last;
  }();
  return code == cudaSuccess && waits ? wait_done(lock, stream->device, done) : code;
}

bool device_is_target(cudaMemcpyKind kind) {
  return kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice;
}
bool device_is_source(cudaMemcpyKind kind) {
  return kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
}

cudaError_t set(Lock& lock, void* target, int value, size_t bytes, cudaStream_t handle, bool waits) {
  cudaError_t code = cudaSuccess;
  const cudaStream_t stream = find(handle, code);
  if (stream == nullptr) return code;
  const char* begin = nullptr;
  const Block* block = block_of(target, &begin);
  if (block == nullptr || static_cast<const char*>(target) + bytes > begin + block->bytes)
    return cudaErrorInvalidValue;
  code = append(*stream, {NodeKind::set, [=] {
                            std::memset(target, value, bytes);
                            return true;
                          }});
  return code == cudaSuccess && waits ? wait_stream(lock, *stream) : code;
}

/// The pool of a device from which cudaMallocAsync() allocates. Precondition: the caller holds the mutex.
cudaMemPool_t default_pool(int device) {
  static std::map<int, CUmemPoolHandle_st>& pools = *new std::map<int, CUmemPoolHandle_st>;
  CUmemPoolHandle_st& pool = pools[device];
  pool.device = device;
  return &pool;
}

cudaError_t allocate_in_order(void** memory, size_t bytes, int device, cudaMemoryType type,
                              cudaMemPool_t pool, cudaStream_t handle) {
  cudaError_t code = cudaSuccess;
  const cudaStream_t stream = find(handle, code);
  if (stream == nullptr) return code;
  if (code = allocate(device, bytes, type, pool, memory); code != cudaSuccess) return code;
  if (stream->capture != nullptr && stream->capture->valid) stream->capture->graph->memory.push_back(*memory);
  return append(*stream, {NodeKind::allocation, nothing});
}

cudaError_t free_block(void* memory, cudaMemoryType type) {
  return call([&](Lock& lock) {
    cudaError_t code = cudaSuccess;
    (void)current(code);
    if (code != cudaSuccess || memory == nullptr) return code;
    const char* begin = nullptr;
    const Block* block = block_of(memory, &begin);
    if (block == nullptr || begin != memory || block->type != type || block->registered)
      return cudaErrorInvalidValue;
    if (code = check_unsafe(); code != cudaSuccess) return code;
    if (code = stop_world(lock, block->device); code == cudaSuccess) release(memory);
    return code;
  });
}

}  // namespace

const Block* block_of(const void* address, const char** begin) {
  const auto& blocks = state().blocks;
  auto at = blocks.upper_bound(static_cast<const char*>(address));
  if (at == blocks.begin()) return nullptr;
  --at;
  if (static_cast<const char*>(address) >= at->first + at->second.bytes) return nullptr;
  if (begin != nullptr) *begin = at->first;
  return &at->second;
}

cudaError_t allocate(int device, size_t bytes, cudaMemoryType type, cudaMemPool_t pool, void** memory) {
  State& s = state();
  DeviceState& owner = s.devices[static_cast<size_t>(device)];
  if (bytes == 0) {
    *memory = nullptr;
    return cudaSuccess;
  }
  if (type == cudaMemoryTypeDevice) {
    if (owner.failing > 0 && --owner.failing == 0) return cudaErrorMemoryAllocation;
    if (bytes > s.options.bytes - std::min(owner.used, s.options.bytes)) return cudaErrorMemoryAllocation;
  }
  void* const fresh = std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
  if (fresh == nullptr) return cudaErrorMemoryAllocation;
  std::memset(fresh, 0xFB, std::min(bytes, kFilled));
  if (type == cudaMemoryTypeDevice) owner.used += bytes;
  s.blocks[static_cast<const char*>(fresh)] = {bytes, type, device, pool};
  *memory = fresh;
  return cudaSuccess;
}

void release(void* memory) {
  State& s = state();
  const auto at = s.blocks.find(static_cast<const char*>(memory));
  if (at == s.blocks.end()) return;
  if (at->second.type == cudaMemoryTypeDevice)
    s.devices[static_cast<size_t>(at->second.device)].used -= at->second.bytes;
  s.blocks.erase(at);
  std::free(memory);
}

void check_access(const void* address, size_t bytes, size_t alignment) {
  if (reinterpret_cast<uintptr_t>(address) % alignment != 0) throw Fault{cudaErrorMisalignedAddress};
  const Lock lock(state().mutex);
  const char* begin = nullptr;
  const Block* block = block_of(address, &begin);
  if (block == nullptr || static_cast<const char*>(address) + bytes > begin + block->bytes)
    throw Fault{cudaErrorIllegalAddress};
}

}  // namespace mx::fake_cuda

using namespace mx::fake_cuda;

cudaError_t cudaMalloc(void** memory, size_t bytes) {
  return call([&](Lock&) {
    cudaError_t code = cudaSuccess;
    (void)current(code);
    if (code != cudaSuccess) return code;
    if (code = check_unsafe(); code != cudaSuccess) return code;
    return allocate(current_device(), bytes, cudaMemoryTypeDevice, nullptr, memory);
  });
}

cudaError_t cudaFree(void* memory) { return free_block(memory, cudaMemoryTypeDevice); }

cudaError_t cudaHostAlloc(void** memory, size_t bytes, unsigned) {
  return call([&](Lock&) {
    cudaError_t code = cudaSuccess;
    (void)current(code);
    if (code != cudaSuccess) return code;
    if (code = check_unsafe(); code != cudaSuccess) return code;
    return allocate(current_device(), bytes, cudaMemoryTypeHost, nullptr, memory);
  });
}

cudaError_t cudaFreeHost(void* memory) { return free_block(memory, cudaMemoryTypeHost); }

cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
  return call([&](Lock&) {
    cudaError_t code = cudaSuccess;
    (void)current(code);
    if (code != cudaSuccess) return code;
    if (memory == nullptr || bytes == 0) return cudaErrorInvalidValue;
    if (code = check_unsafe(); code != cudaSuccess) return code;
    const auto* const begin = static_cast<const char*>(memory);
    // The last block that begins before the end of the range is the only one that may overlap it.
    const auto next = state().blocks.lower_bound(begin + bytes);
    if (next != state().blocks.begin()) {
      const auto& [address, block] = *std::prev(next);
      if (address + block.bytes > begin) return cudaErrorHostMemoryAlreadyRegistered;
    }
    state().blocks[begin] = {bytes, cudaMemoryTypeHost, this_thread().device, nullptr, true};
    return cudaSuccess;
  });
}

cudaError_t cudaHostUnregister(void* memory) {
  return call([&](Lock& lock) {
    cudaError_t code = cudaSuccess;
    (void)current(code);
    if (code != cudaSuccess) return code;
    const char* begin = nullptr;
    const Block* block = block_of(memory, &begin);
    if (block == nullptr || begin != memory || !block->registered) return cudaErrorHostMemoryNotRegistered;
    if (code = check_unsafe(); code != cudaSuccess) return code;
    if (code = stop_world(lock, block->device); code == cudaSuccess)
      state().blocks.erase(static_cast<const char*>(memory));
    return code;
  });
}

cudaError_t cudaHostGetDevicePointer(void** address, void* host, unsigned) {
  return call([&](Lock&) {
    const Block* block = block_of(host);
    if (block == nullptr || block->type != cudaMemoryTypeHost) return cudaErrorInvalidValue;
    *address = host;
    return cudaSuccess;
  });
}

cudaError_t cudaPointerGetAttributes(cudaPointerAttributes* attributes, const void* address) {
  return call([&](Lock&) {
    touch_current();
    *attributes = {};
    attributes->type = cudaMemoryTypeUnregistered;
    attributes->device = -2;
    if (const Block* block = block_of(address)) {
      attributes->type = block->type;
      attributes->device = block->device;
      attributes->devicePointer = const_cast<void*>(address);
      if (block->type == cudaMemoryTypeHost) attributes->hostPointer = const_cast<void*>(address);
    }
    return cudaSuccess;
  });
}

cudaError_t cudaMemGetInfo(size_t* free_bytes, size_t* total) {
  return call([&](Lock&) {
    cudaError_t code = cudaSuccess;
    const DeviceState& device = current(code);
    if (code != cudaSuccess) return code;
    *total = state().options.bytes;
    *free_bytes = *total - std::min(device.used, *total);
    return cudaSuccess;
  });
}

cudaError_t cudaMemcpyAsync(void* target, const void* source, size_t bytes, cudaMemcpyKind kind,
                            cudaStream_t stream) {
  return call([&](Lock& lock) {
    return copy(lock, {target, device_is_target(kind)}, {source, device_is_source(kind)}, bytes, stream,
                false);
  });
}

cudaError_t cudaMemcpy(void* target, const void* source, size_t bytes, cudaMemcpyKind kind) {
  return call([&](Lock& lock) {
    return copy(lock, {target, device_is_target(kind)}, {source, device_is_source(kind)}, bytes, nullptr,
                true);
  });
}

cudaError_t cudaMemcpyPeerAsync(void* target, int target_device, const void* source, int source_device,
                                size_t bytes, cudaStream_t stream) {
  return call([&](Lock& lock) {
    const Block* to = block_of(target);
    const Block* from = block_of(source);
    if (to == nullptr || from == nullptr || to->device != target_device || from->device != source_device)
      return cudaErrorInvalidValue;
    return copy(lock, {target, true}, {source, true}, bytes, stream, false);
  });
}

cudaError_t cudaMemsetAsync(void* target, int value, size_t bytes, cudaStream_t stream) {
  return call([&](Lock& lock) { return set(lock, target, value, bytes, stream, false); });
}
cudaError_t cudaMemset(void* target, int value, size_t bytes) {
  return call([&](Lock& lock) { return set(lock, target, value, bytes, nullptr, true); });
}

cudaError_t cudaMemPoolCreate(cudaMemPool_t* pool, const cudaMemPoolProps* properties) {
  return call([&](Lock&) {
    cudaError_t code = cudaSuccess;
    (void)current(code);
    if (code != cudaSuccess) return code;
    auto made = std::make_shared<CUmemPoolHandle_st>();
    if (properties->location.type == cudaMemLocationTypeDevice) {
      made->device = properties->location.id;
    } else if (properties->location.type == cudaMemLocationTypeHost) {
      made->device = current_device();
      made->type = cudaMemoryTypeHost;
    } else {
      return cudaErrorInvalidValue;
    }
    state().handles.push_back(made);
    *pool = made.get();
    return cudaSuccess;
  });
}

cudaError_t cudaMemPoolDestroy(cudaMemPool_t pool) {
  return call([&](Lock&) { return std::exchange(pool->alive, false) ? cudaSuccess : cudaErrorInvalidValue; });
}
cudaError_t cudaMemPoolTrimTo(cudaMemPool_t pool, size_t) {
  return call([&](Lock&) { return pool->alive ? cudaSuccess : cudaErrorInvalidValue; });
}
cudaError_t cudaMemPoolSetAccess(cudaMemPool_t pool, const cudaMemAccessDesc* list, size_t count) {
  return call([&](Lock&) {
    if (!pool->alive) return cudaErrorInvalidValue;
    for (size_t i = 0; i < count; ++i) {
      if (list[i].location.type != cudaMemLocationTypeDevice) return cudaErrorInvalidValue;
      if (list[i].flags == cudaMemAccessFlagsProtReadWrite) pool->access.insert(list[i].location.id);
    }
    return cudaSuccess;
  });
}

cudaError_t cudaMallocFromPoolAsync(void** memory, size_t bytes, cudaMemPool_t pool, cudaStream_t stream) {
  return call([&](Lock&) {
    if (!pool->alive) return cudaErrorInvalidValue;
    return allocate_in_order(memory, bytes, pool->device, pool->type, pool, stream);
  });
}

cudaError_t cudaMallocAsync(void** memory, size_t bytes, cudaStream_t stream) {
  return call([&](Lock&) {
    const int device = current_device();
    return allocate_in_order(memory, bytes, device, cudaMemoryTypeDevice, default_pool(device), stream);
  });
}

cudaError_t cudaFreeAsync(void* memory, cudaStream_t handle) {
  return call([&](Lock&) {
    cudaError_t code = cudaSuccess;
    const cudaStream_t stream = find(handle, code);
    if (stream == nullptr) return code;
    const char* begin = nullptr;
    if (block_of(memory, &begin) == nullptr || begin != memory) return cudaErrorInvalidValue;
    // The graph owns what was allocated in its capture.
    if (stream->capture != nullptr) return append(*stream, {NodeKind::release, nothing});
    return append(*stream, {NodeKind::release, [memory] {
                              const Lock lock(state().mutex);
                              release(memory);
                              return true;
                            }});
  });
}
