#include "nn/data/epoch_order.h"

#include "engine/base/host_list.h"
#include "ndarray/tensor.h"
#include "operators/kernels/random.h"

namespace mx::data {

std::vector<int64_t> random_order(int64_t n, int64_t seed, int64_t epoch, RandomPurpose purpose) {
  checked_numel({n}, sizeof(int64_t), "random_order");
  std::vector<int64_t> order = host_list<int64_t>(n, "random_order");
  mx::kernels::random_permutation({order.data(), i64, {n}, {1}}, epoch_key(seed, epoch, purpose), 0);
  return order;
}

EpochOrder::EpochOrder(const OrderOptions& options, int64_t epoch) : options_(options) {
  if (!options.shuffle) return;
  take_shard(random_order(options.samples, options.seed, epoch));
}

EpochOrder::EpochOrder(const OrderOptions& options, const std::vector<int64_t>& all) : options_(options) {
  take_shard(all);
}

void EpochOrder::take_shard(const std::vector<int64_t>& all) {
  order_.reserve(static_cast<size_t>(size()));
  for (int64_t place = 0; place < size(); ++place)
    order_.push_back(all[static_cast<size_t>(place_in_order(place))]);
}

}  // namespace mx::data
