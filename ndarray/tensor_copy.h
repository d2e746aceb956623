// Copies and fills inside kernels that serve every device: a kernel that consists of them needs no code of
// its own for GPUs, and its record names it with cuda::also().
#pragma once

#include "ndarray/launch.h"

namespace mx::detail {

/// to[i] = from[i], as kernels::copy() does, on the device of the kernel. Same shape, no overlap.
void copy_tensor(const KernelArgs& args, const Tensor& to, const Tensor& from);

/// to[i] = value, as kernels::fill() does, on the device of the kernel.
void fill_tensor(const KernelArgs& args, const Tensor& to, const Scalar& value);

}  // namespace mx::detail
