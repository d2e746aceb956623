// The stores of one process: "local" and "device". Internal; users call KVStore::create().
#pragma once

#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "kvstore/kvstore.h"

namespace mx::detail {

/// Where values are added: on the CPU or on the devices of the values.
enum class SumPlace { host, devices };

class LocalStore final : public KVStore {
 public:
  LocalStore(std::string type, SumPlace place) : type_(std::move(type)), place_(place) {}

  const std::string& type() const override { return type_; }
  void init(const std::string& key, const NDArray& value) override;
  void erase(const std::string& key) override;
  void push(const std::string& key, const Values& values, const KVOptions& options) override;
  void pull(const std::string& key, const Values& outs, const KVOptions& options) override;
  void set_updater(Updater updater) override;
  int rank() const override { return 0; }
  int size() const override { return 1; }
  void barrier() override { wait_all(); }

 private:
  struct Entry {
    NDArray stored;       // in the type of sums
    bool placed = false;  // true if the key has its home device
  };

  Entry& entry(const std::string& key, const char* op);
  void place(Entry& entry, const std::vector<NDArray>& values);

  const std::string type_;
  const SumPlace place_;
  std::mutex
      mutex_;  // held while a call pushes its operations, so that operations are in the order of the calls
  std::map<std::string, Entry> entries_;
  std::map<std::string, size_t> bytes_at_;  // stored bytes of placed keys, by the name of the device
  Updater updater_;
};

}  // namespace mx::detail
