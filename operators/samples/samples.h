// Samples of operators: inputs with which every operator is tested and measured.
//
// They are in a separate library, mx::operator_samples, which only tests and benchmarks link, so programs do
// not contain them. A record may have samples of its own (Operator::samples), as records from outside of this
// source tree do; those take precedence.
#pragma once

#include <vector>

#include "operators/operator.h"

namespace mx {

/// Returns samples that vary every attribute and the shapes that matter; empty if the operator has none.
std::vector<Sample> samples_of(const Operator& op);
bool has_samples(const Operator& op);

}  // namespace mx
