// Shard: the Updater of servers: runs the optimisers of mx::optim. Internal.
//
// Each key has an optimiser of its own, made at its first update. Its parameter is a copy of the key's value,
// because messages on their way to workers may still refer to the value itself. An optimiser sees one piece
// of a key at a time, so options that combine all elements ("max_norm") are refused.
//
// Thread-safety: one thread at a time. It waits for operations, so it must not be used inside one.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <source_location>
#include <string>
#include <vector>

#include "kvstore/server/machine.h"
#include "ndarray/ndarray.h"
#include "optim/optimizers.h"

namespace mx::kv {

/// The element type of arrays for one of messages, and the other way round. Throws InvalidArgument for bool.
DType to_dtype(comm::Type type);
comm::Type to_comm_type(DType type);

class Shard final : public Updater {
 public:
  explicit Shard(std::shared_ptr<BytePool> pool) : pool_(std::move(pool)) {}

  void set_optimizer(const OptionsBody& optimizer) override {
    set_optimizer(optimizer, std::source_location::current());
  }
  /// `where` is the line of the program that errors name.
  void set_optimizer(const OptionsBody& optimizer, std::source_location where);
  bool has_optimizer() const override { return !name_.empty(); }
  void set_option(const std::string& name, double value) override {
    set_option(name, value, std::source_location::current());
  }
  void set_option(const std::string& name, double value, std::source_location where);
  Bytes convert(const Bytes& elements, comm::Type from, comm::Type to) override;
  Bytes update(uint32_t key, const KeyBody& description, const Bytes& value, const Bytes& gradient) override;
  void forget_value(uint32_t key) override;
  void erase(uint32_t key) override { entries_.erase(key); }
  std::vector<StateArray> state(uint32_t key, const KeyBody& description, const Bytes& value) override;
  void set_state(uint32_t key, const KeyBody& description, const Bytes& value,
                 const std::vector<StateArray>& state) override;

 private:
  struct Entry {
    NDArray value;
    bool current = false;  // `value` is the value of the key
    std::unique_ptr<optim::Optimizer> optimizer;
  };

  Entry make(const KeyBody& description) const;
  Entry& entry(uint32_t key, const KeyBody& description, const Bytes& value);

  const std::shared_ptr<BytePool> pool_;
  std::string name_;  // of the optimiser; empty: none
  AttrMap options_;
  std::map<uint32_t, Entry> entries_;
};

}  // namespace mx::kv
