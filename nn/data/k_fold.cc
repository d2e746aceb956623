#include "nn/data/k_fold.h"

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "nn/data/epoch_order.h"

namespace mx::data {

std::vector<Fold> k_fold(const DatasetHandle& dataset, IntArg folds, const KFoldOptions& options,
                         std::source_location where) try {
  MX_CHECK(dataset != nullptr, InvalidArgument, "[k_fold] expected a data set, got an empty pointer");
  const int64_t n = dataset->size(), k = folds;
  MX_CHECK(k >= 2 && k <= n, InvalidArgument, "[k_fold] expected 2 to ", n,
           " folds, the number of samples, got ", k);
  std::vector<int64_t> order;
  if (options.shuffle) order = random_order(n, options.seed, 0, RandomPurpose::split);
  std::vector<int64_t> fold_of(static_cast<size_t>(n));
  for (int64_t fold = 0, at = 0; fold < k; ++fold) {
    const int64_t end = at + n / k + (fold < n % k ? 1 : 0);
    for (; at < end; ++at) {
      const int64_t sample = order.empty() ? at : order[static_cast<size_t>(at)];
      fold_of[static_cast<size_t>(sample)] = fold;
    }
  }
  std::vector<Fold> all;
  for (int64_t fold = 0; fold < k; ++fold) {
    std::vector<int64_t> train, validation;
    for (int64_t i = 0; i < n; ++i)
      (fold_of[static_cast<size_t>(i)] == fold ? validation : train).push_back(i);
    all.push_back({Subset(dataset, std::move(train)), Subset(dataset, std::move(validation))});
  }
  return all;
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

}  // namespace mx::data
