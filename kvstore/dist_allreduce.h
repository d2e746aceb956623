// DistAllreduce: the stores of several processes without servers, over a communicator: "dist_allreduce",
// "dist_device_sync", "mpi" and "nccl". Internal; users call KVStore::create().
//
// Every process keeps all stored arrays, on its CPU. A push sums over all processes; each process then
// changes its stored array by the same updater with the same sum, so the copies stay equal bit for bit.
//
//   push_collective()    calls are operations of the engine         collective_op.h
//   CallSequence         all ranks start them in the same order     call_sequence.h
//   compare_lines()      the first use of a key                     key_check.h
//
// Messages. Consecutive keys of one type are copied into one buffer of up to `fuse_bytes` and sent as one
// message. Larger keys are sent alone, cut to pieces of `cut_bytes`, without a copy if their memory allows
// it.
//
// Values on devices. If calls of the communicator may use memory of a device ("nccl"), values of GPUs go
// there and stay there: messages lie in its memory, and calls follow the engine's work on the device
// (device_gate.h). Otherwise values are copied to the host. Each rank decides that alone, by where its values
// are. Stored arrays are on the CPU in any case.
//
// Thread-safety: as KVStore. The lock is held while a call takes its tickets and pushes its operations.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.h"
#include "kvstore/call_sequence.h"
#include "kvstore/device_gate.h"
#include "kvstore/kvstore.h"
#include "kvstore/local_store.h"
#include "kvstore/store_table.h"

namespace mx::detail {

class DistAllreduce final : public KVStore {
 public:
  /// The values of one process are added on the CPU or on their devices. The communicator is used by this
  /// store only. `epoch` is the number of restarts of the group.
  DistAllreduce(std::string type, std::shared_ptr<comm::Communicator> group, SumPlace place,
                const KVStoreOptions& options = {}, int64_t epoch = 0);

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
  void broadcast(const std::vector<KVKey>& keys, const std::vector<NDArray>& values,
                 const std::vector<Values>& outs, const KVOptions& options) override;
  void allreduce(const std::vector<KVKey>& keys, const std::vector<Values>& values,
                 const std::vector<NDArray>& outs, const KVOptions& options) override;
  void broadcast_from_first(const std::vector<KVKey>& keys, const std::vector<NDArray>& values,
                            const KVOptions& options) override;

  Slice slice_of(int64_t elements) const override;
  void sum_slices(const KVKey& key, const NDArray& flat, const KVOptions& options) override;
  void gather_slices(const KVKey& key, const NDArray& flat, const KVOptions& options) override;
  NDArray buffer(int64_t elements, DType dtype) override;
  void check_equal(const std::vector<KVKey>& keys, const std::vector<NDArray>& values, const NDArray& token,
                   const KVOptions& options) override;

  void set_updater(Updater updater) override;
  void set_optimizer(const std::string& name, const AttrMap& options, std::source_location where) override;
  void set_optimizer_option(const std::string& option, double value, std::source_location where) override;
  void save(const std::string& path) override;
  void load(const std::string& path) override;
  NamedArrays state_dict() override;
  void load_state_dict(const NamedArrays& state) override;

  int rank() const override { return group_->rank(); }
  int size() const override { return group_->size(); }
  int64_t epoch() const override { return epoch_; }
  KVStoreOptions options() const override { return options_; }
  void barrier(int64_t timeout_ms) override;
  void push_barrier(const NDArray& token, const KVOptions& options) override;

 private:
  /// One value of this process for each key: contiguous, on the CPU or the device of the group, all shapes
  /// checked.
  struct Exchange {
    const char* op;
    std::vector<std::string> keys;
    const std::vector<Values>& lists;  // the caller's values of each key
    std::vector<NDArray> values;
    std::vector<NDArray> targets;  // empty, or for each key an array that may receive the sum, or none
    KVOptions options;
  };

  comm::CallOptions call_options(const std::string& what, const KVOptions& options) const;
  /// Compares the keys that are new, or whose description has changed, between all ranks.
  void compare_new_keys(const char* op, const std::vector<std::string>& keys, std::span<const NDArray> values,
                        const KVOptions& options);
  void compare_settings(const char* op, const std::string& line);
  /// Returns where a value goes for a call: the CPU, or the device of the group.
  Context place_of(const NDArray& value) const;
  NDArray local_sum(const Values& values, const KVOptions& options) const;
  /// Sums over all processes. Returns the sums, in the type of the values.
  std::vector<NDArray> sum_over_ranks(Exchange& exchange);
  NDArray sum_message(const Exchange& exchange, const std::string& what, const NDArray& value, NDArray out);
  void broadcast_message(const std::string& what, const NDArray& buffer, const KVOptions& options);
  /// Copies the arrays of rank 0 to all. With `fails_on_first`, those of rank 0 get an error of that, too.
  void broadcast_all(const char* op, const std::vector<std::string>& keys, const std::vector<NDArray>& arrays,
                     const KVOptions& options, bool fails_on_first = false);
  void init_all(const char* op, const std::vector<std::string>& keys, const std::vector<NDArray>& values,
                std::source_location where);
  void in_slices(const char* op, comm::Collective collective, const KVKey& key, const NDArray& flat,
                 const KVOptions& options);
  /// Broadcasts bytes of rank 0 to all; blocks. The other ranks wait for rank 0 for `patience` times the time
  /// limit.
  void share_bytes(const std::string& what, std::string& bytes, int64_t patience = 1);
  /// Runs `work` on rank 0 and waits for it. Its error is thrown on all ranks.
  void on_first(const std::string& what, const std::function<void()>& work);

  const std::string type_;
  const std::shared_ptr<comm::Communicator> group_;
  const SumPlace place_;
  const KVStoreOptions options_;
  const int64_t epoch_;
  const std::shared_ptr<CallSequence> sequence_;
  const std::shared_ptr<DeviceGate> gate_;
  std::mutex mutex_;
  StoreTable table_;
  std::map<std::string, std::string> known_;  // description of each key that has been compared
};

}  // namespace mx::detail
