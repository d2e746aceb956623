// Elementwise operations, as rows: a function over contiguous elements of one type is all that an operation
// has to bring; this turns any layout and any types of the operands into such rows.
//
// What a row function finds in its operands, it computes the same way at every position: then results depend
// on neither the layout nor how the work was split.
#pragma once

#include <array>
#include <cstdint>

#include "ndarray/kernels/strided_loop.h"
#include "ndarray/tensor.h"

namespace mx::kernels {

/// out[i] = f(in[0][i], in[1][i], ...) for n contiguous elements; out may be one of the inputs.
using Row = void (*)(void* out, const void* const* in, int64_t n);

/// A row function, the types that it reads and writes.
template <int N>
struct RowPass {
  Row row;
  DType out;
  std::array<DType, N> in;
  /// Null, or the same with stores past the caches: `out` lies at a multiple of kStreamAlignment bytes, n
  /// elements are a multiple of that, and no input overlaps it. The caller ends with stream_fence().
  Row stream = nullptr;
};

inline constexpr int64_t kStreamAlignment = 64;

/// For functions that store past the caches: fetches what they read some thousand elements later, so that
/// computing does not wait for memory, nor the stores for computing.
inline void prefetch_ahead(const void* at) { __builtin_prefetch(static_cast<const char*>(at) + 8192); }

/// Runs the pass over `out` and the operands, which all have out's shape; operands of other types are
/// converted through blocks that stay in the nearest cache. On several threads when large.
template <int N>
void walk_rows(const RowPass<N>& pass, const Tensor& out, const std::array<const Tensor*, N>& in);

extern template void walk_rows<1>(const RowPass<1>&, const Tensor&, const std::array<const Tensor*, 1>&);
extern template void walk_rows<2>(const RowPass<2>&, const Tensor&, const std::array<const Tensor*, 2>&);
extern template void walk_rows<3>(const RowPass<3>&, const Tensor&, const std::array<const Tensor*, 3>&);

/// The same for what is most frequent, without making a plan: everything contiguous, of the same shape, of
/// the pass's own types, and small. False when it is something else, and then nothing has happened.
template <class... In>
inline bool run_small(Row row, DType out_type, DType in_type, const Tensor& out, const In&... in) {
  if (out.dtype != out_type || ((in.dtype != in_type) || ...)) return false;
  const int rank = out.rank();
  if (((in.rank() != rank) || ...)) return false;
  int64_t n = 1;
  for (int i = rank - 1; i >= 0; --i) {
    const int64_t size = out.shape[i];
    if (((in.shape[i] != size) || ...)) return false;
    if (size != 1 && ((out.strides[i] != n) || ... || (in.strides[i] != n))) return false;
    n *= size;
  }
  if (n > kLoopGrain) return false;
  const void* const from[] = {in.data...};
  if (n > 0) row(out.data, from, n);
  return true;
}

}  // namespace mx::kernels
