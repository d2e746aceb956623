// The stores "dist_sync" and "dist_async": arrays that servers hold. The side of the workers. Internal; users
// call KVStore::create().
//
// A key up to KVStoreOptions::cut_bytes is on one server; a larger one is cut to pieces of this size. Each
// piece is on the server that has the fewest bytes so far. All workers make the same calls in the same order,
// so they all compute the same places.
//
// Every call pushes an operation of the engine that ends when the servers have answered. All operations of a
// key update a variable, so a pull follows the push before it. Operations of different keys are independent;
// their requests are sent in the order of their priorities.
//
// A push ends when its round is complete, so an error of the optimiser poisons the key: waiting for an array
// that was pulled from it throws the error. If a pushed value has failed, the push tells the servers so, and
// the other workers get the error in place of the sum. Either way the key can only be erased then.
//
// If the servers refuse an optimiser or an option, because the workers have given different ones, all later
// calls of the store end with that error.
//
// dist_async: set_optimizer() decides how servers apply pushes. Without an optimiser, each push replaces the
// value. allreduce() and broadcast_from_first() are synchronous there as well.
//
// Thread-safety: see KVStore.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <source_location>
#include <string>
#include <vector>

#include "kvstore/kvstore.h"
#include "kvstore/server/server_group.h"
#include "ndarray/save.h"

namespace mx::detail {

class DistServerStore final : public KVStore {
 public:
  /// Opens a store on all servers of the group. Waits for the other workers; throws Timeout, PeerLost or
  /// ProtocolError.
  DistServerStore(std::string type, const KVStoreOptions& options, std::shared_ptr<kv::ServerGroup> servers);
  ~DistServerStore() override;

  const std::string& type() const override { return type_; }
  void init(const KVKey& key, const NDArray& value, std::source_location where) override;
  void erase(const KVKey& key, std::source_location where) override;
  void push(const KVKey& key, const Values& values, const KVOptions& options) override;
  void pull(const KVKey& key, const Values& outs, const KVOptions& options) override;
  void pushpull(const std::vector<KVKey>& keys, const std::vector<Values>& values,
                const std::vector<Values>& outs, const KVOptions& options) override;
  void allreduce(const std::vector<KVKey>& keys, const std::vector<Values>& values,
                 const std::vector<NDArray>& outs, const KVOptions& options) override;
  void broadcast_from_first(const std::vector<KVKey>& keys, const std::vector<NDArray>& values,
                            const KVOptions& options) override;
  void check_equal(const std::vector<KVKey>& keys, const std::vector<NDArray>& values, const NDArray& token,
                   const KVOptions& options) override;
  void set_updater(Updater updater) override;
  void set_optimizer(const std::string& name, const AttrMap& options, std::source_location where) override;
  void set_optimizer_option(const std::string& option, double value, std::source_location where) override;
  void save(const std::string& path) override;
  void load(const std::string& path) override;
  NamedArrays state_dict() override;
  void load_state_dict(const NamedArrays& state) override;
  int rank() const override;
  int size() const override;
  KVStoreOptions options() const override;
  int64_t epoch() const override;
  void barrier(int64_t timeout_ms) override;
  void push_barrier(const NDArray& token, const KVOptions& options) override;

 private:
  struct Core;
  struct Key;
  using KeyPtr = std::shared_ptr<Key>;
  using Done = std::function<void(std::exception_ptr)>;
  /// What an operation of a key does: sends requests, and calls `done` when they are answered.
  using Work = std::function<void(const Done& done)>;
  struct Access {
    std::vector<NDArray> reads{}, fills{};  ///< `fills` are overwritten
    bool heals = false;                     ///< runs even if the key is poisoned
    bool sends = false;                     ///< other workers wait for what is read
    bool told_by_barrier = false;           ///< the next barrier throws its error, because no array has it
  };
  class OwedValue;
  class OwedBarrier;

  KeyPtr add_key(const std::string& name, const Shape& shape, DType type, kv::KeyBody body);
  void run_erase(const KeyPtr& key, bool heals, std::source_location where);
  void remove_places(const Key& key);
  Key& find(const std::string& name, const char* op);
  KeyPtr sum_key(const std::string& name, const Shape& shape, DType type, std::source_location where);
  void run(const KeyPtr& key, const char* name, Access access, int priority, std::source_location where,
           Work work);
  /// The error of a control that somebody waits for.
  using Result = std::shared_ptr<std::exception_ptr>;
  struct Control {
    const char* name;
    kv::Kind kind;
    kv::Bytes body{};
    uint64_t number = 0;
    bool all_servers = true;
    int64_t timeout_ms = 0;
    int priority = 0;
    kv::BarrierOf barrier_of = kv::BarrierOf::barrier;
    /// The line of the program. None: that of the last call that set the optimiser or an option, because such
    /// a control fails only if that was refused.
    std::optional<std::source_location> where{};
  };
  void push_control(const Control& control, const NDArray* token, const Result& result);
  void run_control(const Control& control);
  void exchange(const KeyPtr& key, kv::Kind kind, const char* name, const NDArray& value,
                const std::vector<NDArray>& outs, uint64_t divisor, const KVOptions& options);
  void check_gradients(const std::string& key, const std::vector<NDArray>& values) const;
  NDArray local_sum(const std::vector<NDArray>& values, const KVOptions& options, uint64_t& divisor) const;
  void finish_together(kv::BarrierOf call, const std::exception_ptr& error);
  void together(kv::BarrierOf call, const std::function<void()>& work);
  NamedArrays collect();
  void spread(const NamedArrays& arrays);
  NamedArrays state_of(const KeyPtr& key);
  void set_state_of(const KeyPtr& key, const NDArray& value, const NamedArrays& state,
                    const std::set<std::string>& scalars);

  const std::string type_;
  const std::shared_ptr<Core> core_;
  std::mutex mutex_;  // held while a call pushes its operations, so that these are in the order of the calls
  std::map<std::string, KeyPtr> keys_;
  std::map<std::string, KeyPtr> sums_;  // keys of allreduce()
  std::vector<uint64_t> bytes_at_;      // by server
  uint32_t next_number_ = 1;            // of a piece
  std::string optimizer_;               // its name; empty: none
  AttrMap optimizer_options_;
  std::source_location set_at_ = std::source_location::current();  // the last line that has set one of them
};

/// Makes a store of the job of this process. In a process with the role of a server, runs the server and ends
/// the process when it has ended.
std::shared_ptr<KVStore> make_dist_server_store(const std::string& type, const KVStoreOptions& options);

}  // namespace mx::detail
