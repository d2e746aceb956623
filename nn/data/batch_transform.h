// Batch transforms: changes of all fields of a batch together.
//
//   data::Loader loader(set, {.batch_size = 64, .batch_transform = data::mixup(0.2, /*classes=*/10)});
//
// A batch transform calls operators: it pushes operations and returns at once. Any thread may use one.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "nn/data/transform.h"

namespace mx::data {

/// Returns the fields of the changed batch. The first dimension of each must stay the number of samples.
using BatchTransform = std::function<std::vector<NDArray>(std::vector<NDArray> fields, const SampleIds& ids)>;

/// Applies batch transforms in order.
BatchTransform chain_batches(std::vector<BatchTransform> transforms);

/// Mixes each sample with the next one of its batch, and the last with the first: field 0 becomes
/// w x[i] + (1 - w) x[i + 1] in f32, and field 1, the labels, becomes the same mixture of one-hot rows, f32
/// (n, classes). Labels are i64 (n,); those that are f32 (n, classes) already are mixed as they are. w is
/// drawn for each sample from Beta(alpha, alpha); it depends on the loader's seed, the epoch and the sample's
/// number only. Other fields stay as they are. Source: Zhang et al., "mixup: Beyond Empirical Risk
/// Minimization", 2018. Throws InvalidArgument unless alpha > 0 and classes > 0.
BatchTransform mixup(double alpha, int64_t classes);

}  // namespace mx::data
