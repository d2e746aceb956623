// Large inputs for any operator, made from the samples of its record: so that what holds, or is measured, for
// large arrays needs no line for a new operator.
#pragma once

#include <optional>
#include <vector>

#include "operators/operator.h"

namespace mx::test {

/// The first sample of the operator that can grow, so large that the largest operand or result takes about
/// `bytes`; of an operand counts what a call touches. One size grows, wherever it stands in the operands, or
/// the attribute that says the result's size; elements repeat. None where nothing grows. Calls the operator.
std::optional<Sample> large_sample(const Operator& op, double bytes);

/// The bytes of operands and results, each once; of an operand as many elements as the record's work() says
/// at most: an operator that takes a few elements of a table does not touch the rest.
double touched_bytes(const Operator& op, const Sample& sample, const std::vector<NDArray>& results);

}  // namespace mx::test
