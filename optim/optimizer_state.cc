// What an optimiser saves and loads.
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/grad_mode.h"
#include "optim/detail/dictionary.h"
#include "optim/optimizer.h"

namespace mx::optim {

NamedArrays Optimizer::state_dict() const {
  const NoGrad pause;
  NamedArrays entries;
  for (size_t g = 0; g < groups_.size(); ++g)
    entries.emplace_back(mx::detail::concat("group.", g, ".learning_rate"), scalar_array(groups_[g].lr, f64));
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Shard& shard = shards_[places_[i].shard];
    const size_t row = places_[i].row;
    const auto add = [&](const std::string& what, const NDArray& array) {
      entries.emplace_back("state." + names_[i] + "." + what, array);
    };
    if (shard.numbers.counts.defined())
      add("step", shard.numbers.counts.select(0, static_cast<int64_t>(row)));
    for (size_t k = 0; k < shard.state.size(); ++k) add(groups_[shard.group].state[k], shard.state[k][row]);
    if (shard.masters()) add("master", shard.arrays.parameters[row]);
  }
  return entries;
}

void Optimizer::load_state_dict(const NamedArrays& state, std::source_location where) {
  const NoGrad pause;
  const NamedArrays own = state_dict();
  const std::vector<NDArray> loaded = detail::matched(name_, own, state, where);
  std::vector<double> rates;
  for (size_t g = 0; g < groups_.size(); ++g) {
    rates.push_back(loaded[g].item<double>());
    check_rate(rates.back());
  }

  for (size_t g = 0; g < groups_.size(); ++g) set_rate(g, rates[g]);
  // Counts are replaced as a whole: writing rows would not heal them. Both may be the same arrays.
  std::vector<NDArray> counts(shards_.size());
  for (size_t s = 0; s < shards_.size(); ++s)
    if (shards_[s].numbers.counts.defined()) counts[s] = zeros(shards_[s].numbers.counts.shape(), f64);
  size_t at = groups_.size();
  for (const Place& place : places_) {
    Shard& shard = shards_[place.shard];
    if (shard.numbers.counts.defined())
      counts[place.shard].select(0, static_cast<int64_t>(place.row)).copy_from(loaded[at++]);
    for (auto& list : shard.state) list[place.row].copy_from(loaded[at++]);
    if (shard.masters()) shard.arrays.parameters[place.row].copy_from(loaded[at++]);
  }
  for (size_t s = 0; s < shards_.size(); ++s)
    if (counts[s].defined()) shards_[s].numbers.counts.copy_from(counts[s]);
}

}  // namespace mx::optim
