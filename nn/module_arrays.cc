// What a module does with its arrays: listing, moving, saving and loading.
#include <map>
#include <optional>
#include <set>
#include <unordered_set>

#include "engine/base/check.h"
#include "ndarray/grad_mode.h"
#include "nn/detail/module_state.h"
#include "nn/module.h"

namespace mx::nn {

using detail::ModuleState;

namespace {

/// f(full name, entry) for all arrays; of those that stand at one place the first alone, if `once`.
template <class F>
void each_array(ModuleState& state, bool once, const F& f) {
  std::set<const void*> seen;
  detail::walk(state, "", [&](const std::string& prefix, ModuleState& part) {
    for (const ModuleState::Array& entry : part.arrays)
      if (!once || seen.insert(entry.place.identity()).second) f(prefix + entry.name, entry);
  });
}

NamedArrays list(ModuleState& state, bool buffers) {
  NamedArrays arrays;
  each_array(state, true, [&](const std::string& name, const ModuleState::Array& entry) {
    if (entry.buffer == buffers) arrays.emplace_back(name, entry.place.array());
  });
  return arrays;
}

std::vector<NDArray> without_names(const NamedArrays& named) {
  std::vector<NDArray> arrays;
  for (const auto& entry : named) arrays.push_back(entry.second);
  return arrays;
}

std::string described(const NDArray& array) {
  return mx::detail::concat(to_string(array.dtype()), ' ', array.shape());
}

/// Puts convert(array), where it gives one, into every place; into none when one throws. Gradients go along.
template <class F>
void replace_arrays(ModuleState& state, const F& convert) {
  const NoGrad guard;
  std::vector<std::pair<const Parameter*, NDArray>> changes;
  each_array(state, true, [&](const std::string&, const ModuleState::Array& entry) {
    const NDArray& before = entry.place.array();
    std::optional<NDArray> after = convert(before);
    if (!after) return;
    if (detail::trains(before)) {
      after->requires_grad_();
      if (const NDArray gradient = before.grad(); gradient.defined())
        after->set_grad(convert(gradient).value_or(gradient));
    }
    changes.emplace_back(&entry.place, *std::move(after));
  });
  for (const auto& [place, array] : changes) {
    // What stays behind does not train: an optimiser that still has it finds out.
    if (NDArray before = place->array(); detail::trains(before)) before.requires_grad_(false);
    place->replace(array);
  }
}

/// What a load_state_dict() does, found before anything is done.
struct LoadPlan {
  LoadReport report;
  std::vector<std::string> problems;                // that stand in the way in any case
  std::vector<std::string> absences;                // and those that only a strict load minds
  std::vector<std::pair<NDArray, NDArray>> copies;  // target, source
};

LoadPlan plan_load(ModuleState& state, const NamedArrays& arrays) {
  LoadPlan plan;
  std::map<std::string, const NDArray*> given;
  for (const auto& [name, array] : arrays) {
    if (!given.emplace(name, &array).second) plan.problems.push_back(name + " comes twice");
    if (!array.defined()) plan.problems.push_back(name + " is an empty handle");
  }
  std::set<const void*> loaded;  // places
  std::vector<std::pair<std::string, const ModuleState::Array*>> absent;
  each_array(state, false, [&](const std::string& name, const ModuleState::Array& entry) {
    if (!entry.persistent) return;
    const auto found = given.find(name);
    if (found == given.end()) {
      absent.emplace_back(name, &entry);
      return;
    }
    const NDArray &target = entry.place.array(), &source = *found->second;
    given.erase(found);
    loaded.insert(entry.place.identity());
    if (!source.defined()) return;
    if (source.shape() != target.shape() || category(source.dtype()) > category(target.dtype()))
      plan.problems.push_back(name + ": expected " + described(target) + ", got " + described(source));
    plan.copies.emplace_back(target, source);
  });
  // Of names that share an array one is enough: files often have no more.
  for (const auto& [name, entry] : absent)
    if (loaded.count(entry->place.identity()) == 0) {
      plan.report.missing.push_back(name);
      plan.absences.push_back(name + ' ' + described(entry->place.array()) + " is missing");
    }
  for (const auto& [name, array] : given) {
    plan.report.unexpected.push_back(name);
    if (array->defined()) plan.absences.push_back(name + ' ' + described(*array) + " is unexpected");
  }
  return plan;
}

}  // namespace

NamedArrays Module::named_parameters() const { return list(*state_, false); }
NamedArrays Module::named_buffers() const { return list(*state_, true); }
std::vector<NDArray> Module::parameters() const { return without_names(named_parameters()); }
std::vector<NDArray> Module::buffers() const { return without_names(named_buffers()); }

Parameter Module::parameter(const std::string& name) const {
  Parameter found;
  std::string names;
  each_array(*state_, false, [&](const std::string& full, const ModuleState::Array& entry) {
    if (full == name) found = entry.place;
    names += (names.empty() ? "" : ", ") + full;
  });
  MX_CHECK(found.defined(), InvalidArgument, "[parameter] expected one of ", names.empty() ? "none" : names,
           ", got \"", name, '"');
  return found;
}

int64_t Module::num_parameters() const {
  int64_t n = 0;
  for (const NDArray& array : parameters()) n += array.numel();
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
  LoadPlan plan = plan_load(*state_, arrays);
  std::vector<std::string>& problems = plan.problems;
  if (options.strict) problems.insert(problems.end(), plan.absences.begin(), plan.absences.end());
  if (!problems.empty()) {
    std::string text;
    for (const std::string& problem : problems) text += "\n  " + problem;
    throw InvalidArgument(mx::detail::concat("[load_state_dict] expected the arrays of ", type_name(),
                                             ", got ", problems.size(),
                                             problems.size() == 1 ? " problem:" : " problems:", text));
  }
  const NoGrad guard;
  std::unordered_set<const Storage*> targets;
  for (auto& [target, source] : plan.copies) {
    source.wait();
    targets.insert(target.impl().storage.get());
  }
  // Arrays of this very model, maybe under other names: as if all were read before the first is written.
  for (auto& [target, source] : plan.copies)
    if (targets.count(source.impl().storage.get()) != 0) source = source.clone();
  for (auto& [target, source] : plan.copies) target.copy_from(source);
  return plan.report;
}

void Module::save(const std::string& path, const FileMetadata& metadata) const {
  FileMetadata all = metadata;
  all.emplace("format", "pt");  // the names and layouts of PyTorch: some readers insist on being told
  save_safetensors(path, state_dict(), all);
}

LoadReport Module::load(const std::string& path, const LoadOptions& options) {
  return load_state_dict(load_safetensors(path, nullptr, LoadMode::read), options);
}

Module& Module::to(Context context) {
  replace_arrays(*state_, [&](const NDArray& array) {
    return array.context() == context ? std::optional<NDArray>() : array.to(context);
  });
  return *this;
}

Module& Module::to(DType dtype) {
  MX_CHECK(is_floating(dtype), InvalidArgument, "[to] expected a floating-point type for a module, got ",
           dtype);
  replace_arrays(*state_, [&](const NDArray& array) {
    return array.dtype() == dtype || !is_floating(array.dtype()) ? std::optional<NDArray>() : array.to(dtype);
  });
  return *this;
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
  for (const NDArray& array : parameters())
    if (array.requires_grad()) array.set_grad(NDArray());
}

}  // namespace mx::nn
