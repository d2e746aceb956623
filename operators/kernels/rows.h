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
};

/// Runs the pass over `out` and the operands, which all have out's shape; operands of other types are
/// converted through blocks that stay in the nearest cache. On several threads when large.
template <int N>
void run_rows(const RowPass<N>& pass, const Tensor& out, const std::array<const Tensor*, N>& in);

extern template void run_rows<1>(const RowPass<1>&, const Tensor&, const std::array<const Tensor*, 1>&);
extern template void run_rows<2>(const RowPass<2>&, const Tensor&, const std::array<const Tensor*, 2>&);
extern template void run_rows<3>(const RowPass<3>&, const Tensor&, const std::array<const Tensor*, 3>&);

}  // namespace mx::kernels
