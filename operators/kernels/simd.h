// The vector instructions that the kernels use.
#pragma once

#include <string>

namespace mx::kernels {

/// Returns the instruction set that run-time dispatch selects on this processor, by Highway's name:
/// "AVX3_ZEN4", "AVX2", "NEON", ...
std::string simd_target();

}  // namespace mx::kernels
