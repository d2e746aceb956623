#include "optim/detail/names.h"

#include <set>
#include <string>

namespace mx::optim::detail {

Parameters with_names(const Parameters& before, const Parameters& added) {
  std::set<std::string> taken;
  for (const NamedParameter& p : before) taken.insert(p.name);
  Parameters named;
  for (const NamedParameter& p : added) {
    const std::string number = std::to_string(before.size() + named.size());
    std::string name = p.name.empty() ? number : p.name;
    while (!taken.insert(name).second) name += "@" + number;
    named.emplace_back(name, p.defined() ? static_cast<const Parameter&>(p) : Parameter(NDArray()));
  }
  return named;
}

}  // namespace mx::optim::detail
