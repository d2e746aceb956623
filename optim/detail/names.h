// The names of parameters in state dictionaries. Internal.
#pragma once

#include "operators/parameter.h"

namespace mx::optim::detail {

/// Returns the parameters that follow those of `before` with a name of their own each, as
/// Optimizer::parameters() describes it. An undefined Parameter becomes one with an empty handle.
Parameters with_names(const Parameters& before, const Parameters& added);

}  // namespace mx::optim::detail
