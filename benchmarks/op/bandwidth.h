// The limits of memory and arithmetic units, for comparison with the figures of operators. Each function uses
// one thread; the caller splits arrays and starts threads. Vector code, selected at run time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mx::bench {

/// Returns the sum of the words; reads every byte once.
uint64_t read_bytes(const void* from, size_t bytes);
/// memcpy with non-temporal stores. Both addresses and `bytes` are multiples of 64.
void copy_non_temporal(void* to, const void* from, size_t bytes);
/// c = a + b in a plain loop; the second one with non-temporal stores. Addresses are multiples of 64, `count`
/// of 16.
void add_floats(float* c, const float* a, const float* b, size_t count);
void add_floats_non_temporal(float* c, const float* a, const float* b, size_t count);
/// Runs multiply-adds in registers only. Returns the number of floating-point operations of one round. The
/// result is written to `sink`, so that the compiler cannot remove the work.
double fma_rounds(int64_t rounds, float* sink);

}  // namespace mx::bench
