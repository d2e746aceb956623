#include "examples/digits/checkpoint.h"

#include "engine/base/check.h"

namespace mx::examples {

void Checkpoint::add(const std::string& part, const NamedArrays& arrays) {
  for (const auto& [name, array] : arrays) arrays_.emplace_back(part + "." + name, array);
}

void Checkpoint::save(const std::string& path, io::FileOps& ops) const {
  save_safetensors(path, arrays_, texts_, ops);
}

Checkpoint Checkpoint::load(const std::string& path) {
  Checkpoint checkpoint;
  checkpoint.arrays_ = load_safetensors(path, &checkpoint.texts_, LoadMode::read);
  return checkpoint;
}

NamedArrays Checkpoint::part(const std::string& name) const {
  NamedArrays arrays;
  for (const auto& [full, array] : arrays_)
    if (full.starts_with(name + ".")) arrays.emplace_back(full.substr(name.size() + 1), array);
  return arrays;
}

void Checkpoint::expect(const std::string& name, const std::string& text) const {
  const auto found = texts_.find(name);
  MX_CHECK(found != texts_.end() && found->second == text, InvalidArgument,
           "[checkpoint] expected one that was written with ", text, ", got one with ",
           found == texts_.end() ? std::string("no ") + name : found->second);
}

}  // namespace mx::examples
