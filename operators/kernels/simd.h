// Which vector instructions the kernels run on.
#pragma once

#include <string>

namespace mx::kernels {

/// The instruction set that run-time dispatch picks on this processor, as Highway names it: "AVX3_ZEN4",
/// "AVX2", "NEON", ...
std::string simd_target();

}  // namespace mx::kernels
