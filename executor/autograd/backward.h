// The backward pass through recorded operations. Internal; users call NDArray::backward() and gradients().
#pragma once

#include <span>
#include <vector>

#include "executor/autograd/node.h"

namespace mx::detail {

/// Runs a backward pass, which adds gradients to the leaves that `outputs` depend on. `heads` has one array
/// per output, or none at all; for an output of one element an empty handle means 1.
void go_back(std::span<const NDArray> outputs, std::span<const NDArray> heads,
             const BackwardOptions& options);

/// Returns the gradients of `inputs`, and an empty handle for an input that no output depends on. Gradients
/// of leaves are not changed. `others` may be given if the inputs are leaves: it is set to whether the
/// outputs depend on further leaves. If they do, the gradients may depend on these too, so they are recorded
/// as with create_graph.
std::vector<NDArray> gradients_of(std::span<const NDArray> outputs, std::span<const NDArray> inputs,
                                  std::span<const NDArray> heads, BackwardOptions options,
                                  bool* others = nullptr);

/// The same for recorded outputs and for edges instead of arrays. The gradients do not include what flows
/// through one of the edges to another, and hooks at the edges do not run.
std::vector<NDArray> gradients_at(std::span<const NDArray> outputs, std::span<const Edge> inputs,
                                  std::span<const NDArray> heads, const BackwardOptions& options);

}  // namespace mx::detail
