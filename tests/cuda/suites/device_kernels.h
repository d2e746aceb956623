// The kernels of the device suite, as host functions. Each launches one block.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>

namespace mx::conformance {

/// p[i] = value.
void launch_fill(uint32_t* p, size_t n, uint32_t value, cudaStream_t stream);
/// p[i] += delta.
void launch_add(uint32_t* p, size_t n, uint32_t delta, cudaStream_t stream);
/// Adds the number of elements that differ from `expected` to *mismatches.
void launch_check(const uint32_t* p, size_t n, uint32_t expected, uint32_t* mismatches, cudaStream_t stream);
/// Keeps the stream busy until *opened is not 0. `opened` is page-locked memory.
void launch_gate(const uint32_t* opened, cudaStream_t stream);

}  // namespace mx::conformance
