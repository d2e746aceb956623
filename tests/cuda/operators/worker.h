// The comparison of operators on a GPU with the CPU, as a process of its own: after a fault of a kernel, no
// call of the process reaches the device any more.
#pragma once

#include <cstddef>

#include "operators/operator.h"

namespace mx::test {

/// Returns true if the operator has a kernel for the tested device.
bool runs_on_tested_device(const Operator& op);

/// Compares the operators from number `first` of all_operators() on. Writes to standard output, one line
/// each: "BEGIN <number> <name>" and "RESULT <name> | <passed> | <failed> | <first problem>" for each
/// operator, and "END". Ends the process after the line "LOST" if the device no longer works.
int compare_operators_from(size_t first);

}  // namespace mx::test
