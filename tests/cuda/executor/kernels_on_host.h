// The CUDA kernels of operators as g++ has compiled them, by the operators' names.
#pragma once

#include <map>
#include <string>

#include "ndarray/launch.h"

namespace mx::test {

const std::map<std::string, KernelFn>& kernels_on_host();

}  // namespace mx::test
