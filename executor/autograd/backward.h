// The backward pass through what was recorded. Internal; users call NDArray::backward() and gradients().
#pragma once

#include <span>
#include <vector>

#include "executor/autograd/node.h"

namespace mx::detail {

/// Adds gradients to the leaves that `outputs` depend on. `heads`: one per output, an empty handle for ones
/// where the output has one element.
void go_back(std::span<const NDArray> outputs, std::span<const NDArray> heads,
             const BackwardOptions& options);

/// The gradients of `inputs`; leaves get none. An empty handle where no output depends on an input. `others`,
/// where given (the inputs are leaves then), becomes whether the outputs depend on further leaves; if so, the
/// gradients may too, and are recorded as with create_graph.
std::vector<NDArray> gradients_of(std::span<const NDArray> outputs, std::span<const NDArray> inputs,
                                  std::span<const NDArray> heads, BackwardOptions options,
                                  bool* others = nullptr);

}  // namespace mx::detail
