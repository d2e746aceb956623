// The table of operators by name.
#include <map>
#include <mutex>

#include "engine/base/check.h"
#include "operators/families.h"
#include "operators/operator.h"

namespace mx {
namespace {

struct Registry {
  std::mutex mutex;
  std::vector<const Operator*> list;
  std::map<std::string, const Operator*> by_name;

  void add(const Operator& op) {
    MX_CHECK(op.kernel.name != nullptr && op.kernel.name[0] != '\0', InvalidArgument,
             "[register_operator] expected an operator with a name, got one without");
    MX_CHECK(op.infer != nullptr && (op.kernel.cpu != nullptr || op.compose != nullptr), InvalidArgument,
             "[register_operator] expected '", op.name(),
             "' to have an infer function and either a CPU kernel or a compose function");
    MX_CHECK(by_name.emplace(op.name(), &op).second, InvalidArgument,
             "[register_operator] expected a name that is not registered yet, got '", op.name(), "'");
    list.push_back(&op);
  }
};

// Never destroyed, because static destructors may look operators up.
Registry& registry() {
  static Registry* made = [] {
    auto* r = new Registry;
    for (const auto& family : detail::operator_families())
      for (const Operator* op : family()) r->add(*op);
    return r;
  }();
  return *made;
}

}  // namespace

const Operator* find_operator(const std::string& name) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  const auto found = r.by_name.find(name);
  return found == r.by_name.end() ? nullptr : found->second;
}

std::vector<const Operator*> all_operators() {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  return r.list;
}

void register_operator(const Operator& op) {
  Registry& r = registry();
  std::lock_guard lock(r.mutex);
  r.add(op);
}

}  // namespace mx
