// The table of built-in operator families. The build generates it from the list in operators/CMakeLists.txt;
// because the table refers to every family, the linker of a static library drops none. Internal.
#pragma once

#include <vector>

#include "operators/operator.h"

namespace mx::detail {

const std::vector<OperatorFamily (*)()>& operator_families();

}  // namespace mx::detail
