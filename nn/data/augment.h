// Changes of samples by random numbers of their own. Operators: they return at once, and run in the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "nn/data/sample_random.h"
#include "operators/operator.h"

namespace mx::data {

/// batch (n, ..), converted to f32, plus normal numbers of that deviation. What a sample gets is a function
/// of its number in `indices`, i64 (n,), of `key` and of `source` (sample_random.h). Processors with other
/// vector instructions may differ in the last place. Throws InvalidArgument for a deviation that is negative
/// or not finite.
NDArray add_noise(const Arg& batch, const NDArray& indices, uint64_t key, uint32_t source, double deviation);

/// Changes one sample: a contiguous tensor without the batch's first dimension. Called in the engine, from
/// several threads at once for different samples; what it throws fails the batch.
using SampleFunction = std::function<void(const Tensor& sample, SampleRandom& random)>;

/// A copy of the batch with `function` applied to each sample, with random numbers as above.
NDArray map_samples(const Arg& batch, const NDArray& indices, uint64_t key, uint32_t source,
                    std::shared_ptr<const SampleFunction> function);

}  // namespace mx::data
