// Large inputs for any operator, made from the samples of its record. A test or measurement with large arrays
// therefore needs no extra line for a new operator.
#pragma once

#include <optional>
#include <vector>

#include "operators/operator.h"

namespace mx::test {

/// Returns the first sample of the operator that can grow, enlarged until the largest operand or result takes
/// about `bytes`; for an operand, only the bytes that a call touches count. Either all dimensions of one size
/// grow, in every operand that has it, or the attribute that determines the result's size grows; elements
/// repeat. Returns nullopt if nothing can grow. Calls the operator.
std::optional<Sample> large_sample(const Operator& op, double bytes);

/// Returns the bytes of operands and results, each counted once. For an operand, at most as many elements
/// count as the record's work() says: an operator that takes a few elements of a table does not touch the
/// rest.
double touched_bytes(const Operator& op, const Sample& sample, const std::vector<NDArray>& results);

}  // namespace mx::test
