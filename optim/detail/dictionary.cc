#include "optim/detail/dictionary.h"

#include <map>
#include <string>

#include "optim/detail/problems.h"

namespace mx::optim::detail {
namespace {

void list(Problems& problems, const char* before, const std::vector<std::string>& names, const char* after) {
  if (names.empty()) return;
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "'" : ", '") + name + "'";
  problems.add(before, text, after);
}

}  // namespace

std::vector<NDArray> matched(const char* op, const NamedArrays& expected, const NamedArrays& got,
                             std::source_location where) {
  Problems problems(op);
  std::map<std::string, const NDArray*> there;
  std::vector<std::string> missing, unknown, twice;
  for (const auto& [name, array] : got)
    if (!there.emplace(name, &array).second) twice.push_back(name);

  std::vector<NDArray> result;
  std::vector<std::string> wrong;
  for (const auto& [name, like] : expected) {
    const auto found = there.find(name);
    if (found == there.end()) {
      missing.push_back(name);
      continue;
    }
    const NDArray& array = *found->second;
    there.erase(found);
    if (!array.defined() || array.shape() != like.shape() || array.dtype() != like.dtype())
      wrong.push_back(mx::detail::concat(
          "expected '", name, "' as ", like.dtype(), ' ', like.shape(), ", got ",
          array.defined() ? mx::detail::concat(array.dtype(), ' ', array.shape()) : "an empty handle"));
    result.push_back(array);
  }
  for (const auto& entry : there) unknown.push_back(entry.first);
  list(problems, "expected ", missing, ", got nothing of that name");
  list(problems, "expected no other entries, got ", unknown, "");
  list(problems, "expected each entry once, got more of ", twice, "");
  for (const std::string& problem : wrong) problems.add(problem);
  problems.raise(where);
  return result;
}

}  // namespace mx::optim::detail
