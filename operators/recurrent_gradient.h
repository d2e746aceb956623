// Gradients of recurrent layers made of operators, one step after the other, for gradients of gradients.
// Internal to recurrent.cc.
#pragma once

#include "operators/gradient.h"
#include "operators/kernels/recurrent.h"

namespace mx::detail {

/// Sets the gradients of the inputs of rnn, lstm or gru, whose record is in recurrent.cc.
void recurrent_gradient_by_operators(GradientContext& g, kernels::RecurrentCell cell, bool reverse,
                                     const kernels::SequencePlan& plan);

/// Returns the state before each row (rows, hidden): the result of the step before it, or the initial state.
NDArray states_before(const NDArray& y, const NDArray& h0, bool reverse, const kernels::SequencePlan& plan);

/// Joins all dimensions but the last.
NDArray as_rows(const NDArray& x);

}  // namespace mx::detail
