#include "kvstore/local_store.h"

#include "engine/base/check.h"
#include "kvstore/call_check.h"
#include "kvstore/sum.h"
#include "ndarray/grad_mode.h"

namespace mx::detail {

void LocalStore::init(const KVKey& key, const NDArray& value, std::source_location where) {
  const NoGrad pause;
  const std::lock_guard lock(mutex_);
  table_.check_new(key.name());
  NDArray stored =
      empty(value.shape(), sum_type(value.dtype()), place_ == SumPlace::host ? cpu() : value.context());
  stored.copy_from(value, where);
  table_.add(key.name(), std::move(stored));
}

void LocalStore::erase(const KVKey& key, std::source_location) {
  const std::lock_guard lock(mutex_);
  const StoreTable::Entry& old = table_.at(key.name(), "erase");
  if (old.placed) bytes_at_[concat(old.stored.context())] -= old.stored.bytes();
  table_.erase(key.name());
}

// Called by push(). The first push of a key chooses its home: the device of the values that has the fewest
// stored bytes so far. A key that was loaded with an optimiser stays where it is, because its optimiser holds
// the stored array.
void LocalStore::place(StoreTable::Entry& entry, const std::vector<NDArray>& values) {
  if (place_ == SumPlace::host || entry.placed) return;
  const NDArray* best = entry.optimizer != nullptr ? &entry.stored : nullptr;
  if (best == nullptr)
    for (const NDArray& value : values)
      if (best == nullptr || bytes_at_[concat(value.context())] < bytes_at_[concat(best->context())])
        best = &value;
  bytes_at_[concat(best->context())] += entry.stored.bytes();
  if (best != &entry.stored) entry.stored = entry.stored.to(best->context());
  entry.placed = true;
}

void LocalStore::push(const KVKey& key, const Values& values, const KVOptions& options) {
  const CallScope scope(options);
  const std::lock_guard lock(mutex_);
  StoreTable::Entry& entry = table_.at(key.name(), "push");
  check_values("push", key.name(), values.list(), entry.stored.shape(), options.reduce);
  place(entry, values.list());
  NDArray sum = sum_values(values.list(), entry.stored.context(),
                           sum_type(values.list(), options.accumulate_f32), options.where);
  if (options.reduce == KVReduce::mean)
    sum = mean_of(sum, static_cast<int64_t>(values.list().size()), key.name(), options.where);
  table_.apply(key.name(), entry, sum.to(sum_type(sum.dtype()), options.where), options.where);
}

void LocalStore::pull(const KVKey& key, const Values& outs, const KVOptions& options) {
  const CallScope scope(options);
  const std::lock_guard lock(mutex_);
  table_.pull(key.name(), outs, options.where);
}

void LocalStore::row_sparse_pull(const KVKey& key, const NDArray& rows, const Values& outs,
                                 const KVOptions& options) {
  const CallScope scope(options);
  const std::lock_guard lock(mutex_);
  table_.pull_rows(key.name(), rows, outs, options.where);
}

void LocalStore::pushpull(const std::vector<KVKey>& keys, const std::vector<Values>& values,
                          const std::vector<Values>& outs, const KVOptions& options) {
  {
    const std::lock_guard lock(mutex_);
    check_pushpull(keys, values, outs, options,
                   [&](const std::string& key) { return table_.at(key, "push").stored.shape(); });
  }
  KVStore::pushpull(keys, values, outs, options);
}

void LocalStore::set_updater(Updater updater) {
  const std::lock_guard lock(mutex_);
  table_.set_updater(std::move(updater));
}

void LocalStore::set_optimizer(const std::string& name, const AttrMap& options, std::source_location where) {
  const std::lock_guard lock(mutex_);
  table_.set_optimizer(name, options, where);
}

void LocalStore::set_optimizer_option(const std::string& option, double value, std::source_location where) {
  const std::lock_guard lock(mutex_);
  table_.set_optimizer_option(option, value, where);
}

void LocalStore::save(const std::string& path) {
  const std::lock_guard lock(mutex_);
  FileMetadata metadata;
  const NamedArrays arrays = table_.state(metadata);
  save_safetensors(path, arrays, metadata);
}

void LocalStore::load(const std::string& path) {
  FileMetadata metadata;
  const NamedArrays arrays = load_safetensors(path, &metadata, LoadMode::read);
  const std::lock_guard lock(mutex_);
  table_.load(arrays, metadata, path);
}

NamedArrays LocalStore::state_dict() {
  const std::lock_guard lock(mutex_);
  return table_.copy_state();
}

void LocalStore::load_state_dict(const NamedArrays& state) {
  const std::lock_guard lock(mutex_);
  table_.load_copy(state);
}

void LocalStore::barrier(int64_t timeout_ms) {
  check_timeout(timeout_ms);
  if (timeout_ms == 0) timeout_ms = options_.timeout_ms;
  if (timeout_ms <= 0) return wait_all();
  MX_CHECK(current_engine().wait_all(timeout_ms), Timeout, "[barrier] expected all operations to end within ",
           timeout_ms, " ms, got ", current_engine().stats().in_flight, " in flight");
}

void LocalStore::push_barrier(const NDArray& token, const KVOptions& options) {
  check_timeout(options.timeout_ms);
  current_engine().push(
      [] {}, {.updates = {token.var()}, .priority = engine_priority(options.priority), .name = "barrier"},
      options.where);
}

}  // namespace mx::detail
