#include "kvstore/store_table.h"

#include "engine/base/check.h"
#include "kvstore/call_check.h"
#include "kvstore/optimizer_option.h"
#include "ndarray/grad_mode.h"
#include "operators/indexing.h"
#include "optim/detail/dictionary.h"

namespace mx::detail {

void StoreTable::check_new(const std::string& key) const {
  const auto found = entries_.find(key);
  MX_CHECK(found == entries_.end(), InvalidArgument, "[init] expected a new key, got \"", key,
           "\", which already exists with shape ", found->second.stored.shape());
}

void StoreTable::add(const std::string& key, NDArray stored) {
  entries_.emplace(key, Entry{std::move(stored)});
}

StoreTable::Entry& StoreTable::at(const std::string& key, const char* op) {
  const auto found = entries_.find(key);
  MX_CHECK(found != entries_.end(), InvalidArgument, "[", op,
           "] expected a key that was passed to init(), got \"", key, "\" in a store of ", entries_.size(),
           " keys");
  return found->second;
}

std::unique_ptr<optim::Optimizer> StoreTable::make(const std::string& key, const NDArray& stored) const {
  // The parameter's name is empty here, because state() names the key already.
  MX_CHECK(is_floating(stored.dtype()), InvalidArgument, "[push] expected key \"", key,
           "\" in floating point, because the store has the optimiser '", optimizer_, "', got ",
           stored.dtype());
  return optim::make_optimizer(optimizer_, options_, Parameters{NamedParameter("value", stored)}, chosen_at_);
}

void StoreTable::apply(const std::string& key, Entry& entry, const NDArray& sum, std::source_location where) {
  if (updater_) {
    NDArray stored = entry.stored;
    updater_(key, sum, stored);
    const auto describe = [](const NDArray& array) {
      return array.defined() ? concat(array.dtype(), ' ', array.shape()) : std::string("none");
    };
    MX_CHECK(describe(stored) == describe(entry.stored), InvalidArgument,
             "[push] expected the updater to leave an array ", describe(entry.stored), " for key \"", key,
             "\", got ", describe(stored));
    // After `stored = sum`, the store would share the memory of the caller's value.
    entry.stored = stored.shares_memory(sum) ? stored.clone(where) : stored;
  } else if (!optimizer_.empty()) {
    if (entry.optimizer == nullptr) entry.optimizer = make(key, entry.stored);
    entry.optimizer->step(std::vector<NDArray>{sum}, where);
  } else {
    entry.stored.copy_from(sum, where);
  }
}

void StoreTable::pull(const std::string& key, const KVStore::Values& outs, std::source_location where) {
  const Entry& entry = at(key, "pull");
  check_outs("pull", key, outs.list(), entry.stored.shape());
  for (NDArray out : outs.list()) out.copy_from(entry.stored, where);
}

void StoreTable::pull_rows(const std::string& key, const NDArray& rows, const KVStore::Values& outs,
                           std::source_location where) {
  const NDArray& stored = at(key, "row_sparse_pull").stored;
  check_rows(key, rows, stored.shape());
  check_outs("row_sparse_pull", key, outs.list(), stored.shape());
  if (outs.list().empty()) return;
  const NDArray part = take({stored, where}, rows.to(stored.context(), where));
  for (const NDArray& out : outs.list()) copy_rows(out, rows, part, where);
}

void StoreTable::set_updater(KVStore::Updater updater) {
  updater_ = std::move(updater);
  optimizer_.clear();
  options_.clear();
  for (auto& [key, entry] : entries_) entry.optimizer = nullptr;
}

void StoreTable::set_optimizer(const std::string& name, const AttrMap& options, std::source_location where) {
  optim::make_optimizer(name, options, Parameters{},
                        where);  // throws for a name or an option that is unknown
  set_updater(nullptr);
  optimizer_ = name;
  options_ = options;
  chosen_at_ = where;
}

void StoreTable::set_optimizer_option(const std::string& option, double value, std::source_location where) {
  MX_CHECK(!optimizer_.empty(), InvalidState,
           "[set_optimizer_option] expected a store with an optimiser (set_optimizer()), got '", option,
           "' for a store without one");
  AttrMap changed = options_;
  changed[option] = value;
  optim::make_optimizer(optimizer_, changed, Parameters{}, where);
  if (option != "lr") check_same_state(optimizer_, options_, option, value, where);
  std::swap(options_, changed);
  if (option == "lr") {
    for (auto& [key, entry] : entries_)
      if (entry.optimizer != nullptr) entry.optimizer->set_learning_rate(value);
    return;
  }
  // Other options are fixed when an optimiser is made. New ones take over the state of the old ones.
  try {
    std::map<std::string, std::unique_ptr<optim::Optimizer>> made;
    for (auto& [key, entry] : entries_) {
      if (entry.optimizer == nullptr) continue;
      auto& next = made[key] = make(key, entry.stored);
      next->load_state_dict(entry.optimizer->state_dict());
    }
    for (auto& [key, next] : made) entries_.at(key).optimizer = std::move(next);
  } catch (...) {
    options_ = changed;
    throw;
  }
}

NamedArrays StoreTable::state(FileMetadata& metadata) {
  metadata = {{"format", kStoreFormat}, {"optimizer", optimizer_}};
  NamedArrays arrays;
  for (const auto& [key, entry] : entries_) arrays.emplace_back(stored_name(key), entry.stored);
  for (const auto& [key, entry] : entries_)
    if (entry.optimizer != nullptr)
      for (const auto& [name, array] : entry.optimizer->state_dict())
        arrays.emplace_back(state_prefix(key) + name, array);
  return arrays;
}

NamedArrays StoreTable::copy_state() {
  const NoGrad pause;
  FileMetadata metadata;
  NamedArrays copies;
  for (const auto& [name, array] : state(metadata)) copies.emplace_back(name, array.clone());
  return copies;
}

void StoreTable::load_copy(const NamedArrays& arrays) {
  load(arrays, {{"format", kStoreFormat}, {"optimizer", optimizer_}}, "the given state");
}

void StoreTable::load(const NamedArrays& arrays, const FileMetadata& metadata, const std::string& path) {
  const NoGrad pause;
  const auto text = [&](const char* name) {
    const auto found = metadata.find(name);
    return found == metadata.end() ? std::string() : found->second;
  };
  MX_CHECK(text("format") == kStoreFormat, InvalidArgument,
           "[load] expected a file that KVStore::save() wrote, ", kStoreFormat, ", got \"", text("format"),
           "\" in '", path, "'");
  MX_CHECK(text("optimizer") == optimizer_, InvalidArgument, "[load] expected the optimiser of the store, '",
           optimizer_, "', got '", text("optimizer"), "' in '", path, "'");
  // Optimisers are made for keys whose state the file has, and for no others, as when the file was written.
  NamedArrays expected;
  std::map<std::string, std::unique_ptr<optim::Optimizer>> made;
  for (const auto& [key, entry] : entries_) expected.emplace_back(stored_name(key), entry.stored);
  for (const auto& [key, entry] : entries_) {
    if (optimizer_.empty() || !is_floating(entry.stored.dtype())) continue;  // integers have no optimiser
    const std::string prefix = state_prefix(key);
    std::unique_ptr<optim::Optimizer> optimizer = make(key, entry.stored);
    const NamedArrays state = optimizer->state_dict();
    // Whole names are compared: the key "w:1" begins with the prefix of the key "w".
    bool has_state = false;
    for (const auto& [name, array] : state) has_state = has_state || arrays.find(prefix + name) != nullptr;
    if (!has_state) continue;
    for (const auto& [name, array] : state) expected.emplace_back(prefix + name, array);
    made[key] = std::move(optimizer);
  }
  const std::vector<NDArray> loaded = optim::detail::matched("load", expected, arrays, {});
  size_t at = 0;
  for (auto& [key, entry] : entries_) entry.stored.copy_from(loaded[at++]);
  for (auto& [key, entry] : entries_) {
    entry.optimizer = nullptr;
    const auto found = made.find(key);
    if (found == made.end()) continue;
    NamedArrays state;
    for (const auto& [name, array] : found->second->state_dict()) state.emplace_back(name, loaded[at++]);
    found->second->load_state_dict(state);
    entry.optimizer = std::move(found->second);
  }
}

}  // namespace mx::detail
