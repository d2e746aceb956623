// Clipping of gradients outside of an optimiser. (Inside, use the options `clip` and `max_norm`: they need no
// pass of their own.)
//
//   loss.backward();
//   NDArray norm = optim::clip_grad_norm(net.parameters(), 1.0);
//   opt.step();
//
// The functions replace gradients in place, record nothing and return at once. Parameters without a gradient
// are skipped. With an infinite limit, gradients stay as they are: clip_grad_norm() then only returns the
// norm. All throw InvalidArgument for a limit that is not above 0. Thread-safety: that of NDArray.
#pragma once

#include <source_location>

#include "ndarray/ndarray.h"
#include "operators/parameter.h"

namespace mx::optim {

/// Multiplies all gradients by min(1, max_norm / (norm + 1e-6)), where norm is the 2-norm of all of them
/// together. Returns the norm, rank 0. As torch.nn.utils.clip_grad_norm_.
NDArray clip_grad_norm(const Parameters& parameters, double max_norm,
                       std::source_location where = std::source_location::current());
/// Does the same for each gradient by itself.
void clip_each_grad_norm(const Parameters& parameters, double max_norm,
                         std::source_location where = std::source_location::current());
/// Limits each element to [-limit, limit]. NaN stays NaN.
void clip_grad_value(const Parameters& parameters, double limit,
                     std::source_location where = std::source_location::current());

}  // namespace mx::optim
