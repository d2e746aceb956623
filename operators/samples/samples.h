// Samples of operators: inputs with which every operator is tested and measured.
//
// They stand apart from the operators, in a library that tests and benchmarks link (mx::operator_samples):
// programs that only compute do not carry them. The record of an operator may have samples of its own
// (Operator::samples), as those from outside the tree have; those come first.
#pragma once

#include <vector>

#include "operators/operator.h"

namespace mx {

/// Varies every attribute, and the shapes that matter. Empty for an operator that has no samples.
std::vector<Sample> samples_of(const Operator& op);
bool has_samples(const Operator& op);

}  // namespace mx
