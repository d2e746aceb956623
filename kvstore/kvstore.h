// KVStore: named arrays that several devices, and later several processes, share.
//
//   std::shared_ptr<KVStore> kv = KVStore::create("device");
//   kv->init("w0", weight);
//   kv->push("w0", {gradient_of_gpu0, gradient_of_gpu1}, {.priority = -layer});   // adds them up
//   kv->pull("w0", {on_gpu0, on_gpu1});                                          // what is stored, to each
//
// Every call returns at once: it is a row of operations of the engine, ordered by the arrays that it reads
// and writes, with the priority that is given. So the sum of one layer runs while the gradients of the next
// are being computed. Sums are added in the order of the list: results repeat bit for bit.
//
// Errors of use (an unknown key, another shape) are thrown by the call; those of the values come out of
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
  int64_t priority = 0;  ///< higher first among what could run; kept within the engine's -32768..32767
};

class KVStore {
 public:
  /// "local": sums on the CPU. "device": sums on the devices that the values are on, each key at home on one
  /// of them, so that all get about as many bytes. Throws InvalidArgument for others, with the names there
  /// are.
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
  /// A copy of `value` under a new key. Throws InvalidArgument for a key that is there.
  virtual void init(const std::string& key, const NDArray& value) = 0;
  /// Forgets a key, once what was asked of it before is done; init() may give it again. Throws
  /// InvalidArgument for a key that is not there.
  virtual void erase(const std::string& key) = 0;
  /// Adds the values up; what is stored becomes the sum, or what the updater makes of both.
  virtual void push(const std::string& key, const Values& values, const KVOptions& options = {}) = 0;
  /// Copies what is stored into each of `outs`, converting types.
  virtual void pull(const std::string& key, const Values& outs, const KVOptions& options = {}) = 0;
  /// push() and pull() of the values themselves.
  void pushpull(const std::string& key, const Values& values, const Values& outs,
                const KVOptions& options = {});
  /// init() and pull().
  void broadcast(const std::string& key, const NDArray& value, const Values& outs,
                 const KVOptions& options = {});

  /// Called by push() instead of replacing: changes `stored` in place, from what was pushed, by calling
  /// operators. Runs inside of push() and must not call the store. Empty: replace again.
  using Updater = std::function<void(const std::string& key, const NDArray& sum, NDArray& stored)>;
  virtual void set_updater(Updater updater) = 0;

  /// Of this process among those that share the store.
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Blocks until all processes have come here, and all that they had asked for is done.
  virtual void barrier() = 0;

 protected:
  KVStore() = default;
};

}  // namespace mx
