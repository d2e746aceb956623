// Conversion of rows from one type to another. Copies and blocked kernels are built from it.
#pragma once

#include <cstdint>

#include "ndarray/dtype.h"

namespace mx::kernels {

/// to[i * to_step] = from[i * from_step] for n elements, converted as convert<To>() does; steps in elements,
/// any sign. The two may be the same elements; overlapping otherwise is not allowed.
using ConvertRow = void (*)(void* to, int64_t to_step, const void* from, int64_t from_step, int64_t n);

/// Returns the function for two types. Contiguous rows use the widest vectors of this processor.
ConvertRow convert_row(DType to, DType from);

/// Copies bytes with non-temporal stores, which do not fetch a line before writing it. For targets that are
/// too large to stay in the caches. The stores are ordered before later stores only after stream_fence():
/// call it before another thread learns of the data.
void stream_row(void* to, const void* from, int64_t bytes);
void stream_fence();

/// From this size of a result on, stream_row is faster: well beyond the private caches of a core.
inline constexpr int64_t kStreamBytes = int64_t{8} << 20;

/// Elements of a block when results are written with non-temporal stores. Computing and writing alternate,
/// and both wait for memory. So blocks are short, and the next blocks are prefetched while the current one is
/// computed.
inline constexpr int64_t kStreamBlock = 128;
inline void prefetch_block_ahead(const char* at, DType type) {
  constexpr int64_t kAhead = 16;
  const int64_t bytes = kStreamBlock * static_cast<int64_t>(size_of(type));
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + kAhead * bytes + i);
}

}  // namespace mx::kernels
