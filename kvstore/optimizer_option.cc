#include "kvstore/optimizer_option.h"

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/ndarray.h"
#include "ndarray/save.h"
#include "optim/optimizers.h"

namespace mx::detail {
namespace {

/// The names of the arrays that the optimiser keeps for a parameter, such as "momentum".
std::string state_names(const std::string& optimizer, const AttrMap& options) {
  const auto made = optim::make_optimizer(optimizer, options, Parameters{NamedParameter("", zeros({1}))});
  std::string names;
  for (const auto& [name, array] : made->state_dict()) names += (names.empty() ? "" : ", ") + name;
  return names.empty() ? "none" : names;
}

}  // namespace

void check_same_state(const std::string& optimizer, const AttrMap& options, const std::string& option,
                      double value, std::source_location where) {
  AttrMap changed = options;
  changed[option] = value;
  const std::string before = state_names(optimizer, options);
  const std::string after = state_names(optimizer, changed);
  MX_CHECK(before == after, InvalidArgument,
           "[set_optimizer_option] expected an option with which the optimiser '", optimizer,
           "' keeps the state that it has for each key (", before, "), got ", option, " = ", value,
           ", with which it keeps ", after, "; set_optimizer() starts again with any options",
           called_at(where));
}

}  // namespace mx::detail
