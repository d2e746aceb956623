// Devices, contexts, errors, and entry points of the driver.
#include <cuda.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <iterator>
#include <utility>

#include "tests/cuda/fake/state.h"

namespace mx::fake_cuda {
namespace {

struct ErrorName {
  cudaError_t code;
  const char* name;
};

#define MX_FAKE_ERROR(code) \
  ErrorName { code, #code }
constexpr ErrorName kErrorNames[] = {MX_FAKE_ERROR(cudaSuccess),
                                     MX_FAKE_ERROR(cudaErrorInvalidValue),
                                     MX_FAKE_ERROR(cudaErrorMemoryAllocation),
                                     MX_FAKE_ERROR(cudaErrorCudartUnloading),
                                     MX_FAKE_ERROR(cudaErrorInvalidConfiguration),
                                     MX_FAKE_ERROR(cudaErrorInvalidDevice),
                                     MX_FAKE_ERROR(cudaErrorNotReady),
                                     MX_FAKE_ERROR(cudaErrorECCUncorrectable),
                                     MX_FAKE_ERROR(cudaErrorInvalidResourceHandle),
                                     MX_FAKE_ERROR(cudaErrorIllegalState),
                                     MX_FAKE_ERROR(cudaErrorIllegalAddress),
                                     MX_FAKE_ERROR(cudaErrorPeerAccessAlreadyEnabled),
                                     MX_FAKE_ERROR(cudaErrorAssert),
                                     MX_FAKE_ERROR(cudaErrorMisalignedAddress),
                                     MX_FAKE_ERROR(cudaErrorLaunchFailure),
                                     MX_FAKE_ERROR(cudaErrorNotSupported),
                                     MX_FAKE_ERROR(cudaErrorStreamCaptureUnsupported),
                                     MX_FAKE_ERROR(cudaErrorStreamCaptureInvalidated),
                                     MX_FAKE_ERROR(cudaErrorStreamCaptureMerge),
                                     MX_FAKE_ERROR(cudaErrorStreamCaptureUnmatched),
                                     MX_FAKE_ERROR(cudaErrorStreamCaptureUnjoined),
                                     MX_FAKE_ERROR(cudaErrorStreamCaptureIsolation),
                                     MX_FAKE_ERROR(cudaErrorStreamCaptureImplicit),
                                     MX_FAKE_ERROR(cudaErrorCapturedEvent),
                                     MX_FAKE_ERROR(cudaErrorStreamCaptureWrongThread),
                                     MX_FAKE_ERROR(cudaErrorGraphExecUpdateFailure),
                                     MX_FAKE_ERROR(cudaErrorUnknown)};
#undef MX_FAKE_ERROR

void make_devices(State& s) {
  s.devices.resize(static_cast<size_t>(s.options.devices));
  for (size_t d = 0; d < s.devices.size(); ++d) {
    auto stream = std::make_shared<CUstream_st>();
    stream->device = static_cast<int>(d);
    stream->legacy = true;
    s.handles.push_back(stream);
    s.devices[d].legacy = stream.get();
    s.devices[d].streams.push_back(stream.get());
  }
}

/// cuStreamWaitValue32: the stream goes on once the word is at least `value`.
CUresult stream_wait_value(CUstream stream, CUdeviceptr address, cuuint32_t value, unsigned flags) {
  const cudaError_t result = call([&](Lock&) {
    cudaError_t code = cudaSuccess;
    const cudaStream_t found = find(stream, code);
    if (found == nullptr) return code;
    const Block* block = block_of(reinterpret_cast<const void*>(address));
    if (flags != CU_STREAM_WAIT_VALUE_GEQ || address % 4 != 0 || block == nullptr)
      return cudaErrorInvalidValue;
    auto* const word = reinterpret_cast<uint32_t*>(address);
    return append(*found, {NodeKind::wait, [word, value] {
                             const uint32_t now = std::atomic_ref(*word).load(std::memory_order_acquire);
                             return static_cast<int32_t>(now - value) >= 0;
                           }});
  });
  (void)cudaGetLastError();  // the driver has none
  return static_cast<CUresult>(result);
}

// Contexts of the driver. The handle of a device's primary context is its number plus one.
CUresult device_get(CUdevice* device, int ordinal) {
  *device = ordinal;
  return ordinal >= 0 && ordinal < static_cast<int>(state().devices.size()) ? CUDA_SUCCESS
                                                                            : CUDA_ERROR_INVALID_DEVICE;
}
CUresult retain_primary(CUcontext* context, CUdevice device) {
  const Lock lock(state().mutex);
  state().devices[static_cast<size_t>(device)].has_context = true;
  *context = reinterpret_cast<CUcontext>(static_cast<intptr_t>(device) + 1);
  return CUDA_SUCCESS;
}
CUresult push_current(CUcontext context) {
  ThreadState& thread = this_thread();
  if (thread.depth == std::size(thread.pushed)) return CUDA_ERROR_OUT_OF_MEMORY;
  thread.pushed[thread.depth++] = static_cast<int>(reinterpret_cast<intptr_t>(context)) - 1;
  return CUDA_SUCCESS;
}
CUresult pop_current(CUcontext* context) {
  ThreadState& thread = this_thread();
  if (thread.depth == 0) return CUDA_ERROR_INVALID_CONTEXT;
  *context = reinterpret_cast<CUcontext>(static_cast<intptr_t>(thread.pushed[--thread.depth]) + 1);
  return CUDA_SUCCESS;
}

struct EntryPoint {
  const char* name;
  void* function;
};

}  // namespace

State& state() {
  static State* const only = [] {
    auto* s = new State;
    if (const char* seed = std::getenv("MX_FAKE_CUDA_SEED"); seed != nullptr)
      s->options.seed = std::strtoull(seed, nullptr, 10);
    s->random.seed(s->options.seed);
    make_devices(*s);
    return s;
  }();
  return *only;
}

ThreadState& this_thread() {
  static thread_local ThreadState thread;
  return thread;
}

void set_options(const Options& options) {
  State& s = state();
  const Lock lock(s.mutex);
  const bool fresh =
      std::none_of(s.devices.begin(), s.devices.end(), [](const DeviceState& d) { return d.has_context; });
  s.options = options;
  s.random.seed(options.seed);
  if (fresh && options.devices != static_cast<int>(s.devices.size())) {
    s.devices.clear();
    make_devices(s);
  }
}

void fail_allocation(int device, int n) {
  const Lock lock(state().mutex);
  state().devices[static_cast<size_t>(device)].failing = n;
}

bool has_context(int device) {
  const Lock lock(state().mutex);
  return state().devices[static_cast<size_t>(device)].has_context;
}

bool may_access(int device, const void* address) {
  const Lock lock(state().mutex);
  const Block* const block = block_of(address);
  if (block == nullptr || block->type != cudaMemoryTypeDevice || block->device == device)
    return block != nullptr;
  if (!state().devices[static_cast<size_t>(device)].peers.contains(block->device)) return false;
  return block->pool == nullptr || block->pool->access.contains(device);
}

bool is_pool_memory_closed_to(int device, const void* address) {
  const Lock lock(state().mutex);
  const Block* const block = block_of(address);
  return block != nullptr && block->pool != nullptr && block->type == cudaMemoryTypeDevice &&
         block->device != device && !block->pool->access.contains(device);
}

std::vector<int> graph_priorities() {
  const Lock lock(state().mutex);
  return state().graph_priorities;
}

std::string fault_text() {
  const Lock lock(state().mutex);
  return state().fault_text;
}

int current_device() {
  const ThreadState& thread = this_thread();
  return thread.depth == 0 ? thread.device : thread.pushed[thread.depth - 1];
}

void touch_current() { state().devices[static_cast<size_t>(current_device())].has_context = true; }

DeviceState& current(cudaError_t& code) {
  DeviceState& device = state().devices[static_cast<size_t>(current_device())];
  device.has_context = true;
  code = device.lost;
  return device;
}

}  // namespace mx::fake_cuda

using namespace mx::fake_cuda;

cudaError_t cudaGetDeviceCount(int* count) {
  return call([&](Lock&) {
    *count = static_cast<int>(state().devices.size());
    return cudaSuccess;
  });
}

cudaError_t cudaGetDevice(int* device) {
  *device = current_device();
  return cudaSuccess;
}

cudaError_t cudaSetDevice(int device) {
  return call([&](Lock&) {
    if (device < 0 || device >= static_cast<int>(state().devices.size())) return cudaErrorInvalidDevice;
    ThreadState& thread = this_thread();
    (thread.depth == 0 ? thread.device : thread.pushed[thread.depth - 1]) = device;
    state().devices[static_cast<size_t>(device)].has_context = true;
    return cudaSuccess;
  });
}

cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  return call([&](Lock&) {
    if (device < 0 || device >= static_cast<int>(state().devices.size())) return cudaErrorInvalidDevice;
    *properties = {};
    std::strcpy(properties->name, "stand-in for a GPU");
    properties->totalGlobalMem = state().options.bytes;
    properties->multiProcessorCount = 4;
    properties->major = 9;
    return cudaSuccess;
  });
}

cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int) {
  switch (attribute) {
    case cudaDevAttrMemoryPoolsSupported:
      *value = 1;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = 4;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMajor:
      *value = 9;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = 0;
      return cudaSuccess;
    default:
      return this_thread().last_error = cudaErrorNotSupported;
  }
}

cudaError_t cudaDeviceCanAccessPeer(int* possible, int device, int peer) {
  *possible = device != peer ? 1 : 0;
  return cudaSuccess;
}

cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  return call([&](Lock&) {
    cudaError_t code = cudaSuccess;
    DeviceState& device = current(code);
    if (code != cudaSuccess) return code;
    if (peer == current_device() || peer >= static_cast<int>(state().devices.size()))
      return cudaErrorInvalidDevice;
    return device.peers.insert(peer).second ? cudaSuccess : cudaErrorPeerAccessAlreadyEnabled;
  });
}

cudaError_t cudaDeviceSynchronize() {
  return call([&](Lock& lock) {
    cudaError_t code = cudaSuccess;
    (void)current(code);
    if (code != cudaSuccess) return code;
    if (code = check_unsafe(); code != cudaSuccess) return code;
    return wait_idle(lock, current_device());
  });
}

cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t cudaGetLastError() { return std::exchange(this_thread().last_error, cudaSuccess); }
cudaError_t cudaPeekAtLastError() { return this_thread().last_error; }

const char* cudaGetErrorName(cudaError_t code) {
  for (const ErrorName& error : kErrorNames)
    if (error.code == code) return error.name;
  return "unrecognized error code";
}
const char* cudaGetErrorString(cudaError_t code) { return cudaGetErrorName(code); }
cudaError_t cudaDriverGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}

cudaError_t cudaGetDriverEntryPointByVersion(const char* name, void** function, unsigned, unsigned long long,
                                             cudaDriverEntryPointQueryResult* found) {
  const EntryPoint known[] = {{"cuStreamWaitValue32", reinterpret_cast<void*>(&stream_wait_value)},
                              {"cuDeviceGet", reinterpret_cast<void*>(&device_get)},
                              {"cuDevicePrimaryCtxRetain", reinterpret_cast<void*>(&retain_primary)},
                              {"cuCtxPushCurrent", reinterpret_cast<void*>(&push_current)},
                              {"cuCtxPopCurrent", reinterpret_cast<void*>(&pop_current)},
                              {"cuLibraryLoadData", library_function("cuLibraryLoadData")},
                              {"cuLibraryGetKernel", library_function("cuLibraryGetKernel")},
                              {"cuLaunchKernel", library_function("cuLaunchKernel")}};
  *function = nullptr;
  for (const EntryPoint& entry : known)
    if (std::strcmp(name, entry.name) == 0) *function = entry.function;
  *found = *function != nullptr ? cudaDriverEntryPointSuccess : cudaDriverEntryPointSymbolNotFound;
  return cudaSuccess;
}
