// For functions that owe others a message even if the engine skips them.
#pragma once

#include <exception>

namespace mx {

/// Returns the error of the variable because of which an operation is skipped, while the function of that
/// operation is being destroyed, and null at all other times. Thread-safety: any thread.
std::exception_ptr skip_cause();

}  // namespace mx
