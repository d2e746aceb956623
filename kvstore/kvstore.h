// KVStore: named arrays that are shared by several devices, and later by several processes.
//
//   std::shared_ptr<KVStore> kv = KVStore::create("device");
//   kv->init("w0", weight);
//   kv->push("w0", {gradient_of_gpu0, gradient_of_gpu1}, {.priority = -layer});   // adds them up
//   kv->pull("w0", {on_gpu0, on_gpu1});                                          // copies the sum to both
//
// Every call returns at once: it pushes operations with the given priority. The engine orders them by the
// arrays that they read and write. So the sum of one layer's gradients runs while those of the next are being
// computed. Values are added in the order of the list, so results are reproducible bit for bit.
//
// Sums are computed and stored in f32 for values of f16 and bf16, in i64 for integers and bool, and otherwise
// in the type of the values. So a short type neither overflows nor is rounded after each addition. pull()
// converts to the type of the array that it fills; pull a sum that f16 cannot hold into an f32 array.
//
// A call throws for a wrong use, such as an unknown key or another shape. Errors of values are thrown by
// waiting for the pulled arrays.
//
// Thread-safety: any thread may call any function; calls for one key take effect in the order of the calls.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ndarray/ndarray.h"

namespace mx {

struct KVOptions {
  IntArg priority = 0;  ///< ready operations of higher priority run first; clamped to -32768..32767
};

class KVStore {
 public:
  /// Creates a store. "local" computes sums on the CPU. "device" computes them on the devices of the values:
  /// each key has one of these devices as its home, chosen so that all devices store about the same number of
  /// bytes. Throws InvalidArgument for another type; the message lists the types.
  static std::shared_ptr<KVStore> create(const std::string& type = "local");
  /// Returns the types that create() accepts.
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
  /// Adds the values. Replaces the stored array by the sum; if there is an updater, that changes the stored
  /// array instead.
  virtual void push(const std::string& key, const Values& values, const KVOptions& options = {}) = 0;
  /// Copies the stored array into each of `outs`, converting types.
  virtual void pull(const std::string& key, const Values& outs, const KVOptions& options = {}) = 0;
  /// Calls push() with `values`, then pull() with `outs`.
  void pushpull(const std::string& key, const Values& values, const Values& outs,
                const KVOptions& options = {});
  /// Calls init(), then pull().
  void broadcast(const std::string& key, const NDArray& value, const Values& outs,
                 const KVOptions& options = {});

  /// A function that push() calls instead of replacing the stored array. It calls operators that change
  /// `stored` in place, given the sum of the pushed values. Both arrays have the type in which sums are
  /// stored. It runs inside of push(), which holds a lock, so it must not call the store. An empty function
  /// restores the replacement.
  using Updater = std::function<void(const std::string& key, const NDArray& sum, NDArray& stored)>;
  virtual void set_updater(Updater updater) = 0;

  /// The number of this process among those that share the store, and the number of these processes.
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Blocks until all processes have called barrier() and the operations of all their earlier calls have
  /// ended.
  virtual void barrier() = 0;

 protected:
  KVStore() = default;
};

}  // namespace mx
