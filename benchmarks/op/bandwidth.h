// What memory and the arithmetic units can do at most, so that figures of operators can be held against it.
// One thread each; the caller splits arrays and starts threads. Vector code, chosen at run time.
#pragma once

#include <cstddef>
#include <cstdint>

namespace mx::bench {

/// The sum of the words: reads every byte once.
uint64_t read_bytes(const void* from, size_t bytes);
/// memcpy with stores that go past the caches. Both addresses and `bytes` are multiples of 64.
void copy_non_temporal(void* to, const void* from, size_t bytes);
/// c = a + b and nothing else; the same with stores that go past the caches. Addresses are multiples of 64,
/// `count` of 16.
void add_floats(float* c, const float* a, const float* b, size_t count);
void add_floats_non_temporal(float* c, const float* a, const float* b, size_t count);
/// Multiply-adds in registers only. Returns how many floating-point operations one round is; the result goes
/// to `sink`, so that the work cannot be left out.
double fma_rounds(int64_t rounds, float* sink);

}  // namespace mx::bench
