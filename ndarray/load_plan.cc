#include "ndarray/load_plan.h"

#include <map>
#include <set>
#include <unordered_set>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/grad_mode.h"

namespace mx::detail {
namespace {

std::string type_and_shape(const NDArray& array) {
  return array.defined() ? concat(array.dtype(), ' ', array.shape()) : "an empty handle";
}

bool fits(const NDArray& source, const NDArray& target, LoadTypes types) {
  if (source.shape() != target.shape()) return false;
  return types == LoadTypes::same ? source.dtype() == target.dtype()
                                  : category(source.dtype()) <= category(target.dtype());
}

}  // namespace

LoadPlan plan_load(const std::vector<LoadTarget>& targets, const NamedArrays& given, LoadTypes types) {
  LoadPlan plan;
  std::map<std::string, const NDArray*> entries;
  for (const auto& [name, array] : given) {
    if (!entries.emplace(name, &array).second) plan.problems.push_back(name + " is given twice");
    if (!array.defined()) plan.problems.push_back(name + " is an empty handle");
  }
  std::set<const void*> loaded;  // LoadTarget::place of the targets that have an entry
  std::vector<const LoadTarget*> absent;
  for (const LoadTarget& target : targets) {
    plan.sources.emplace_back();
    const auto found = entries.find(target.name);
    if (found == entries.end()) {
      absent.push_back(&target);
      continue;
    }
    const NDArray& source = *found->second;
    entries.erase(found);
    if (target.place != nullptr) loaded.insert(target.place);
    if (!source.defined()) continue;
    if (!fits(source, target.array, types))
      plan.problems.push_back(target.name + ": expected " + type_and_shape(target.array) + ", got " +
                              type_and_shape(source));
    plan.sources.back() = source;
  }
  for (const LoadTarget* target : absent) {
    if (loaded.contains(target->place)) continue;
    plan.missing.push_back(target->name);
    plan.absences.push_back(target->name + ' ' + type_and_shape(target->array) + " is missing");
  }
  for (const auto& [name, array] : entries) {
    plan.unexpected.push_back(name);
    if (array->defined()) plan.absences.push_back(name + ' ' + type_and_shape(*array) + " is unexpected");
  }
  return plan;
}

void LoadPlan::raise(const std::string& op, const std::string& what, bool strict,
                     const std::source_location* where) const {
  std::vector<std::string> all = problems;
  if (strict) all.insert(all.end(), absences.begin(), absences.end());
  if (all.empty()) return;
  std::string text;
  for (const std::string& problem : all) text += "\n  " + problem;
  const std::string place = where == nullptr ? "" : place_of(*where);
  if (!place.empty()) text += "\n(called at " + place + ')';
  throw InvalidArgument(concat("[", op, "] expected the arrays of ", what, ", got ", all.size(),
                               all.size() == 1 ? " problem:" : " problems:", text));
}

void LoadPlan::read_sources(const std::vector<LoadTarget>& targets) {
  const NoGrad pause;
  std::unordered_set<const Storage*> written;
  for (size_t i = 0; i < targets.size(); ++i) {
    if (!sources[i].defined()) continue;
    sources[i].wait();
    written.insert(targets[i].array.impl().storage.get());
  }
  for (NDArray& source : sources)
    if (source.defined() && written.contains(source.impl().storage.get())) source = source.clone();
}

}  // namespace mx::detail
