// The check of numerics (MX_CHECK_NUMERICS=1) for kernels of which some results may be infinite. Internal.
//
// Such a kernel has Kernel::check_numerics == false and calls check_outputs() itself, for the results in
// which an infinity would be an error. Thread-safety: any thread may call these functions.
#pragma once

#include <cstdint>

#include "ndarray/launch.h"

namespace mx::detail {

/// Throws NumericError if an output of `outputs` (bit i: output i) has NaN or infinity although all inputs
/// and attributes are finite. Does nothing if the check is off, or if the arguments belong to a GPU.
/// Precondition: the kernel has run, and has not changed its inputs.
void check_outputs(const KernelArgs& args, uint64_t outputs);

}  // namespace mx::detail
