// The stores of one process: "local" and "device". Internal; users call KVStore::create().
#pragma once

#include <cstdint>
#include <map>
#include <mutex>
#include <source_location>
#include <string>
#include <vector>

#include "kvstore/kvstore.h"
#include "kvstore/store_table.h"

namespace mx::detail {

/// Where values are added: on the CPU or on the devices of the values.
enum class SumPlace { host, devices };

class LocalStore final : public KVStore {
 public:
  LocalStore(std::string type, SumPlace place, const KVStoreOptions& options)
      : type_(std::move(type)), place_(place), options_(options) {}

  using KVStore::broadcast;
  using KVStore::pushpull;

  const std::string& type() const override { return type_; }
  void init(const KVKey& key, const NDArray& value, std::source_location where) override;
  void erase(const KVKey& key, std::source_location where) override;
  void push(const KVKey& key, const Values& values, const KVOptions& options) override;
  void pull(const KVKey& key, const Values& outs, const KVOptions& options) override;
  void row_sparse_pull(const KVKey& key, const NDArray& rows, const Values& outs,
                       const KVOptions& options) override;
  void pushpull(const std::vector<KVKey>& keys, const std::vector<Values>& values,
                const std::vector<Values>& outs, const KVOptions& options) override;
  void set_updater(Updater updater) override;
  void set_optimizer(const std::string& name, const AttrMap& options, std::source_location where) override;
  void set_optimizer_option(const std::string& option, double value, std::source_location where) override;
  void save(const std::string& path) override;
  void load(const std::string& path) override;
  NamedArrays state_dict() override;
  void load_state_dict(const NamedArrays& state) override;
  int rank() const override { return 0; }
  int size() const override { return 1; }
  KVStoreOptions options() const override { return options_; }
  void barrier(int64_t timeout_ms) override;
  void push_barrier(const NDArray& token, const KVOptions& options) override;

 private:
  void place(StoreTable::Entry& entry, const std::vector<NDArray>& values);

  const std::string type_;
  const SumPlace place_;
  const KVStoreOptions options_;
  std::mutex
      mutex_;  // held while a call pushes its operations, so that operations are in the order of the calls
  StoreTable table_;
  std::map<std::string, size_t> bytes_at_;  // stored bytes of placed keys, by the name of the device
};

}  // namespace mx::detail
