// The kernel of fused expressions (operators/fused.h). No header of CUDA.
#pragma once

#include "ndarray/launch.h"

namespace mx::cuda {

/// The function that launches on a GPU; its attributes are FusedAttrs. Null in a build without CUDA.
KernelFn fused_kernel();

}  // namespace mx::cuda
