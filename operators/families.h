// The families that are built in: a table that the build generates from the list in operators/CMakeLists.txt,
// so that a static library loses none of them. Internal.
#pragma once

#include <vector>

#include "operators/operator.h"

namespace mx::detail {

const std::vector<OperatorFamily (*)()>& operator_families();

}  // namespace mx::detail
