// Cross-validation: a data set in k folds, each of which is once the part for validation.
//
//   for (const auto& [train, validation] : data::k_fold(set, 5, {.shuffle = true, .seed = 1})) {
//     data::Loader loader(train, {.batch_size = 64, .shuffle = true});
//     ...
//   }
#pragma once

#include <cstdint>
#include <source_location>
#include <vector>

#include "ndarray/scalar.h"
#include "nn/data/dataset.h"

namespace mx::data {

/// The numbers of the samples are those of Subset::indices(), in ascending order.
struct Fold {
  Subset train, validation;
};

struct KFoldOptions {
  bool shuffle = false;  ///< mix the samples before they are divided; otherwise a fold is a range of them
  IntArg seed = 0;       ///< of the order, if `shuffle` is set
};

/// Divides the samples into `folds` parts, as KFold of scikit-learn does: the sizes differ by at most one,
/// and the larger parts come first. Returns one Fold for each part: the part is its validation set, the other
/// samples are its training set. The result depends only on the arguments and is the same on every platform.
/// Throws InvalidArgument unless 2 <= folds <= dataset->size().
std::vector<Fold> k_fold(const DatasetHandle& dataset, IntArg folds, const KFoldOptions& options = {},
                         std::source_location where = std::source_location::current());

}  // namespace mx::data
