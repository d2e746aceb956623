// Functions of Module for its arrays: listing, moving, saving and loading.
#include <exception>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/grad_mode.h"
#include "ndarray/load_plan.h"
#include "ndarray/recover.h"
#include "nn/detail/module_state.h"
#include "nn/module.h"

namespace mx::nn {

using detail::ModuleState;

namespace {

/// Calls f(full name, entry) for all arrays. If `once`, a Parameter with several names is visited only under
/// the first one.
template <class F>
void each_array(ModuleState& state, bool once, const F& f) {
  std::set<const void*> seen;
  detail::walk(state, "", [&](const std::string& prefix, ModuleState& part) {
    for (const ModuleState::Array& entry : part.arrays)
      if (!once || seen.insert(entry.place.identity()).second) f(prefix + entry.name, entry);
  });
}

using Changes = std::vector<std::pair<const Parameter*, NDArray>>;

/// Waits for all arrays and their gradients, so that no error is left to be reported later, and throws the
/// first.
void wait_for(const Changes& changes) {
  std::exception_ptr first;
  const auto wait = [&](const NDArray& array) {
    try {
      if (array.defined()) array.wait();
    } catch (const Error&) {
      if (first == nullptr) first = std::current_exception();
    }
  };
  for (const auto& [place, array] : changes) wait(array), wait(array.grad());
  if (first != nullptr) std::rethrow_exception(first);
}

/// Replaces every array for which convert(array) returns one, and converts its gradient too. If one call
/// throws, or the conversion itself fails, nothing is replaced.
template <class F>
void replace_arrays(ModuleState& state, const F& convert) {
  const NoGrad guard;
  Changes changes;
  each_array(state, true, [&](const std::string&, const ModuleState::Array& entry) {
    const NDArray& before = entry.place.array();
    std::optional<NDArray> after = convert(before);
    if (!after) return;
    if (mx::detail::trains(before)) {
      after->requires_grad_();
      if (const NDArray gradient = before.grad(); gradient.defined())
        after->set_grad(convert(gradient).value_or(gradient));
    }
    changes.emplace_back(&entry.place, *std::move(after));
  });
  wait_for(changes);
  for (const auto& [place, array] : changes) {
    // The replaced array no longer requires a gradient. Otherwise an optimiser that holds the array itself
    // would silently go on training it. A backward pass of a forward pass from before the move would store
    // the gradient there, where nothing reads it.
    if (NDArray before = place->array(); mx::detail::trains(before)) {
      before.add_grad_hook([](const NDArray&) -> NDArray {
        throw InvalidState(
            "[backward] expected modules that stay as they are between the forward and the backward pass, "
            "got "
            "a parameter that to() has moved or converted since; call to() before the forward pass");
      });
      before.requires_grad_(false);
    }
    place->replace(array);
  }
}

}  // namespace

Parameters Module::parameters() const {
  Parameters parameters;
  each_array(*state_, true, [&](const std::string& name, const ModuleState::Array& entry) {
    if (!entry.buffer) parameters.emplace_back(name, entry.place);
  });
  return parameters;
}

NamedArrays Module::named_buffers() const {
  NamedArrays buffers;
  each_array(*state_, true, [&](const std::string& name, const ModuleState::Array& entry) {
    if (entry.buffer) buffers.emplace_back(name, entry.place.array());
  });
  return buffers;
}

std::vector<NDArray> Module::buffers() const {
  std::vector<NDArray> arrays;
  for (const auto& entry : named_buffers()) arrays.push_back(entry.second);
  return arrays;
}

Parameter Module::parameter(const std::string& name) const {
  Parameter found;
  std::string names;
  each_array(*state_, false, [&](const std::string& full, const ModuleState::Array& entry) {
    if (full == name) found = entry.place;
    names += (names.empty() ? "" : ", ") + full;
  });
  MX_CHECK(found.defined(), InvalidArgument, "[parameter] expected one of the names ",
           names.empty() ? "(none)" : names, ", got \"", name, '"');
  return found;
}

int64_t Module::num_parameters() const {
  int64_t n = 0;
  for (const NamedParameter& parameter : parameters()) n += parameter.numel();
  return n;
}

NamedArrays Module::state_dict() const {
  NamedArrays arrays;
  detail::walk(*state_, "", [&](const std::string& prefix, ModuleState& part) {
    for (const bool buffers : {false, true})
      for (const ModuleState::Array& entry : part.arrays)
        if (entry.buffer == buffers && entry.persistent)
          arrays.emplace_back(prefix + entry.name, entry.place.array().detach());
  });
  return arrays;
}

LoadReport Module::load_state_dict(const NamedArrays& arrays, const LoadOptions& options) {
  std::vector<mx::detail::LoadTarget> targets;
  each_array(*state_, false, [&](const std::string& name, const ModuleState::Array& entry) {
    if (entry.persistent) targets.push_back({name, entry.place.array(), entry.place.identity()});
  });
  mx::detail::LoadPlan plan = mx::detail::plan_load(targets, arrays, mx::detail::LoadTypes::converts);
  plan.raise("load_state_dict", type_name(), options.strict);
  const NoGrad guard;
  plan.read_sources(targets);
  for (size_t i = 0; i < targets.size(); ++i)
    if (plan.sources[i].defined()) targets[i].array.copy_from(plan.sources[i]);
  return {std::move(plan.missing), std::move(plan.unexpected)};
}

void Module::save(const std::string& path, const FileMetadata& metadata) const {
  FileMetadata all = metadata;
  all.emplace("format", "pt");  // PyTorch's names and layouts; some readers require this entry
  save_safetensors(path, state_dict(), all);
}

LoadReport Module::load(const std::string& path, const LoadOptions& options) {
  return load_state_dict(load_safetensors(path, nullptr, LoadMode::read), options);
}

void Module::recover(std::source_location where) {
  NamedArrays arrays;
  each_array(*state_, true, [&](const std::string& name, const ModuleState::Array& entry) {
    arrays.emplace_back(name, entry.place.array());
  });
  mx::detail::undo_skipped_updates(arrays, where);
  mx::detail::check_recovered(type_name(), arrays, "load a checkpoint", where);
}

Module& Module::to(Context context, std::source_location where) try {
  replace_arrays(*state_, [&](const NDArray& array) {
    return array.context() == context ? std::optional<NDArray>() : array.to(context, where);
  });
  return *this;
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

Module& Module::to(DType dtype, std::source_location where) try {
  MX_CHECK(is_floating(dtype), InvalidArgument, "[to] expected a floating-point type for a module, got ",
           dtype);
  replace_arrays(*state_, [&](const NDArray& array) {
    return array.dtype() == dtype || !is_floating(array.dtype()) ? std::optional<NDArray>()
                                                                 : array.to(dtype, where);
  });
  return *this;
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

Module& Module::requires_grad_(bool on) {
  each_array(*state_, true, [&](const std::string&, const ModuleState::Array& entry) {
    if (entry.buffer) return;
    NDArray array = entry.place.array();
    array.requires_grad_(on);
  });
  return *this;
}

void Module::zero_grad() {
  for (const NamedParameter& parameter : parameters())
    if (parameter.requires_grad()) parameter.set_grad(NDArray());
}

}  // namespace mx::nn
