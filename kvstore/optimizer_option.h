// What all stores check before they change an option of their optimiser. Internal.
#pragma once

#include <source_location>
#include <string>

#include "ndarray/attrs.h"

namespace mx::detail {

/// Throws InvalidArgument, naming the line of the program, if an optimiser keeps other arrays for each key
/// when `option` is `value`: "momentum" from 0 to 0.9, for example. Then the state of the keys would not fit
/// any more. `options` are those before the change. Thread-safety: any thread.
void check_same_state(const std::string& optimizer, const AttrMap& options, const std::string& option,
                      double value, std::source_location where);

}  // namespace mx::detail
