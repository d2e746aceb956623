// KVStore: named arrays that are shared by several devices and by several processes.
//
//   std::shared_ptr<KVStore> kv = KVStore::create("device");
//   kv->init("w0", weight);
//   kv->push("w0", {gradient_of_gpu0, gradient_of_gpu1}, {.priority = -layer});   // adds them up
//   kv->pull("w0", {on_gpu0, on_gpu1});                                          // copies the sum to both
//
// Types of stores:
//   "local"             one process; sums on the CPU
//   "device"            one process; sums on the devices of the values
//   "dist_allreduce"    all workers of a job, which combine their values among themselves
//   "dist_device_sync"  the same; the values of one process are first added on their devices
//   "dist_sync"         all workers of a job; servers add up one value of each worker per round
//   "dist_async"        servers apply the value of each worker as it comes
//   "mpi", "nccl"       like dist_allreduce, over MPI or NCCL
//
// Every call returns at once: it pushes operations with the given priority. The engine orders them by the
// arrays that they read and write. So the sum of one layer's gradients runs while those of the next are being
// computed. Values are added in the order of the list, and then the sums of the processes in the order of the
// ranks, so results are reproducible bit for bit, whatever arrives first. With several values in each
// process, such as those of two devices, that is (a0 + a1) + (b0 + b1), while one process with the four
// values computes
// ((a0 + a1) + b0) + b1.
//
// Sums are computed and stored in f32 for values of f16 and bf16, in i64 for integers and bool, and otherwise
// in the type of the values. So a short type neither overflows nor is rounded after each addition. pull()
// and allreduce() convert to the type of the array that they fill; let them fill an f32 array with a sum that
// f16 cannot hold, and an i64 array with one that would wrap in u8.
//
// Keys are names or numbers; the number 3 and the name "3" are the same key.
//
// Stores of several processes: all workers make the same calls, in the same order. At the first use of a key,
// shapes and types are compared between all processes before data moves; a difference is a ProtocolError that
// names the ranks and the key.
//
// A call throws for a wrong use, such as an unknown key or another shape. Errors of values are thrown by
// waiting for the pulled arrays; they name the line of the program that made the call. In stores of several
// processes, a process whose value has failed tells the others: each waits for no sum, and gets an error that
// names the process, its host, the key and the original error. The same holds for a process that leaves
// before a round is complete.
//
// Thread-safety: any thread may call any function; calls for one key take effect in the order of the calls.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <source_location>
#include <string>
#include <type_traits>
#include <vector>

#include "ndarray/attrs.h"
#include "ndarray/ndarray.h"
#include "ndarray/save.h"
#include "operators/parameter.h"

namespace mx {

/// How the values of one call are combined. Applies to all values: of the list and of all processes.
enum class KVReduce : uint8_t { sum, mean };  // a mean needs values in floating point

/// In which order the calls between processes start, of those that wait.
enum class KVOrder : uint8_t {
  program,   ///< that of the program; costs nothing
  priority,  ///< of those that are ready in all processes, the one with the highest KVOptions::priority
};

struct KVOptions {
  /// Ready operations of higher priority run first; clamped to -32768..32767. KVOrder::priority says what it
  /// does between processes; there, that of process 0 counts.
  IntArg priority = 0;
  int64_t timeout_ms = 0;  ///< of communication between processes, 10 days at most; 0: that of the store
  KVReduce reduce = KVReduce::sum;
  bool accumulate_f32 = true;  ///< false: f16 and bf16 are added in their own type
  std::source_location where = std::source_location::current();  ///< the line that errors name
};

/// Options of a store; those that do not concern its type are ignored.
struct KVStoreOptions {
  int64_t timeout_ms = 0;  ///< of each call between processes, 10 days at most; 0: that of the job
  /// Small keys are combined into messages of up to this size; stores with servers ignore it.
  int64_t fuse_bytes = 4 << 20;
  int64_t cut_bytes = 4 << 20;  ///< larger keys are cut to pieces of this size
  int64_t bytes_in_flight =
      16 << 20;  ///< limit of the bytes that wait to be sent; stores with servers ignore it
  /// KVOrder::priority: the processes agree on the next call before each one, which costs about as much as a
  /// sum of a few bytes. One call, or `cut_bytes` of it, is in flight at a time. All processes must choose
  /// the same; if not, their calls fail with ProtocolError. Stores with servers ignore it: there, each
  /// message goes by priority.
  KVOrder order = KVOrder::program;
  bool any_order = false;   ///< true: sums in another order than that of the ranks, if faster
  int64_t check_every = 0;  ///< compares checksums of the parameters between processes every so many steps
  int64_t staleness = -1;   ///< dist_async: so many pushes (1 or more) a worker may be ahead; -1: any
};

/// A name or a number.
class KVKey {
 public:
  /// Throws InvalidArgument for a name that is empty or not UTF-8: files of stores have no others.
  KVKey(std::string name);
  KVKey(const char* name) : KVKey(std::string(name)) {}
  template <class T>
  requires(std::is_integral_v<T> && !std::is_same_v<T, bool> && !std::is_same_v<T, char>) KVKey(T number)
      : name_(std::to_string(number)) {}
  const std::string& name() const { return name_; }

 private:
  std::string name_;
};

class KVStore {
 public:
  /// Creates a store. Throws InvalidArgument for another type; the message lists the types. Stores of several
  /// processes are created by all workers, in the same order; this may wait for the others and throw Timeout.
  static std::shared_ptr<KVStore> create(const std::string& type = "local",
                                         const KVStoreOptions& options = {});
  /// Returns the types that create() accepts.
  static std::vector<std::string> types();
  using Maker = std::function<std::shared_ptr<KVStore>(const KVStoreOptions& options)>;
  /// Adds a type. Throws InvalidArgument if it exists.
  static void register_type(const std::string& type, Maker maker);

  /// One array, or one from each device.
  class Values {
   public:
    Values(const NDArray& value) : list_{value} {}
    Values(const Parameter& value) : list_{value.array()} {}
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
  /// Stores a copy of `value` under a new key; in stores of several processes that of rank 0, copied to all.
  /// Throws InvalidArgument for a key that exists.
  virtual void init(const KVKey& key, const NDArray& value,
                    std::source_location where = std::source_location::current()) = 0;
  /// Removes a key; earlier calls for it still complete. init() may add it again. Throws InvalidArgument for
  /// a key that does not exist.
  virtual void erase(const KVKey& key, std::source_location where = std::source_location::current()) = 0;
  /// Adds the values. Replaces the stored array by the sum; if there is an updater or an optimiser, that
  /// changes the stored array instead.
  virtual void push(const KVKey& key, const Values& values, const KVOptions& options = {}) = 0;
  /// Copies the stored array into each of `outs`, converting types. No call of a store is recorded: gradients
  /// do not go through it. Arrays to fill must not be results of recorded operations (InvalidState);
  /// parameters may be.
  virtual void pull(const KVKey& key, const Values& outs, const KVOptions& options = {}) = 0;
  /// Copies the rows `rows`, integers (n,), of the stored array to the same rows of each of `outs`, which
  /// have its shape; their other rows stay. For tables of which a batch needs few rows, as MXNet's function.
  /// A store with a copy of the array in this process copies these rows alone; the default, which the stores
  /// with servers have, pulls the whole array first. Throws InvalidArgument for an array of rank 0 and other
  /// rows; an index out of range is found when the operation runs.
  virtual void row_sparse_pull(const KVKey& key, const NDArray& rows, const Values& outs,
                               const KVOptions& options = {});
  /// Like push() with `values[i]` and pull() with `outs[i]` for each key, in the order of the list. A store
  /// may combine the keys to larger messages, so an array of `outs` must not share memory with a value of
  /// another key. Throws InvalidArgument if one does, and if the lists differ in length.
  virtual void pushpull(const std::vector<KVKey>& keys, const std::vector<Values>& values,
                        const std::vector<Values>& outs, const KVOptions& options = {});
  void pushpull(const KVKey& key, const Values& values, const Values& outs, const KVOptions& options = {});
  /// Calls init(), then pull(), for each key.
  virtual void broadcast(const std::vector<KVKey>& keys, const std::vector<NDArray>& values,
                         const std::vector<Values>& outs, const KVOptions& options = {});
  void broadcast(const KVKey& key, const NDArray& value, const Values& outs, const KVOptions& options = {});
  /// Sums over all processes (and each list) into `outs`; stores nothing, and needs no init(). The keys name
  /// the values in errors and pair them between the processes. outs[i] may be one of values[i], but must not
  /// share memory with a value of another key: throws InvalidArgument if it does. The building block of
  /// nn::Trainer. The default adds up the lists; it throws InvalidState in a store of several processes.
  virtual void allreduce(const std::vector<KVKey>& keys, const std::vector<Values>& values,
                         const std::vector<NDArray>& outs, const KVOptions& options = {});
  /// Copies the values of process 0 into those of all others, in place; stores nothing. The default does
  /// nothing; it throws InvalidState in a store of several processes.
  virtual void broadcast_from_first(const std::vector<KVKey>& keys, const std::vector<NDArray>& values,
                                    const KVOptions& options = {});

  // Building blocks of nn::Trainer with a sharded optimiser. `flat` is contiguous, of rank 1; the calls with
  // it change it in place. The defaults do nothing with one process, and throw InvalidState with several, as
  // in stores with servers.

  /// Returns the part of `elements` elements that belongs to this process: all parts together are the whole.
  /// Throws InvalidArgument for a negative number.
  virtual Slice slice_of(int64_t elements) const;
  /// Sums over all processes. Afterwards the slice of this process holds the sum, and the rest is undefined.
  virtual void sum_slices(const KVKey& key, const NDArray& flat, const KVOptions& options = {});
  /// Copies the slice of each process to all others.
  virtual void gather_slices(const KVKey& key, const NDArray& flat, const KVOptions& options = {});
  /// Returns an array of rank 1 in memory from which this store sums with the fewest copies. All processes
  /// call it with the same arguments, in the same order. May block. Throws InvalidArgument for a negative
  /// number, and for 2^63 bytes or more.
  virtual NDArray buffer(int64_t elements, DType dtype);
  /// Compares checksums of the values between all processes. Returns at once; an operation that updates
  /// `token` fails with ProtocolError, which names the processes and the key of the first difference. Throws
  /// InvalidState in "dist_async", whose processes have different values.
  virtual void check_equal(const std::vector<KVKey>& keys, const std::vector<NDArray>& values,
                           const NDArray& token, const KVOptions& options = {});

  /// A function that push() calls instead of replacing the stored array. It calls operators that change
  /// `stored` in place, given the sum of the pushed values. Both arrays have the type in which sums are
  /// stored. It runs inside of push(), which holds a lock, so it must not call the store. If it sets `stored`
  /// to an array of another shape or type, push() throws InvalidArgument. An empty function restores the
  /// replacement. Throws InvalidState in stores with servers, which take set_optimizer() only.
  using Updater = std::function<void(const std::string& key, const NDArray& sum, NDArray& stored)>;
  virtual void set_updater(Updater updater) = 0;
  /// Sets an updater that is an optimiser: push() applies the sum as a gradient to the stored array. `name`
  /// and `options` are those of optim::make_optimizer(). Throws InvalidArgument for unknown ones. Replaces
  /// the updater. With servers, they keep the state of the optimiser.
  virtual void set_optimizer(const std::string& name, const AttrMap& options,
                             std::source_location where = std::source_location::current()) = 0;
  /// Changes an option of the optimiser that is a number, such as "lr"; set_optimizer() alone takes options
  /// of type bool. Takes effect after all earlier pushes. Throws
  /// InvalidArgument for an option that is unknown or out of range, and for one with which the optimiser
  /// would have other state: "momentum" from 0 to 0.9, for example.
  virtual void set_optimizer_option(const std::string& option, double value,
                                    std::source_location where = std::source_location::current()) = 0;
  /// Sets how values are compressed before they are sent: "none", the default. Throws InvalidArgument for
  /// another name; the message lists them.
  virtual void set_compression(const std::string& name, const AttrMap& options = {});

  /// Writes all stored arrays and the state of the optimiser to a file; process 0 writes. Blocks.
  virtual void save(const std::string& path) = 0;
  /// Reads what save() wrote; process 0 reads. Throws InvalidArgument, before anything has changed, if keys,
  /// shapes or types differ. Errors of the file (FileError, FormatError) have their types on all processes.
  /// Blocks.
  virtual void load(const std::string& path) = 0;
  /// Returns copies of what save() writes: arrays "array:<key>" and "state:<key>:<name>", the latter of the
  /// optimiser. All processes call it; process 0 gets the arrays, and others may get an empty list. Blocks.
  /// The default throws InvalidState, for types of stores that programs have added.
  virtual NamedArrays state_dict();
  /// Loads what state_dict() returned. All processes call it with the same list. Throws what load() throws.
  virtual void load_state_dict(const NamedArrays& state);

  /// The number of this process among those that share the store, and the number of these processes.
  virtual int rank() const = 0;
  virtual int size() const = 0;
  /// Returns 0, 1, 2, ...: a number for each trainer that uses the store.
  int64_t next_trainer() { return trainers_.fetch_add(1); }
  /// Returns the options with which the store was created.
  virtual KVStoreOptions options() const { return {}; }
  /// The number of restarts of the group before this one. Parameters must be loaded again in a new epoch.
  virtual int64_t epoch() const { return 0; }
  /// Calls `changed(epoch)` at once. A store whose epoch changes while the process runs calls it again then;
  /// no store of this library does, because a restart of the group starts new processes.
  virtual void on_epoch(std::function<void(int64_t epoch)> changed) { changed(epoch()); }
  /// Blocks until all processes have called barrier() and the operations of all their earlier calls have
  /// ended. Throws Timeout, naming the processes that did not come, after `timeout_ms` (0: that of the
  /// store). If earlier calls with longer limits still wait then, it says so; of two processes, it names the
  /// other one. Without servers, it waits for all operations of this process, so it also throws what
  /// wait_all() would: the first error since the last wait_all(), even if wait() has thrown it before. With
  /// servers, it throws errors of this store only: the first one of an init() or a push() since the last
  /// barrier, unless the key was erased.
  virtual void barrier(int64_t timeout_ms = 0) = 0;
  /// Pushes the barrier as an operation that updates `token`, and returns at once: operations that use the
  /// token afterwards run when all processes have passed.
  virtual void push_barrier(const NDArray& token, const KVOptions& options = {}) = 0;

 protected:
  KVStore() = default;

 private:
  void check_slices(const char* op, int64_t elements = 0) const;

  std::atomic<int64_t> trainers_{0};
};

}  // namespace mx
