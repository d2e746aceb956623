#include "tests/cuda/facts/kernels.h"

#undef NDEBUG  // one kernel is there to fail its assertion
#include <cassert>

namespace mx::facts {

namespace {

__device__ unsigned long long nanoseconds() {
  unsigned long long now = 0;
  asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
  return now;
}

__global__ void gate(const volatile uint32_t* opened) {
  const unsigned long long begin = nanoseconds();
  while (*opened == 0 && nanoseconds() - begin < 20'000'000'000ull) __nanosleep(1000);
}

__global__ void write(uint32_t* target, uint32_t value) { *target = value; }
__global__ void first_in_capture(uint32_t* target) { *target = 1; }
__global__ void first_while_busy(uint32_t* target) { *target = 1; }
__global__ void loaded_while_busy(uint32_t* target) { *target = 1; }
__global__ void known_while_busy(uint32_t* target) { *target = 1; }

__global__ void crowd(uint32_t* inside, uint32_t* most) {
  const uint32_t now = atomicAdd(inside, 1u) + 1;
  atomicMax(most, now);
  const unsigned long long begin = nanoseconds();
  while (nanoseconds() - begin < 300'000ull) __nanosleep(1000);
  atomicSub(inside, 1u);
}

__global__ void trap() { __trap(); }
__global__ void failed_assertion(int value) { assert(value == 1); }
__global__ void misaligned_write(uint32_t* target) {
  *reinterpret_cast<uint32_t*>(reinterpret_cast<char*>(target) + 1) = 1;
}

}  // namespace

void launch_gate(const uint32_t* opened, cudaStream_t stream) { gate<<<1, 1, 0, stream>>>(opened); }
void launch_write(uint32_t* target, uint32_t value, cudaStream_t stream) {
  write<<<1, 1, 0, stream>>>(target, value);
}
void launch_crowd(uint32_t* inside, uint32_t* most, cudaStream_t stream) {
  crowd<<<1, 1, 0, stream>>>(inside, most);
}
void launch_first_in_capture(uint32_t* target, cudaStream_t stream) {
  first_in_capture<<<1, 1, 0, stream>>>(target);
}
void launch_first_while_busy(uint32_t* target, cudaStream_t stream) {
  first_while_busy<<<1, 1, 0, stream>>>(target);
}
void launch_loaded_while_busy(uint32_t* target, cudaStream_t stream) {
  loaded_while_busy<<<1, 1, 0, stream>>>(target);
}
void launch_known_while_busy(uint32_t* target, cudaStream_t stream) {
  known_while_busy<<<1, 1, 0, stream>>>(target);
}
void launch_write_to_null(cudaStream_t stream) { write<<<1, 1, 0, stream>>>(nullptr, 1); }
void launch_trap(cudaStream_t stream) { trap<<<1, 1, 0, stream>>>(); }
void launch_failed_assertion(cudaStream_t stream) { failed_assertion<<<1, 1, 0, stream>>>(0); }
void launch_misaligned_write(uint32_t* target, cudaStream_t stream) {
  misaligned_write<<<1, 1, 0, stream>>>(target);
}
void launch_too_large(cudaStream_t stream) { write<<<1, 4096, 0, stream>>>(nullptr, 1); }
const void* loaded_while_busy_function() { return reinterpret_cast<const void*>(&loaded_while_busy); }
const void* write_function() { return reinterpret_cast<const void*>(&write); }

}  // namespace mx::facts
