// The calls of those operator families whose operands have shapes of their own.
#pragma once

#include "benchmarks/op/runner.h"

namespace mx::bench {

/// Returns an empty function for a case of another family.
OpCall family_call(const OpCase& c);

}  // namespace mx::bench
