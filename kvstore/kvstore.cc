#include "kvstore/kvstore.h"

#include <cstdlib>
#include <map>
#include <mutex>

#include "comm/world.h"
#include "engine/base/check.h"
#include "kvstore/call_check.h"
#include "kvstore/dist_allreduce.h"
#include "kvstore/dist_server.h"
#include "kvstore/local_store.h"
#include "kvstore/server/server.h"
#include "kvstore/sum.h"
#include "ndarray/io/tensor_record.h"
#include "operators/indexing.h"

namespace mx {
namespace {

/// The registered types, in the order in which messages list them.
struct TypeRegistry {
  std::mutex mutex;
  std::vector<std::pair<std::string, KVStore::Maker>> types;

  TypeRegistry() {
    types.emplace_back("local", [](const KVStoreOptions& options) {
      return std::make_shared<detail::LocalStore>("local", detail::SumPlace::host, options);
    });
    types.emplace_back("device", [](const KVStoreOptions& options) {
      return std::make_shared<detail::LocalStore>("device", detail::SumPlace::devices, options);
    });
    add_dist("dist_allreduce", "auto", detail::SumPlace::host);
    add_dist("dist_device_sync", "auto", detail::SumPlace::devices);
    add_dist("mpi", "mpi", detail::SumPlace::devices);
    add_dist("nccl", "nccl", detail::SumPlace::devices);
    for (const char* type : {"dist_sync", "dist_async"})
      types.emplace_back(type, [type](const KVStoreOptions& options) {
        return detail::make_dist_server_store(type, options);
      });
  }

 private:
  // Each store has a group of its own, because all calls of a group are in one order.
  void add_dist(const char* type, const char* transport, detail::SumPlace place) {
    types.emplace_back(type, [type, transport, place](const KVStoreOptions& options) {
      // The group has workers only.
      if (comm::place().role == comm::Role::server) std::exit(kv::run_server());
      return std::make_shared<detail::DistAllreduce>(type, comm::new_group(transport), place, options,
                                                     comm::place().epoch);
    });
  }
};

/// The defaults of calls that connect processes are for stores of one. A registered type of store that has
/// several must not get local results in silence.
void check_alone(const KVStore& store, const char* op) {
  MX_CHECK(store.size() == 1, InvalidState, "[", op, "] expected a type of store with its own ", op,
           "() for its ", store.size(), " processes, got \"", store.type(), "\", which has only the default");
}

TypeRegistry& type_registry() {
  static TypeRegistry& instance = *new TypeRegistry;  // never destroyed: static destructors may create stores
  return instance;
}

}  // namespace

std::vector<std::string> KVStore::types() {
  TypeRegistry& all = type_registry();
  const std::lock_guard lock(all.mutex);
  std::vector<std::string> names;
  for (const auto& entry : all.types) names.push_back(entry.first);
  return names;
}

void KVStore::register_type(const std::string& type, Maker maker) {
  MX_CHECK(!type.empty() && maker != nullptr, InvalidArgument,
           "[register_type] expected a name and a function, got \"", type, "\" and ",
           maker != nullptr ? "one" : "none");
  TypeRegistry& all = type_registry();
  const std::lock_guard lock(all.mutex);
  for (const auto& entry : all.types)
    MX_CHECK(entry.first != type, InvalidArgument, "[register_type] expected a new type, got \"", type, '"');
  all.types.emplace_back(type, std::move(maker));
}

KVKey::KVKey(std::string name) : name_(std::move(name)) {
  MX_CHECK(!name_.empty(), InvalidArgument, "[KVKey] expected the name of a key, got an empty one");
  MX_CHECK(io::is_utf8(name_), InvalidArgument, "[KVKey] expected the name of a key in UTF-8, got ",
           io::in_quotes(name_));
}

std::shared_ptr<KVStore> KVStore::create(const std::string& type, const KVStoreOptions& options) {
  Maker maker;
  std::string known;
  {
    TypeRegistry& all = type_registry();
    const std::lock_guard lock(all.mutex);
    for (const auto& [name, make] : all.types) {
      if (type == name) maker = make;
      known += (known.empty() ? "" : ", ") + name;
    }
  }
  MX_CHECK(maker != nullptr, InvalidArgument, "[KVStore] expected a type of store among ", known, ", got \"",
           type, '"');
  const auto expect = [&](bool good, const char* what, int64_t got) {
    MX_CHECK(good, InvalidArgument, "[KVStore] expected ", what, ", got ", got);
  };
  expect(options.timeout_ms >= 0, "timeout_ms of at least 0", options.timeout_ms);
  expect(options.fuse_bytes >= 0, "fuse_bytes of at least 0", options.fuse_bytes);
  expect(options.cut_bytes >= 1, "cut_bytes of at least 1", options.cut_bytes);
  expect(options.bytes_in_flight >= 1, "bytes_in_flight of at least 1", options.bytes_in_flight);
  expect(options.check_every >= 0, "check_every of at least 0", options.check_every);
  expect(options.order == KVOrder::program || options.order == KVOrder::priority,
         "KVOrder::program or KVOrder::priority", static_cast<int64_t>(options.order));
  return maker(options);  // without the lock: the maker may wait for other processes
}

void KVStore::row_sparse_pull(const KVKey& key, const NDArray& rows, const Values& outs,
                              const KVOptions& options) {
  const detail::CallScope scope(options);
  std::vector<NDArray> whole;
  for (const NDArray& out : outs.list()) {
    detail::check_rows(key.name(), rows, out.shape());
    detail::check_not_recorded("row_sparse_pull", key.name(), out);
    whole.push_back(empty(out.shape(), out.dtype(), out.context()));
  }
  pull(key, whole, options);
  for (size_t i = 0; i < whole.size(); ++i)
    detail::copy_rows(outs.list()[i], rows,
                      take({whole[i], options.where}, rows.to(whole[i].context(), options.where)),
                      options.where);
}

void KVStore::pushpull(const std::vector<KVKey>& keys, const std::vector<Values>& values,
                       const std::vector<Values>& outs, const KVOptions& options) {
  detail::check_lengths("pushpull", keys.size(), values.size(), "values");
  detail::check_lengths("pushpull", keys.size(), outs.size(), "arrays to fill");
  detail::check_aliases("pushpull", keys, values, outs);
  for (size_t i = 0; i < keys.size(); ++i) {
    push(keys[i], values[i], options);
    pull(keys[i], outs[i], options);
  }
}

void KVStore::pushpull(const KVKey& key, const Values& values, const Values& outs, const KVOptions& options) {
  pushpull(std::vector<KVKey>{key}, std::vector<Values>{values}, std::vector<Values>{outs}, options);
}

void KVStore::broadcast(const std::vector<KVKey>& keys, const std::vector<NDArray>& values,
                        const std::vector<Values>& outs, const KVOptions& options) {
  detail::check_broadcast(keys, values, outs);
  for (size_t i = 0; i < keys.size(); ++i) {
    init(keys[i], values[i], options.where);
    pull(keys[i], outs[i], options);
  }
}

void KVStore::broadcast(const KVKey& key, const NDArray& value, const Values& outs,
                        const KVOptions& options) {
  broadcast(std::vector<KVKey>{key}, std::vector<NDArray>{value}, std::vector<Values>{outs}, options);
}

void KVStore::allreduce(const std::vector<KVKey>& keys, const std::vector<Values>& values,
                        const std::vector<NDArray>& outs, const KVOptions& options) {
  const detail::CallScope scope(options);
  detail::check_allreduce(keys, values, outs, options);
  check_alone(*this, "allreduce");
  for (size_t i = 0; i < keys.size(); ++i) {
    const std::vector<NDArray>& list = values[i].list();
    NDArray out = outs[i];
    NDArray sum = detail::sum_values(list, out.context(), detail::sum_type(list, options.accumulate_f32),
                                     options.where);
    if (options.reduce == KVReduce::mean)
      sum = detail::mean_of(sum, static_cast<int64_t>(list.size()), keys[i].name(), options.where);
    if (&sum.impl() != &out.impl()) out.copy_from(sum, options.where);
  }
}

void KVStore::broadcast_from_first(const std::vector<KVKey>& keys, const std::vector<NDArray>& values,
                                   const KVOptions&) {
  detail::check_broadcast_from_first(keys, values);
  check_alone(*this, "broadcast_from_first");
}

void KVStore::sum_slices(const KVKey& key, const NDArray& flat, const KVOptions&) {
  detail::check_not_recorded("sum_slices", key.name(), flat);
  check_slices("sum_slices");
}

void KVStore::gather_slices(const KVKey& key, const NDArray& flat, const KVOptions&) {
  detail::check_not_recorded("gather_slices", key.name(), flat);
  check_slices("gather_slices");
}

Slice KVStore::slice_of(int64_t elements) const {
  check_slices("slice_of", elements);
  return {0, elements};
}

void KVStore::check_slices(const char* op, int64_t elements) const {
  detail::check_elements(op, elements);
  MX_CHECK(size() == 1, InvalidState, "[", op, "] expected a store without servers (shard_optimizer), got \"",
           type(), '"');
}

NDArray KVStore::buffer(int64_t elements, DType dtype) {
  detail::check_elements("buffer", elements);
  return empty({elements}, dtype);
}

void KVStore::check_equal(const std::vector<KVKey>& keys, const std::vector<NDArray>& values, const NDArray&,
                          const KVOptions&) {
  detail::check_lengths("check_equal", keys.size(), values.size(), "a value");
  check_alone(*this, "check_equal");
}

NamedArrays KVStore::state_dict() {
  throw InvalidState(mx::detail::concat(
      "[state_dict] expected a store that returns its state, got the type '", type(), "'"));
}

void KVStore::load_state_dict(const NamedArrays&) {
  throw InvalidState(mx::detail::concat(
      "[load_state_dict] expected a store that loads its state, got the type '", type(), "'"));
}

void KVStore::set_compression(const std::string& name, const AttrMap&) {
  MX_CHECK(name == "none", InvalidArgument, "[set_compression] expected a compression among none, got \"",
           name, '"');
}

}  // namespace mx
