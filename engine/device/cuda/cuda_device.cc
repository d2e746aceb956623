#include "engine/device/cuda/cuda_device.h"

#include <set>
#include <string>
#include <utility>

#include "engine/base/check.h"
#include "engine/device/cuda/cuda_graph.h"
#include "engine/device/cuda/cuda_small_copy.h"
#include "engine/device/cuda/cuda_stream.h"
#include "engine/device/event.h"
#include "engine/device/registry.h"

namespace mx {

namespace {

constexpr size_t kFlagsAtOnce = 64;

DeviceProperties describe(int id) {
  const CudaGuard guard(id);
  const CaptureExempt exempt;
  int current = -1;
  MX_CUDA(cudaGetDevice(&current));
  if (current != id) MX_CUDA(cudaSetDevice(id));  // reports the error that CudaGuard has ignored
  MX_CUDA(cudaFree(nullptr));                     // creates the context, and reports a broken device
  cudaDeviceProp properties{};
  MX_CUDA(cudaGetDeviceProperties(&properties, id));
  return {.name = properties.name,
          .total_bytes = properties.totalGlobalMem,
          .compute_units = properties.multiProcessorCount,
          .host_accessible = false,
          .compute_streams = 4,
          .architecture = detail::concat("compute capability ", properties.major, '.', properties.minor)};
}

// Lets each of two devices access the other's memory if the hardware supports it. Otherwise CUDA stages
// copies.
void enable_peers(int a, int b) {
  static std::mutex& mutex = *new std::mutex;
  static std::set<std::pair<int, int>>& done = *new std::set<std::pair<int, int>>;
  std::lock_guard lock(mutex);
  for (const auto& [from, to] : {std::pair(a, b), std::pair(b, a)}) {
    if (!done.insert({from, to}).second) continue;
    int possible = 0;
    const CudaGuard guard(from);
    const CaptureExempt exempt;
    if (cudaDeviceCanAccessPeer(&possible, from, to) != cudaSuccess || possible == 0) {
      (void)cudaGetLastError();
      continue;
    }
    if (cudaDeviceEnablePeerAccess(to, 0) != cudaSuccess) (void)cudaGetLastError();  // enabled by other code
    dynamic_cast<CudaDevice&>(get_device(gpu(to))).memory().share_with(from);
  }
}

}  // namespace

// Never destroyed: like its device, the source lives until the process ends.
CudaMemory::CudaMemory(int id, size_t limit_bytes) : id_(id), limit_(limit_bytes) {
  const CudaGuard guard(id_);
  const CaptureExempt exempt;
  int has_pools = 0;
  MX_CUDA(cudaDeviceGetAttribute(&has_pools, cudaDevAttrMemoryPoolsSupported, id_));
  if (has_pools == 0) return;
  cudaMemPoolProps properties{};
  properties.allocType = cudaMemAllocationTypePinned;
  properties.location = {cudaMemLocationTypeDevice, id_};
  MX_CUDA(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking));
  MX_CUDA(cudaMemPoolCreate(&pool_, &properties));
}

void* CudaMemory::reserve(size_t bytes) {
  const CudaGuard guard(id_);
  const CaptureExempt exempt;
  void* segment = nullptr;
  cudaError_t code = pool_ != nullptr ? cudaMallocFromPoolAsync(&segment, bytes, pool_, stream_)
                                      : cudaMalloc(&segment, bytes);
  if (code == cudaErrorMemoryAllocation) {
    (void)cudaGetLastError();
    return nullptr;
  }
  MX_CUDA(code);
  if (pool_ != nullptr) MX_CUDA(cudaStreamSynchronize(stream_));
  return segment;
}

void CudaMemory::release(void* segment, size_t) noexcept {
  const CudaGuard guard(id_);
  const CaptureExempt exempt;
  cudaError_t code = cudaSuccess;
  if (pool_ == nullptr) {
    code = cudaFree(segment);
  } else {
    code = cudaFreeAsync(segment, stream_);
    if (code == cudaSuccess) code = cudaStreamSynchronize(stream_);
    if (code == cudaSuccess) code = cudaMemPoolTrimTo(pool_, 0);  // gives the memory to other processes
  }
  if (code != cudaSuccess) (void)cudaGetLastError();  // lost, or the process is ending
}

void CudaMemory::share_with(int other) noexcept {
  if (pool_ == nullptr) return;
  cudaMemAccessDesc access{};
  access.location = {cudaMemLocationTypeDevice, other};
  access.flags = cudaMemAccessFlagsProtReadWrite;
  if (cudaMemPoolSetAccess(pool_, &access, 1) != cudaSuccess) (void)cudaGetLastError();
}

CudaDevice::CudaDevice(int id)
    : id_(id),
      properties_(describe(id)),
      memory_(id, properties_.total_bytes),
      pool_(gpu(id), memory_,
            {.alignment = 256,
             .watermark = watermark_from_environment(SIZE_MAX),
             .separate = separate_from_environment()}) {}

void* CudaDevice::allocate(size_t bytes, Stream* stream) {
  if (std::exception_ptr error = lost()) std::rethrow_exception(error);
  try {
    return pool_.allocate(bytes, stream);
  } catch (const CudaError& e) {
    if (is_sticky(e.code())) lose(std::current_exception());
    throw;
  }
}

void CudaDevice::copy_async(void* target, Context target_context, const void* source, Context source_context,
                            size_t bytes, Stream& stream) {
  for (const Context side : {target_context, source_context}) {
    MX_CHECK(side.is_cpu() || side.kind == DeviceKind::gpu, InvalidArgument,
             "[copy_async] expected a copy between GPUs and cpu(0), got the device ", side);
  }
  if (bytes == 0) return;
  const int target_id = target_context.id, source_id = source_context.id;
  const bool peers = !target_context.is_cpu() && !source_context.is_cpu() && target_id != source_id;
  if (peers) enable_peers(target_id, source_id);
  const cudaMemcpyKind direction =
      target_context.is_cpu()   ? source_context.is_cpu() ? cudaMemcpyHostToHost : cudaMemcpyDeviceToHost
      : source_context.is_cpu() ? cudaMemcpyHostToDevice
                                : cudaMemcpyDeviceToDevice;
  const auto copy = [=](cudaStream_t native) {
    if (peers) {
      MX_CUDA(cudaMemcpyPeerAsync(target, target_id, source, source_id, bytes, native));
    } else {
      MX_CUDA(cudaMemcpyAsync(target, source, bytes, direction, native));
    }
  };
  if (source_context.is_cpu()) await_small_results(source, bytes);
  if (direction == cudaMemcpyDeviceToHost && bytes <= kSmallResultBytes &&
      dynamic_cast<CudaStream*>(&stream) != nullptr) {
    stream.submit([&](KernelContext& context) {
      const auto native = static_cast<cudaStream_t>(context.native_stream());
      if (!copy_small_result(*this, target, source, bytes, native)) copy(native);
    });
    return;
  }
  if (dynamic_cast<CudaStream*>(&stream) != nullptr || dynamic_cast<CudaCapture*>(&stream) != nullptr) {
    stream.submit(
        [&copy](KernelContext& context) { copy(static_cast<cudaStream_t>(context.native_stream())); });
    return;
  }
  // A host-threaded stream: its thread may block.
  stream.submit([copy, id = id_](KernelContext&) {
    const CudaGuard guard(id);
    copy(cudaStreamPerThread);
    MX_CUDA(cudaStreamSynchronize(cudaStreamPerThread));
  });
}

std::unique_ptr<Stream> CudaDevice::new_stream(StreamKind kind) {
  if (std::exception_ptr error = lost()) std::rethrow_exception(error);
  return std::make_unique<CudaStream>(*this, kind);
}

std::unique_ptr<Event> CudaDevice::new_event() { return std::make_unique<PointEvent>(); }

std::unique_ptr<GraphBuilder> CudaDevice::new_graph_builder() {
  if (std::exception_ptr error = lost()) std::rethrow_exception(error);
  return std::make_unique<CudaGraphBuilder>(*this);
}

std::exception_ptr CudaDevice::lost() const noexcept {
  if (!is_lost_.load(std::memory_order_acquire)) return nullptr;
  std::lock_guard lock(mutex_);
  return lost_error_;
}

void CudaDevice::lose(std::exception_ptr error) noexcept {
  std::lock_guard lock(mutex_);
  if (lost_error_ != nullptr) return;
  lost_error_ = std::move(error);
  is_lost_.store(true, std::memory_order_release);
}

std::exception_ptr CudaDevice::failed(cudaError_t code, const char* call, const char* file,
                                      int line) noexcept {
  (void)cudaGetLastError();
  std::exception_ptr error;
  try {
    const std::string lost = is_sticky(code) ? detail::concat("gpu(", id_, ") is lost: ") : "";
    throw CudaError(code, call, file, line, lost.c_str());
  } catch (...) {
    error = std::current_exception();
  }
  if (is_sticky(code)) lose(error);
  return error;
}

void CudaDevice::examine(cudaStream_t stream) noexcept {
  (void)cudaGetLastError();  // left by the call that failed
  const CaptureExempt exempt;
  const cudaError_t code = cudaStreamQuery(stream);
  if (code == cudaSuccess) return;
  (void)cudaGetLastError();
  if (is_sticky(code)) failed(code, "cudaStreamQuery(stream)", __FILE__, __LINE__);
}

cudaEvent_t CudaDevice::take_event() {
  {
    std::lock_guard lock(mutex_);
    if (!events_.empty()) {
      cudaEvent_t event = events_.back();
      events_.pop_back();
      return event;
    }
  }
  const CudaGuard guard(id_);
  const CaptureExempt exempt;
  cudaEvent_t event = nullptr;
  MX_CUDA(cudaEventCreateWithFlags(&event, cudaEventDisableTiming));
  return event;
}

void CudaDevice::give_event(cudaEvent_t event) noexcept {
  std::lock_guard lock(mutex_);
  events_.push_back(event);
}

uint32_t* CudaDevice::take_flag() {
  std::unique_lock lock(mutex_);
  if (flags_.empty()) {
    lock.unlock();
    const CudaGuard guard(id_);
    const CaptureExempt exempt;
    void* memory = nullptr;
    // 64 bytes apart: a flag that the GPU polls shares no cache line with one that the host writes.
    MX_CUDA(cudaHostAlloc(&memory, kFlagsAtOnce * 64, cudaHostAllocPortable | cudaHostAllocMapped));
    lock.lock();
    for (size_t i = 0; i < kFlagsAtOnce; ++i) flags_.push_back(static_cast<uint32_t*>(memory) + i * 16);
  }
  uint32_t* flag = flags_.back();
  flags_.pop_back();
  std::atomic_ref(*flag).store(0, std::memory_order_release);
  return flag;
}

void CudaDevice::give_flag(uint32_t* flag) noexcept {
  std::lock_guard lock(mutex_);
  flags_.push_back(flag);
}

}  // namespace mx
