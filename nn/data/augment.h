// Random changes of samples, each with its own random numbers. The functions are operators: they return at
// once and run in the engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "nn/data/sample_random.h"
#include "operators/operator.h"

namespace mx::data {

/// Returns the batch (n, ..), converted to f32, plus normal random numbers of that standard deviation. A
/// sample's numbers are a function of its number in `indices`, i64 (n,), of `key` and of `source`
/// (sample_random.h). On processors with other vector instructions the last digit may differ. Throws
/// InvalidArgument for a stddev that is negative or not finite.
NDArray add_noise(const Arg& batch, const NDArray& indices, uint64_t key, uint32_t source, double stddev);

/// Changes one sample: a contiguous tensor without the batch's first dimension. Called in the engine, from
/// several threads at once for different samples. If it throws, the batch is poisoned with the exception.
using SampleFunction = std::function<void(const Tensor& sample, SampleRandom& random)>;

/// Returns a copy of the batch with `function` applied to each sample. Random numbers are as in add_noise().
NDArray map_samples(const Arg& batch, const NDArray& indices, uint64_t key, uint32_t source,
                    std::shared_ptr<const SampleFunction> function);

}  // namespace mx::data
