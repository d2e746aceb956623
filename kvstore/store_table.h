// StoreTable: the stored arrays of a store, by their keys, with the updater or the optimiser that changes
// them. Internal.
//
// Each key has an optimiser of its own, created at its first push, because keys come and go. So an option
// that limits all gradients together ("max_norm") limits each key's by itself.
//
// Thread-safety: one thread at a time. Stores hold a lock while they push operations, so that these are in
// the order of the calls.
#pragma once

#include <map>
#include <memory>
#include <source_location>
#include <string>

#include "kvstore/kvstore.h"
#include "ndarray/save.h"
#include "optim/optimizers.h"

namespace mx::detail {

/// The format of saved stores: a value of the metadata, and the names of arrays. The same for all types of
/// stores, so that one can load what another has saved.
inline constexpr const char* kStoreFormat = "mxrun.kvstore.1";
inline std::string stored_name(const std::string& key) { return "array:" + key; }
/// The names of the arrays of the optimiser's state begin with it.
inline std::string state_prefix(const std::string& key) { return "state:" + key + ":"; }

class StoreTable {
 public:
  struct Entry {
    NDArray stored;       // in the type of sums
    bool placed = false;  // true if the key has its home device
    std::unique_ptr<optim::Optimizer> optimizer{};
  };

  size_t size() const { return entries_.size(); }
  bool contains(const std::string& key) const { return entries_.contains(key); }
  std::map<std::string, Entry>& entries() { return entries_; }

  /// Throws InvalidArgument for a key that exists. init() calls it before it copies anything.
  void check_new(const std::string& key) const;
  void add(const std::string& key, NDArray stored);
  void erase(const std::string& key) { entries_.erase(key); }  // operations in flight own the array
  /// Throws InvalidArgument for an unknown key.
  Entry& at(const std::string& key, const char* op);

  /// Replaces the stored array, or calls the updater or the optimiser with the sum as the gradient.
  void apply(const std::string& key, Entry& entry, const NDArray& sum, std::source_location where);
  /// Copies the stored array into each of `outs`.
  void pull(const std::string& key, const KVStore::Values& outs, std::source_location where);
  /// Copies these rows of the stored array to the same rows of each of `outs`.
  void pull_rows(const std::string& key, const NDArray& rows, const KVStore::Values& outs,
                 std::source_location where);

  void set_updater(KVStore::Updater updater);
  void set_optimizer(const std::string& name, const AttrMap& options, std::source_location where);
  void set_optimizer_option(const std::string& option, double value, std::source_location where);

  /// The content of a file: arrays "array:<key>" and "state:<key>:<what>". `metadata` gets the optimiser's
  /// name.
  NamedArrays state(FileMetadata& metadata);
  /// Returns copies of the arrays of state().
  NamedArrays copy_state();
  /// Loads what copy_state() returned, as load().
  void load_copy(const NamedArrays& arrays);
  /// Loads what state() returned. Throws InvalidArgument, naming all differences, before anything changes.
  void load(const NamedArrays& arrays, const FileMetadata& metadata, const std::string& path);

 private:
  std::unique_ptr<optim::Optimizer> make(const std::string& key, const NDArray& stored) const;

  std::map<std::string, Entry> entries_;
  KVStore::Updater updater_;
  std::string optimizer_;             // its name; empty: none
  std::source_location chosen_at_{};  // the line of the program that chose it
  AttrMap options_;
};

}  // namespace mx::detail
