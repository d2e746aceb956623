// Elementwise operations by rows. An operation supplies a row function, which computes contiguous elements of
// one type. The functions here apply it to operands of any layout and type.
//
// A row function must compute an element the same way at every position. Then the results depend neither on
// the layout nor on how the work is split.
#pragma once

#include <array>
#include <cstdint>

#include "ndarray/kernels/strided_loop.h"
#include "ndarray/tensor.h"

namespace mx::kernels {

/// out[i] = f(in[0][i], in[1][i], ...) for n contiguous elements; out may be one of the inputs.
using Row = void (*)(void* out, const void* const* in, int64_t n);

/// A row function, and the types that it writes and reads.
template <int N>
struct RowPass {
  Row row;
  DType out;
  std::array<DType, N> in;
  /// Null, or a variant with non-temporal stores. Preconditions: `out` is aligned to kStreamAlignment bytes,
  /// the n elements are a multiple of that many bytes, and no input overlaps `out`. The caller must call
  /// stream_fence() at the end.
  Row stream = nullptr;
};

inline constexpr int64_t kStreamAlignment = 64;

/// For functions with non-temporal stores: prefetches the operands some thousand elements ahead. Otherwise
/// computing would wait for loads, and the stores would wait for computing.
inline void prefetch_ahead(const void* at) { __builtin_prefetch(static_cast<const char*>(at) + 8192); }

/// Runs the pass over `out` and the operands, which all have out's shape. Operands of other types are
/// converted in blocks that fit into the first-level cache. Runs on several threads if large.
template <int N>
void walk_rows(const RowPass<N>& pass, const Tensor& out, const std::array<const Tensor*, N>& in);

extern template void walk_rows<1>(const RowPass<1>&, const Tensor&, const std::array<const Tensor*, 1>&);
extern template void walk_rows<2>(const RowPass<2>&, const Tensor&, const std::array<const Tensor*, 2>&);
extern template void walk_rows<3>(const RowPass<3>&, const Tensor&, const std::array<const Tensor*, 3>&);

/// A fast path without a plan for the most frequent case: all operands are contiguous, small, of the same
/// shape and of the pass's own types. In any other case returns false and does nothing.
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
