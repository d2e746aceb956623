// Reading a state dictionary: all mismatches are found before anything is used. Internal.
#pragma once

#include <source_location>
#include <string>
#include <vector>

#include "ndarray/save.h"

namespace mx::optim::detail {

/// Returns the arrays of `got` in the order of `expected`, whose arrays have the expected shapes and types.
/// Throws InvalidArgument, listing all names that are missing, unexpected or duplicate, and all arrays of
/// another shape or type. `what` names the object that is loaded: "adam", "StepLR". Waits for the arrays, and
/// throws the error of one that is poisoned. Arrays that share memory with `expected` are returned as copies.
std::vector<NDArray> matched(const std::string& what, const NamedArrays& expected, const NamedArrays& got,
                             std::source_location where);

}  // namespace mx::optim::detail
