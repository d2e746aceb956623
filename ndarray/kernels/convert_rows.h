// Rows of elements from one type to another: what copies and the blocks of other kernels are made of.
#pragma once

#include <cstdint>

#include "ndarray/dtype.h"

namespace mx::kernels {

/// to[i * to_step] = from[i * from_step] for n elements, converted as convert<To>() does; steps in elements,
/// any sign. The two may be the same elements; overlapping otherwise is not allowed.
using ConvertRow = void (*)(void* to, int64_t to_step, const void* from, int64_t from_step, int64_t n);

/// The function for two types. Contiguous rows run on the widest vectors of this processor.
ConvertRow convert_row(DType to, DType from);

/// Copies bytes past the caches: for targets so large that nobody reads them again soon, as the line need not
/// be fetched before it is written. Ordered before later stores of any thread that learns of it when
/// stream_fence() follows.
void stream_row(void* to, const void* from, int64_t bytes);
void stream_fence();

/// Bytes of a result from which on stream_row pays: well beyond what a core keeps in its own caches.
inline constexpr int64_t kStreamBytes = int64_t{8} << 20;

/// Elements of a block where results go past the caches: computing and writing take turns, and while one
/// waits for memory the other should not have to. So blocks are short, and the next ones are fetched while
/// these are worked on.
inline constexpr int64_t kStreamBlock = 128;
inline void prefetch_block_ahead(const char* at, DType type) {
  constexpr int64_t kAhead = 16;
  const int64_t bytes = kStreamBlock * static_cast<int64_t>(size_of(type));
  for (int64_t i = 0; i < bytes; i += 64) __builtin_prefetch(at + kAhead * bytes + i);
}

}  // namespace mx::kernels
