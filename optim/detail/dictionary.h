// Reading a state dictionary: everything that does not fit is found before anything is used. Internal.
#pragma once

#include <source_location>
#include <vector>

#include "ndarray/save.h"

namespace mx::optim::detail {

/// The arrays of `got` in the order of `expected`, whose arrays say which shape and type each must have.
/// Throws InvalidArgument, listing all names that are missing, unknown or come twice and all arrays of
/// another shape or type.
std::vector<NDArray> matched(const char* op, const NamedArrays& expected, const NamedArrays& got,
                             std::source_location where);

}  // namespace mx::optim::detail
