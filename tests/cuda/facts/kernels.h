// The kernels of the facts, as host functions. All launch one thread unless they say otherwise.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>

namespace mx::facts {

/// Keeps the stream busy until *opened is not 0, for 20 s at most. `opened` is page-locked memory.
void launch_gate(const uint32_t* opened, cudaStream_t stream);
/// *target = value.
void launch_write(uint32_t* target, uint32_t value, cudaStream_t stream);
/// Notes in *most how many of these kernels ran at the same time at most. *inside counts those that run.
void launch_crowd(uint32_t* inside, uint32_t* most, cudaStream_t stream);
/// Kernels that are launched at one place only, so that their first launch loads them if loading is lazy.
void launch_first_in_capture(uint32_t* target, cudaStream_t stream);
void launch_first_while_busy(uint32_t* target, cudaStream_t stream);
void launch_loaded_while_busy(uint32_t* target, cudaStream_t stream);
void launch_known_while_busy(uint32_t* target, cudaStream_t stream);
/// Faults of a kernel.
void launch_write_to_null(cudaStream_t stream);
void launch_trap(cudaStream_t stream);
void launch_failed_assertion(cudaStream_t stream);
void launch_misaligned_write(uint32_t* target, cudaStream_t stream);
/// Asks for more threads per block than exist.
void launch_too_large(cudaStream_t stream);
/// The function that launch_loaded_while_busy() starts.
const void* loaded_while_busy_function();
/// The function that launch_write() starts, for cudaFuncGetAttributes.
const void* write_function();

}  // namespace mx::facts
