#include "optim/detail/dictionary.h"

#include "ndarray/load_plan.h"

namespace mx::optim::detail {

std::vector<NDArray> matched(const std::string& what, const NamedArrays& expected, const NamedArrays& got,
                             std::source_location where) {
  std::vector<mx::detail::LoadTarget> targets;
  for (const auto& [name, array] : expected) targets.push_back({name, array});
  mx::detail::LoadPlan plan = mx::detail::plan_load(targets, got, mx::detail::LoadTypes::same);
  plan.raise(what, "a state_dict of " + what, true, where.line() > 0 ? &where : nullptr);
  plan.read_sources(targets);
  return plan.sources;
}

}  // namespace mx::optim::detail
