// Saving and loading the state of an optimiser.
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/grad_mode.h"
#include "optim/detail/dictionary.h"
#include "optim/optimizer.h"

namespace mx::optim {

NamedArrays Optimizer::state_dict() const {
  const NoGrad pause;
  follow(std::source_location::current());
  NamedArrays entries;
  for (size_t g = 0; g < groups_.size(); ++g)
    entries.emplace_back(mx::detail::concat("group.", g, ".learning_rate"), scalar_array(groups_[g].lr, f64));
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Kept kept = kept_for(i);
    const auto add = [&](const std::string& what, const NDArray& array) {
      entries.emplace_back("state." + parameters_[i].name + "." + what, array);
    };
    if (kept.count.defined()) add("step", kept.count);
    for (size_t k = 0; k < kept.state.size(); ++k)
      add(groups_[layout_.shards[layout_.places[i].shard].group].state[k], kept.state[k]);
    if (kept.master.defined()) add("master", kept.master);
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
  // Counts are collected and then written as whole arrays. Writing single rows would not clear an error that
  // has poisoned an array.
  std::vector<Shard>& shards = layout_.shards;
  std::vector<NDArray> counts(shards.size());
  for (size_t s = 0; s < shards.size(); ++s)
    if (shards[s].numbers.counts.defined()) counts[s] = zeros(shards[s].numbers.counts.shape(), f64);
  size_t at = groups_.size();
  for (const Place& place : layout_.places) {
    Shard& shard = shards[place.shard];
    if (shard.numbers.counts.defined())
      counts[place.shard].select(0, static_cast<int64_t>(place.row)).copy_from(loaded[at++]);
    for (auto& list : shard.state) list[place.row].copy_from(loaded[at++]);
    if (shard.masters()) shard.arrays.parameters[place.row].copy_from(loaded[at++]);
  }
  for (size_t s = 0; s < shards.size(); ++s)
    if (counts[s].defined()) shards[s].numbers.counts.copy_from(counts[s]);
}

void Optimizer::recover(std::source_location where) {
  Engine& engine = current_engine();
  const auto heal = [&](const NDArray& array) { engine.recover(array.var(), where); };
  for (const Shard& shard : layout_.shards) {
    for (const NDArray& array : shard.arrays.parameters) heal(array);
    for (const NDArray& array : shard.arrays.copies) heal(array);
    for (const auto& list : shard.state)
      for (const NDArray& array : list) heal(array);
    if (shard.numbers.counts.defined()) heal(shard.numbers.counts);
  }
  if (loss_scale_.has_value()) heal(loss_scale_->state());
}

}  // namespace mx::optim
