// Sums and copies of some rows of a table, on the CPU.
#pragma once

#include <cstdint>

#include "ndarray/launch.h"
#include "ndarray/tensor.h"

namespace mx::kernels {

/// Sums the rows of `values` (n, width) that have the same index. rows[k] is the k-th smallest of the
/// indices, each listed once, and sums[k, :] the sum of its rows, in their order. The rest of `rows`, i64
/// (n,), is filled with `size`, and the rest of `sums` with 0. `indices` is i32 or i64 (n,), from -size to
/// size; a negative one counts from the end, and those that are `size` or skip_row are left out. Throws
/// InvalidArgument for other indices. f16 and bf16 are summed in f32 and rounded once.
void sum_rows(const KernelArgs& args, const Tensor& rows, const Tensor& sums, const Tensor& indices,
              const Tensor& values, int64_t size, int64_t skip_row);

/// target[rows[k], :] = values[k, :] up to the first k with rows[k] == target.shape[0]. `rows` is the result
/// of sum_rows(). All have the same type.
void put_rows(const Tensor& target, const Tensor& rows, const Tensor& values);

}  // namespace mx::kernels
