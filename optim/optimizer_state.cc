// Saving and loading the state of an optimiser.
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/grad_mode.h"
#include "ndarray/recover.h"
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
  const NoGrad pause;
  NamedArrays arrays;
  for (const NamedParameter& parameter : parameters_)  // the layout has other arrays if a module was moved
    arrays.emplace_back(parameter.name, parameter.array());
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Place& place = layout_.places[i];
    const Shard& shard = layout_.shards[place.shard];
    const auto add = [&](const std::string& what, const NDArray& array) {
      arrays.emplace_back("state." + parameters_[i].name + "." + what, array);
    };
    if (shard.masters()) add("master", shard.arrays.parameters[place.row]);
    for (size_t k = 0; k < shard.state.size(); ++k)
      add(groups_[shard.group].state[k], shard.state[k][place.row]);
    if (shard.numbers.counts.defined()) add("step", shard.numbers.counts);
  }
  if (loss_scale_.has_value()) arrays.emplace_back("the loss scale", loss_scale_->state());
  mx::detail::undo_skipped_updates(arrays, where);
  mx::detail::check_recovered(
      name_, arrays,
      "load a checkpoint, and on an accelerator call set_recoverable() before training so that this does not "
      "happen",
      where);
}

}  // namespace mx::optim
