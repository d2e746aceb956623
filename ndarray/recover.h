// Recovery of arrays after a bad batch: an error has skipped their updates, so that they hold the values from
// before it. Rule 5 of docs/errors.md.
#pragma once

#include <source_location>
#include <string>

#include "ndarray/save.h"

namespace mx::detail {

/// Makes arrays usable again that only skipped updates have poisoned. Does not wait. Arrays without an error
/// stay as they are, and so do arrays whose values are lost. Empty handles are left out.
void undo_skipped_updates(const NamedArrays& arrays,
                          std::source_location where = std::source_location::current());

/// Waits for the arrays. Throws InvalidState if some are still poisoned: it lists their names, and has the
/// first error and the `advice`. `caller` is the object for the message: "sgd", "Sequential".
void check_recovered(const std::string& caller, const NamedArrays& arrays, const std::string& advice,
                     std::source_location where = std::source_location::current());

}  // namespace mx::detail
