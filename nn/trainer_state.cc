// The state of a trainer's optimiser as of one process, and the recovery from a bad batch.
#include <exception>
#include <map>
#include <string>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"
#include "ndarray/recover.h"
#include "nn/detail/gradient_buckets.h"
#include "nn/trainer.h"

namespace mx::nn {
namespace {

/// One entry of a state dictionary that belongs to a parameter: "state.<parameter>.<what>".
struct StateEntry {
  size_t place = SIZE_MAX;  // of the parameter in the replica; SIZE_MAX: the entry belongs to none
  std::string what;
};

/// Finds the parameter of an entry. Only entries that have one element for each of the parameter are split
/// between processes, so the number of the step is not.
StateEntry entry_of(const std::string& name, const std::map<std::string, size_t>& places) {
  constexpr const char* kState = "state.";
  const size_t dot = name.find_last_of('.');
  if (!name.starts_with(kState) || dot < std::string(kState).size()) return {};
  const std::string what = name.substr(dot + 1);
  const auto found = places.find(name.substr(std::string(kState).size(), dot - std::string(kState).size()));
  if (found == places.end() || what == "step") return {};
  return {found->second, what};
}

std::map<std::string, size_t> places_by_name(const optim::Optimizer& optimizer,
                                             const std::vector<size_t>& updated) {
  std::map<std::string, size_t> places;
  for (size_t k = 0; k < updated.size(); ++k) places.emplace(optimizer.parameters()[k].name, updated[k]);
  return places;
}

}  // namespace

NamedArrays Trainer::state_dict(std::source_location where) try {
  if (options_.update_on_store) {
    optimizer();  // throws if this trainer was moved from
    return store_->state_dict();
  }
  NamedArrays state = optimizer().state_dict();
  if (!options_.shard_optimizer) return state;
  const NoGrad pause;
  const auto places = places_by_name(*optimizer_, updated_);
  std::map<std::string, std::vector<NDArray>> portions;  // by what they are; one for each parameter
  for (const auto& [name, array] : state) {
    const StateEntry entry = entry_of(name, places);
    if (entry.place == SIZE_MAX || !buckets_->in_bucket(entry.place)) continue;
    auto& list = portions[entry.what];
    list.resize(replicas_[0].size());
    list[entry.place] = array;
  }
  std::map<std::string, std::vector<NDArray>> wholes;
  for (const auto& [what, list] : portions) wholes[what] = buckets_->gather(what, list, where);
  for (auto& [name, array] : state) {
    const StateEntry entry = entry_of(name, places);
    if (entry.place != SIZE_MAX && buckets_->in_bucket(entry.place)) array = wholes[entry.what][entry.place];
  }
  return state;
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

void Trainer::load_state_dict(const NamedArrays& state, std::source_location where) try {
  if (options_.update_on_store) return load_on_store(state, where);
  if (!options_.shard_optimizer) return optimizer().load_state_dict(state, where);
  const NoGrad pause;
  const auto places = places_by_name(optimizer(), updated_);
  NamedArrays own = state;
  for (auto& [name, array] : own) {
    const StateEntry entry = entry_of(name, places);
    if (entry.place == SIZE_MAX || !buckets_->in_bucket(entry.place)) continue;
    const Shape& shape = replicas_[0][entry.place].shape();
    MX_CHECK(array.shape() == shape, InvalidArgument, "[Trainer] expected \"", name, "\" of the shape ",
             shape, ", got ", array.shape());
    array = buckets_->portion_of(entry.place, array.to_contiguous());
  }
  optimizer().load_state_dict(own, where);
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

void Trainer::recover(std::source_location where) {
  optimizer();  // throws if this trainer was moved from
  MX_CHECK(
      !options_.update_on_store && !several_processes(), InvalidState,
      "[Trainer] expected one process and a trainer that updates the parameters itself for recover(), got ",
      several_processes() ? "several processes" : "update_on_store", "; load a checkpoint",
      mx::detail::called_at(where));
  const NoGrad pause;
  std::exception_ptr lost;
  try {
    optimizer_->recover(where);
  } catch (const InvalidState&) {
    lost = std::current_exception();  // thrown when all that is not lost has been recovered
  }
  NamedArrays arrays;
  if (buffers_.first) arrays = buffers_.first();
  if (buffers_.others) {
    const std::vector<NamedArrays> others = buffers_.others();
    for (size_t r = 0; r < others.size(); ++r)
      for (const auto& [name, buffer] : others[r])
        arrays.emplace_back(mx::detail::concat(name, " of replica ", r + 1), buffer);
  }
  mx::detail::undo_skipped_updates(arrays, where);
  for (size_t i = 0; i < replicas_[0].size(); ++i) copy_to_replicas(i, where);
  copy_buffers_to_replicas(where);
  if (lost) std::rethrow_exception(lost);
  mx::detail::check_recovered("Trainer", arrays, "load a checkpoint", where);
}

}  // namespace mx::nn
