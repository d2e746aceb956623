// Hooks that run when a backward pass has updated the gradient of a leaf. With such a hook an optimiser can
// use and free each gradient while the pass goes on, so that the gradients of a model are never all in
// memory.
//
//   for (const auto& [name, p] : net.parameters())
//     add_post_accumulate_hook(p, [](const NDArray& leaf) {
//       { NoGrad pause;  NDArray w = leaf;  w -= 0.1 * leaf.grad(); }
//       leaf.set_grad({});
//     });
//   loss.backward();                  // updates the parameters
//
// The hook runs once for each backward pass that reaches the leaf, when all contributions to its gradient
// have been added to grad(): after the last operation of the graph that uses the leaf, not at the end of the
// pass. It runs on the thread of the pass. Hooks run in the order in which they were added. A pass of
// gradients() changes no grad(), so it runs none. The argument is a handle of its own to the memory and the
// gradient of the leaf. The hook may set or remove the gradient, and change the values in place
// (in NoGrad): no gradient of this pass reads them any more. A second pass through a retained graph that
// reads them throws InvalidState.
//
// A hook must not own the array, or a parameter or an optimiser that holds it, unless it is removed: the
// array owns the hook, so neither would be freed. Capture a reference or a weak pointer.
//
// If a hook throws, the exception leaves the backward pass and names the line that added the hook. The
// gradient stays as it was updated. The graph stays usable if it was retained.
//
// Thread-safety: as add_grad_hook(). If several passes reach the leaf at the same time, its hooks may run at
// the same time. The names follow torch.Tensor.register_post_accumulate_grad_hook.
#pragma once

#include <functional>
#include <source_location>

#include "ndarray/ndarray.h"

namespace mx {

using PostAccumulateHook = std::function<void(const NDArray& leaf)>;

/// Adds a hook to an array with requires_grad_(). The handle's remove() removes it; destroying the handle
/// does not. The hook belongs to the array: a module that is moved to another device or type has new arrays,
/// without it. Throws InvalidArgument for an empty function, and InvalidState for an array that is not a
/// leaf.
HookHandle add_post_accumulate_hook(const NDArray& leaf, PostAccumulateHook hook,
                                    std::source_location where = std::source_location::current());

}  // namespace mx
