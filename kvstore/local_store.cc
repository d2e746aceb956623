#include "kvstore/local_store.h"

#include <algorithm>

#include "engine/base/check.h"
#include "ndarray/grad_mode.h"
#include "ndarray/priority.h"
#include "operators/elementwise_binary.h"

namespace mx::detail {
namespace {

/// Clamps a priority to the range of the engine's priorities.
int engine_priority(int64_t priority) {
  return static_cast<int>(std::clamp(priority, int64_t{INT16_MIN}, int64_t{INT16_MAX}));
}

/// Returns the type in which values of a type are added and stored. It is wide enough that a sum of a short
/// type neither overflows nor is rounded after each value.
DType sum_type(DType type) {
  if (!is_floating(type)) return i64;
  return type == f64 ? f64 : f32;
}

}  // namespace

LocalStore::Entry& LocalStore::entry(const std::string& key, const char* op) {
  const auto found = entries_.find(key);
  MX_CHECK(found != entries_.end(), InvalidArgument, "[", op,
           "] expected a key that was passed to init(), got \"", key, "\" in a store of ", entries_.size(),
           " keys");
  return found->second;
}

void LocalStore::init(const std::string& key, const NDArray& value) {
  NoGrad pause;
  std::lock_guard lock(mutex_);
  MX_CHECK(!entries_.contains(key), InvalidArgument, "[init] expected a new key, got \"", key,
           "\", which already exists with shape ", entries_.at(key).stored.shape());
  NDArray stored =
      empty(value.shape(), sum_type(value.dtype()), place_ == SumPlace::host ? cpu() : value.context());
  stored.copy_from(value);
  entries_.emplace(key, Entry{std::move(stored)});
}

void LocalStore::erase(const std::string& key) {
  std::lock_guard lock(mutex_);
  const Entry& old = entry(key, "erase");
  if (old.placed) bytes_at_[concat(old.stored.context())] -= old.stored.bytes();
  entries_.erase(key);  // operations in flight own the array
}

// Called by push(). The first push of a key chooses its home: the device of the values that has the fewest
// stored bytes so far.
void LocalStore::place(Entry& entry, const std::vector<NDArray>& values) {
  if (place_ == SumPlace::host || entry.placed) return;
  const NDArray* best = nullptr;
  for (const NDArray& value : values)
    if (best == nullptr || bytes_at_[concat(value.context())] < bytes_at_[concat(best->context())])
      best = &value;
  bytes_at_[concat(best->context())] += entry.stored.bytes();
  entry.stored = entry.stored.to(best->context());
  entry.placed = true;
}

void LocalStore::push(const std::string& key, const Values& values, const KVOptions& options) {
  NoGrad pause;
  const PriorityScope priority(engine_priority(options.priority));
  std::lock_guard lock(mutex_);
  Entry& entry = this->entry(key, "push");
  const std::vector<NDArray>& list = values.list();
  MX_CHECK(!list.empty(), InvalidArgument, "[push] expected one value or more for key \"", key,
           "\", got none");
  for (size_t i = 0; i < list.size(); ++i)
    MX_CHECK(list[i].shape() == entry.stored.shape(), InvalidArgument, "[push] expected values of the shape ",
             entry.stored.shape(), " of key \"", key, "\", got value ", i, " of shape ", list[i].shape());
  place(entry, list);
  const Context home = entry.stored.context();
  DType type = sum_type(list[0].dtype());
  for (const NDArray& value : list) type = promote(type, sum_type(value.dtype()));
  // Values are copied in their own type and converted on the home device, so that fewer bytes are
  // transferred.
  NDArray sum = list[0].to(home).to(type);
  for (size_t i = 1; i < list.size(); ++i) {
    const NDArray value = list[i].to(home).to(type);
    if (i == 1) {
      sum = sum + value;  // not +=: `sum` may still be the caller's array
    } else {
      sum += value;
    }
  }
  if (updater_) {
    updater_(key, sum, entry.stored);
  } else {
    entry.stored.copy_from(sum);
  }
}

void LocalStore::pull(const std::string& key, const Values& outs, const KVOptions& options) {
  NoGrad pause;
  const PriorityScope priority(engine_priority(options.priority));
  std::lock_guard lock(mutex_);
  const Entry& entry = this->entry(key, "pull");
  for (size_t i = 0; i < outs.list().size(); ++i)
    MX_CHECK(outs.list()[i].shape() == entry.stored.shape(), InvalidArgument,
             "[pull] expected arrays of the shape ", entry.stored.shape(), " of key \"", key,
             "\", got array ", i, " of shape ", outs.list()[i].shape());
  for (NDArray out : outs.list()) out.copy_from(entry.stored);
}

void LocalStore::set_updater(Updater updater) {
  std::lock_guard lock(mutex_);
  updater_ = std::move(updater);
}

}  // namespace mx::detail
