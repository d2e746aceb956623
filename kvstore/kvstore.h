// KVStore: named arrays that several devices, and later several processes, share.
//
//   std::shared_ptr<KVStore> kv = KVStore::create("device");
//   kv->init("w0", weight);
//   kv->push("w0", {gradient_of_gpu0, gradient_of_gpu1}, {.priority = -layer});   // adds them up
//   kv->pull("w0", {on_gpu0, on_gpu1});                                          // what is stored, to each
//
// Every call returns at once: it pushes operations that are ordered by the arrays that they read and write,
// with the priority that is given. So the sum of one layer runs while the gradients of the next are being
// computed. Values are added up in the order of the list: results repeat bit for bit.
//
// Sums are made and kept in f32 for values of f16 and bf16, in i64 for integers and bool, else in the values'
// own type: they neither overflow nor are rounded on the way. pull() converts into the type of the array that
// it fills, so a sum that f16 cannot hold is pulled into an array of f32.
//
// Errors of use (an unknown key, another shape) are thrown by the call. Errors of values are thrown by
// waiting for what was pulled.
//
// Thread-safety: any thread may call anything; calls for one key take effect in the order of the calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ndarray/ndarray.h"

namespace mx {

struct KVOptions {
  int64_t priority = 0;  ///< higher first among ready operations; clamped to the engine's -32768..32767
};

class KVStore {
 public:
  /// "local": sums on the CPU. "device": sums on the devices that the values are on; each key has its home on
  /// one of them, spread so that all hold about as many bytes. Throws InvalidArgument for others, with the
  /// names there are.
  static std::shared_ptr<KVStore> create(const std::string& type = "local");
  /// The types that create() knows.
  static std::vector<std::string> types();

  /// One array, or one from each device.
  class Values {
   public:
    Values(const NDArray& value) : list_{value} {}
    Values(const std::vector<NDArray>& values) : list_(values) {}
    Values(std::initializer_list<NDArray> values) : list_(values) {}
    const std::vector<NDArray>& list() const { return list_; }

   private:
    std::vector<NDArray> list_;
  };

  virtual ~KVStore() = default;
  KVStore(const KVStore&) = delete;
  KVStore& operator=(const KVStore&) = delete;

  virtual const std::string& type() const = 0;
  /// Stores a copy of `value` under a new key. Throws InvalidArgument for a key that exists.
  virtual void init(const std::string& key, const NDArray& value) = 0;
  /// Removes a key; earlier calls for it still complete. init() may add it again. Throws InvalidArgument for
  /// a key that does not exist.
  virtual void erase(const std::string& key) = 0;
  /// Adds the values up. The stored array becomes the sum; or the updater changes it by the sum.
  virtual void push(const std::string& key, const Values& values, const KVOptions& options = {}) = 0;
  /// Copies the stored array into each of `outs`, converting types.
  virtual void pull(const std::string& key, const Values& outs, const KVOptions& options = {}) = 0;
  /// push() and pull() of the values themselves.
  void pushpull(const std::string& key, const Values& values, const Values& outs,
                const KVOptions& options = {});
  /// init() and pull().
  void broadcast(const std::string& key, const NDArray& value, const Values& outs,
                 const KVOptions& options = {});

  /// Called by push() instead of replacing: changes `stored` in place by the sum of what was pushed, by
  /// calling operators. Both have the type in which sums are kept. Runs inside of push() and must not call
  /// the store. An empty function: replace again.
  using Updater = std::function<void(const std::string& key, const NDArray& sum, NDArray& stored)>;
  virtual void set_updater(Updater updater) = 0;

  /// The number of this process among those that share the store, and how many there are.
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Blocks until all processes have called it and the operations of all their earlier calls have ended.
  virtual void barrier() = 0;

 protected:
  KVStore() = default;
};

}  // namespace mx
