// Reading a state dictionary: everything that does not fit is found before anything is used. Internal.
#pragma once

#include <source_location>
#include <string>
#include <vector>

#include "ndarray/save.h"

namespace mx::optim::detail {

/// The arrays of `got` in the order of `expected`, whose arrays have the shapes and types that are expected.
/// Throws InvalidArgument, listing all names that are missing, unexpected or come twice and all arrays of
/// another shape or type. `what` is loaded: "adam", "StepLR".
std::vector<NDArray> matched(const std::string& what, const NamedArrays& expected, const NamedArrays& got,
                             std::source_location where);

}  // namespace mx::optim::detail
