// Every source of CUDA kernels includes this header. It is the one place where nvcc and g++ differ.
//
// nvcc compiles the kernels for GPUs. g++ compiles the same sources for tests, which run them on the host,
// one fiber for each CUDA thread (host_threads.h). Therefore kernels use the functions below instead of
// CUDA's own, and neither cub::Block*, cooperative groups nor PTX.
//
//   __global__ void twice(const float* x, float* y, int64_t n) {
//     const int64_t i = global_index();
//     if (i < n) y[i] = 2 * x[i];
//   }
//   void run(const KernelArgs& args) {
//     launch(stream_of(args), blocks_for(n, 256), 256, 0, twice, x, y, n);
//   }
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "engine/base/check.h"
#include "ndarray/launch.h"

#if defined(__CUDACC__)

#  include <cuda_bf16.h>
#  include <cuda_fp16.h>
#  include <cuda_runtime.h>

#  include <mutex>

#  include "engine/device/cuda/cuda_error.h"

namespace mx::cuda {

using NativeStream = cudaStream_t;

inline NativeStream stream_of(const KernelArgs& args) {
  return static_cast<NativeStream>(args.device->native_stream());
}

/// Lets launches of the kernel have so much shared memory. The limit is only raised: another thread may be
/// about to launch the kernel with more.
inline void allow_shared(const void* kernel, size_t bytes) {
  static std::mutex& mutex = *new std::mutex;
  const std::lock_guard lock(mutex);
  cudaFuncAttributes known{};
  MX_CUDA(cudaFuncGetAttributes(&known, kernel));
  if (static_cast<size_t>(known.maxDynamicSharedSizeBytes) < bytes)
    MX_CUDA(
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, static_cast<int>(bytes)));
}

/// Starts a kernel. Throws CudaError if CUDA refuses.
template <class... P, class... A>
void launch(NativeStream stream, dim3 blocks, dim3 threads, size_t shared_bytes, void (*kernel)(P...),
            const A&... args) {
  constexpr size_t kAlwaysAllowed = size_t{48} << 10;
  if (shared_bytes > kAlwaysAllowed) allow_shared(reinterpret_cast<const void*>(kernel), shared_bytes);
  kernel<<<blocks, threads, shared_bytes, stream>>>(static_cast<P>(args)...);
  MX_CUDA(cudaGetLastError());
}

/// Waits for all threads of the block.
__device__ inline void barrier() { __syncthreads(); }
/// Waits for the warp's other threads, and orders their memory accesses.
__device__ inline void warp_barrier() { __syncwarp(); }
/// Return values of another lane of the warp; all 32 lanes must call.
template <class T>
__device__ inline T shuffle(T value, int lane) {
  return __shfl_sync(~0u, value, lane);
}
template <class T>
__device__ inline T shuffle_xor(T value, int mask) {
  return __shfl_xor_sync(~0u, value, mask);
}
template <class T>
__device__ inline T shuffle_up(T value, int distance) {
  return __shfl_up_sync(~0u, value, static_cast<unsigned>(distance));
}
/// Returns the set of lanes whose condition is true; all 32 lanes must call.
__device__ inline unsigned ballot(bool condition) { return __ballot_sync(~0u, condition); }

/// Memory that the threads of a block share: one array for each type and size. It is not initialised.
template <class T, int n>
__device__ inline T* block_shared() {
  __shared__ alignas(16) unsigned char bytes[n * sizeof(T)];
  return reinterpret_cast<T*>(bytes);
}
/// The shared memory whose size launch() is given.
template <class T>
__device__ inline T* dynamic_shared() {
  extern __shared__ __align__(16) unsigned char mx_dynamic_shared[];
  return reinterpret_cast<T*>(mx_dynamic_shared);
}

/// Atomic, without an order among other accesses. Sums of integers do not depend on the order of the threads.
__device__ inline void atomic_add(int32_t* to, int32_t value) { atomicAdd(to, value); }
__device__ inline void atomic_max(int32_t* to, int32_t value) { atomicMax(to, value); }
__device__ inline void atomic_min(int64_t* to, int64_t value) {
  atomicMin(reinterpret_cast<long long*>(to), static_cast<long long>(value));
}

/// A lock among all threads of the grid, for code that rarely runs. try_lock() must not be waited for inside
/// a branch that the holder, in the same warp, has to leave first.
__device__ inline bool try_lock(int32_t* lock) {
  const bool taken = atomicCAS(lock, 0, 1) == 0;
  __threadfence();
  return taken;
}
__device__ inline void unlock(int32_t* lock) {
  __threadfence();
  atomicExch(lock, 0);
}
/// Orders memory accesses of the calling thread: those before the fence come before those after it.
__device__ inline void memory_fence() { __threadfence(); }
/// Read and write numbers that other threads change meanwhile.
template <class T>
__device__ inline T load_shared(const T* from) {
  return *static_cast<const volatile T*>(from);
}
template <class T>
__device__ inline void store_shared(T* to, T value) {
  *static_cast<volatile T*>(to) = value;
}

__device__ inline void check_aligned(const void*, size_t) {}

/// Rounded each, never joined to one operation.
__device__ inline float rounded_product(float a, float b) { return __fmul_rn(a, b); }
__device__ inline double rounded_product(double a, double b) { return __dmul_rn(a, b); }
__device__ inline float rounded_sum(float a, float b) { return __fadd_rn(a, b); }
__device__ inline double rounded_sum(double a, double b) { return __dadd_rn(a, b); }

/// The logarithm of the absolute value of the gamma function.
__device__ inline double log_gamma(double x) { return ::lgamma(x); }

__device__ inline float to_float(float16 x) { return __half2float(__ushort_as_half(x.bits)); }
__device__ inline float to_float(bfloat16 x) { return __bfloat162float(__ushort_as_bfloat16(x.bits)); }
__device__ inline float16 to_half(float x) {
  float16 y;
  y.bits = __half_as_ushort(__float2half_rn(x));
  return y;
}
__device__ inline bfloat16 to_bfloat(float x) {
  bfloat16 y;
  y.bits = __bfloat16_as_ushort(__float2bfloat16_rn(x));
  return y;
}

}  // namespace mx::cuda

#else

#  include <atomic>
#  include <cmath>

#  include "ndarray/cuda/host_threads.h"

// Headers of the toolkit define them too.
#  undef __global__
#  undef __device__
#  undef __host__
#  undef __launch_bounds__
#  define __global__
#  define __device__
#  define __host__
#  define __launch_bounds__(...)
#  define threadIdx (::mx::cuda::host::place().thread)
#  define blockIdx (::mx::cuda::host::place().block)
#  define blockDim (::mx::cuda::host::place().block_size)
#  define gridDim (::mx::cuda::host::place().grid_size)

namespace mx::cuda {

using NativeStream = void*;
using dim3 = host::Index3;

inline NativeStream stream_of(const KernelArgs& args) {
  return args.device == nullptr ? nullptr : args.device->native_stream();
}

template <class... P, class... A>
void launch(NativeStream stream, dim3 blocks, dim3 threads, size_t shared_bytes, void (*kernel)(P...),
            const A&... args) {
  host::launch(stream, blocks, threads, shared_bytes,
               [kernel, ... values = static_cast<P>(args)] { kernel(values...); });
}

inline void barrier(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  host::barrier({file, line});
}
inline void warp_barrier(const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  host::exchange(host::Exchange::sync, {file, line}, ~0u, 0, 0);
}
namespace host {
template <class T>
T exchange_as(Exchange kind, T value, int argument, Site site) {
  static_assert(sizeof(T) <= sizeof(uint64_t));
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  bits = exchange(kind, site, ~0u, bits, argument);
  std::memcpy(&value, &bits, sizeof value);
  return value;
}
}  // namespace host
template <class T>
T shuffle(T value, int lane, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return host::exchange_as(host::Exchange::shuffle, value, lane, {file, line});
}
template <class T>
T shuffle_xor(T value, int mask, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return host::exchange_as(host::Exchange::shuffle_xor, value, mask, {file, line});
}
template <class T>
T shuffle_up(T value, int distance, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return host::exchange_as(host::Exchange::shuffle_up, value, distance, {file, line});
}
inline unsigned ballot(bool condition, const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
  return static_cast<unsigned>(host::exchange(host::Exchange::ballot, {file, line}, ~0u, condition, 0));
}

template <class T, int n>
T* block_shared() {
  static const char key = 0;
  return static_cast<T*>(host::static_shared(&key, n * sizeof(T), 16));
}
template <class T>
T* dynamic_shared() {
  return static_cast<T*>(host::dynamic_shared());
}

inline void atomic_add(int32_t* to, int32_t value) {
  std::atomic_ref<int32_t>(*to).fetch_add(value, std::memory_order_relaxed);
}
inline void atomic_max(int32_t* to, int32_t value) {
  std::atomic_ref<int32_t> at(*to);
  int32_t old = at.load(std::memory_order_relaxed);
  while (old < value && !at.compare_exchange_weak(old, value, std::memory_order_relaxed)) {
  }
}
inline void atomic_min(int64_t* to, int64_t value) {
  std::atomic_ref<int64_t> at(*to);
  int64_t old = at.load(std::memory_order_relaxed);
  while (old > value && !at.compare_exchange_weak(old, value, std::memory_order_relaxed)) {
  }
}

inline bool try_lock(int32_t* lock) {
  return std::atomic_ref<int32_t>(*lock).exchange(1, std::memory_order_acquire) == 0;
}
inline void unlock(int32_t* lock) { std::atomic_ref<int32_t>(*lock).store(0, std::memory_order_release); }
inline void memory_fence() { std::atomic_thread_fence(std::memory_order_seq_cst); }
template <class T>
T load_shared(const T* from) {
  return std::atomic_ref<T>(*const_cast<T*>(from)).load(std::memory_order_relaxed);
}
template <class T>
void store_shared(T* to, T value) {
  std::atomic_ref<T>(*to).store(value, std::memory_order_relaxed);
}

inline void check_aligned(const void* address, size_t alignment) { host::check_aligned(address, alignment); }

template <class T>
T rounded_product(T a, T b) {
  return a * b;
}
template <class T>
T rounded_sum(T a, T b) {
  return a + b;
}

inline double log_gamma(double x) {
  int sign;
  return ::lgamma_r(x, &sign);
}

inline float to_float(float16 x) { return x; }
inline float to_float(bfloat16 x) { return x; }
inline float16 to_half(float x) { return x; }
inline bfloat16 to_bfloat(float x) { return x; }

using std::exp;
using std::isfinite;
using std::isinf;
using std::log;
using std::log1p;
using std::pow;
using std::sqrt;

}  // namespace mx::cuda

#endif

namespace mx::cuda {

/// The number of this thread in the grid, along x.
__device__ inline int64_t global_index() {
  return static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
/// Returns the number of threads of the grid, along x.
__device__ inline int64_t global_size() { return static_cast<int64_t>(gridDim.x) * blockDim.x; }

/// Returns the number of blocks for n threads, at most `most`: kernels loop over the rest.
inline unsigned blocks_for(int64_t n, int64_t threads, int64_t most = int64_t{1} << 20) {
  const int64_t blocks = (n + threads - 1) / threads;
  return static_cast<unsigned>(blocks < most ? blocks : most);
}

/// Returns the number of blocks of `each` items for a kernel that does not loop. Throws InvalidArgument if no
/// grid has so many.
inline unsigned whole_grid(int64_t items, int64_t each = 1) {
  constexpr int64_t kMost = INT32_MAX;
  const int64_t blocks = items / each + (items % each != 0 ? 1 : 0);
  MX_CHECK(blocks <= kMost, InvalidArgument, "[cuda] expected at most ", kMost * each,
           " rows or elements in one launch, got ", items, "; divide the array");
  return static_cast<unsigned>(blocks);
}

}  // namespace mx::cuda
