// The families of op_cases.h that have cases of their own, in libtorch's C++ interface.
#pragma once

#include "benchmarks/op/runner.h"

namespace mx::bench {

/// The call of a case, which sets PyTorch's modes of gradients itself; null for an operation that libtorch
/// has not.
OpCall torch_family_call(const OpCase& c);

}  // namespace mx::bench
