// checkpoint(): a part of a program whose intermediate results are not kept for the backward pass, but
// computed again in it. It trades time for memory: the part runs twice.
//
//   NDArray h = checkpoint([&](const NDArray& a) { return block(a); }, x);     // block: a module, say
//   std::vector<NDArray> two = checkpoint(f, std::vector<NDArray>{x, y});      // f: list to list
//
// The results have the same bits as without it, and so have gradients, unless several contributions to one
// gradient are added in another order. Gradients flow to the inputs and to every
// recorded array that the function uses, such as the parameters of a module. The second run draws the same
// random numbers as the first and has the same training mode. State that the function changes, such as
// running means, is changed in both runs.
//
// The function must compute the same thing when it is called again: the backward pass throws InvalidState if
// the function then uses other recorded arrays, or if an input or a leaf that it uses was changed in place.
// A result that a captured array had before the call, such as exp(w), is not checked. The function must not
// change its inputs in place: InvalidState. The results are arrays of their own: one that would share memory
// with an input, with a captured array or with another result, or that is a part of a larger array, is a
// copy. The function must not keep its results, and what it captures lives as long as the graph. Do not
// capture an array to which a value that depends on the result is assigned later: they would never be freed.
//
// Thread-safety: that of recording (autograd.h). While the backward pass runs the function again, it rewinds
// the default generators that the function can use, so other threads should not draw from these meanwhile,
// or set CheckpointOptions::same_random_numbers to false.
// Source of the idea: Chen et al., "Training Deep Nets with Sublinear Memory Cost", 2016.
#pragma once

#include <concepts>
#include <functional>
#include <source_location>
#include <span>
#include <vector>

#include "ndarray/ndarray.h"

namespace mx {

struct CheckpointOptions {
  /// Rewind the default generators of the CPU and of the inputs' devices for the second run.
  bool same_random_numbers = true;
};

using CheckpointFunction = std::function<std::vector<NDArray>(std::span<const NDArray> inputs)>;

/// Calls f(inputs). Throws what f throws, and InvalidArgument for an empty function or handle.
std::vector<NDArray> checkpoint(CheckpointFunction f, const std::vector<NDArray>& inputs,
                                const CheckpointOptions& options = {},
                                std::source_location where = std::source_location::current());

/// The same for a function of arrays that returns one array.
template <class F, std::same_as<NDArray>... Inputs>
requires std::invocable<F&, const Inputs&...> NDArray checkpoint(F f, const Inputs&... inputs) {
  const auto call = [f = std::move(f)](std::span<const NDArray> list) mutable {
    return [&]<size_t... kIndex>(std::index_sequence<kIndex...>) {
      return std::vector<NDArray>{f(list[kIndex]...)};
    }
    (std::index_sequence_for<Inputs...>{});
  };
  return checkpoint(CheckpointFunction(call), std::vector<NDArray>{inputs...})[0];
}

}  // namespace mx
