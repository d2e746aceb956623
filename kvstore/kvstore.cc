#include "kvstore/kvstore.h"

#include "engine/base/check.h"
#include "kvstore/local_store.h"

namespace mx {
namespace {

using Maker = std::shared_ptr<KVStore> (*)();

struct Type {
  const char* name;
  Maker make;
};

constexpr Type kTypes[] = {
    {"local",
     []() -> std::shared_ptr<KVStore> {
       return std::make_shared<detail::LocalStore>("local", detail::SumPlace::host);
     }},
    {"device",
     []() -> std::shared_ptr<KVStore> {
       return std::make_shared<detail::LocalStore>("device", detail::SumPlace::devices);
     }},
};

}  // namespace

std::vector<std::string> KVStore::types() {
  std::vector<std::string> names;
  for (const Type& type : kTypes) names.emplace_back(type.name);
  return names;
}

std::shared_ptr<KVStore> KVStore::create(const std::string& type) {
  std::string known;
  for (const Type& candidate : kTypes) {
    if (type == candidate.name) return candidate.make();
    known += (known.empty() ? "" : ", ") + std::string(candidate.name);
  }
  throw InvalidArgument(
      detail::concat("[KVStore] expected a type of store among ", known, ", got \"", type, '"'));
}

void KVStore::pushpull(const std::string& key, const Values& values, const Values& outs,
                       const KVOptions& options) {
  push(key, values, options);
  pull(key, outs, options);
}

void KVStore::broadcast(const std::string& key, const NDArray& value, const Values& outs,
                        const KVOptions& options) {
  init(key, value);
  pull(key, outs, options);
}

}  // namespace mx
