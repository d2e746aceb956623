// Runs CUDA kernels that g++ has compiled, one fiber for each CUDA thread and one block after the other.
//
// A fiber runs until it waits: at a barrier, or in an operation of its warp. The order in which blocks and
// ready fibers run is an option, so a result that depends on this order differs between orders. Shared memory
// is a new heap block for each thread block and is full of NaN.
//
// With ThreadSanitizer every CUDA thread is a fiber of the sanitizer, and a switch does not synchronise. Only
// barriers and __syncwarp do. So the sanitizer reports accesses that no barrier orders, in shared and in
// global memory, within a block and between blocks. With AddressSanitizer accesses outside of arrays and of
// shared memory are reported.
//
// Not shown: speed, registers, the effects of fences, what nvcc computes otherwise than g++ (contraction,
// approximate functions), device code of CUB, and tensor cores.
//
// Thread-safety: each host thread has its own executor and its own options.
#pragma once

#include <cstddef>
#include <cstdint>
#include <stdexcept>

namespace mx::test {

/// What CUDA refuses at the launch, or what is undefined in a kernel.
struct KernelFault : std::runtime_error {
  using std::runtime_error::runtime_error;
};

enum class ThreadOrder : uint8_t { forward, reverse, shuffled };

struct ExecutorOptions {
  ThreadOrder order = ThreadOrder::forward;
  uint64_t seed = 1;  ///< of `shuffled`
};

/// Returns the options of the calling thread's launches; they may be changed between launches.
ExecutorOptions& executor_options();

/// The number of launches by the calling thread so far.
int64_t executor_launches();

}  // namespace mx::test
