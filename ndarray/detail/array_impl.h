// ArrayImpl: what an NDArray handle points to. Internal; operators and the layers above see it.
//
// Shape, strides, offset and type never change after construction: another view is another ArrayImpl over the
// same Storage. So operations that have been pushed may go on reading them.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "ndarray/detail/block_cache.h"
#include "ndarray/detail/flag_lock.h"
#include "ndarray/detail/ref.h"
#include "ndarray/dtype.h"
#include "ndarray/shape.h"
#include "ndarray/storage.h"
#include "ndarray/tensor.h"

namespace mx::detail {

/// What a layer above keeps with an array: the tape or a graph the node that makes it. Outputs of one node
/// share it.
struct ArrayExtension {
  std::atomic<uint32_t> refs{1};
  static void destroy(ArrayExtension* extension) noexcept { extension->end(); }

 protected:
  virtual void end() noexcept = 0;  // the last owner has gone
  ~ArrayExtension() = default;
};

struct ArrayImpl;

/// The work that an array still needs before its value may be used: an indexed read that may turn out to be
/// only the target of an assignment. It stays with the array when it is done, so that threads may look at it
/// at any time.
struct DeferredValue {
  const Context context;  // of the array. fill() may give the array another storage, so ask here.
  std::recursive_mutex mutex;

  explicit DeferredValue(Context c) : context(c) {}
  virtual ~DeferredValue() = default;
  /// Called with the mutex, once unless it throws.
  virtual void fill(ArrayImpl& array) = 0;
};

/// Why an array is not a plain value: one test covers them all on the way to an operation.
enum ArrayFlags : uint8_t {
  kRecorded = 1,  // the array has a node of its own; a view of a recorded array does not have this flag
  kSymbolic = 2,  // a node of a graph
  kDeferred = 4,  // see DeferredValue
};

/// Does this thread record what it does with arrays that are recorded?
inline thread_local constinit bool recording __attribute__((tls_model("initial-exec"))) = true;

struct ArrayImpl {
  std::atomic<uint32_t> refs{1};
  DType dtype;
  std::atomic<uint8_t> flags{0};
  mutable std::atomic<bool> extension_locked{false};
  int64_t offset;  // of the first element, in elements from the start of the storage
  Ref<Storage> storage;
  std::unique_ptr<DeferredValue> deferred;  // set before any other thread knows the array
  /// What this is a view of: the array that owns the history of the memory. That is an array that is no view,
  /// or a view that had a node of its own (a leaf) when this view was taken. Empty for views of recorded
  /// arrays made by a thread that does not record.
  Ref<ArrayImpl> base;
  Shape shape;
  Strides strides;

  static Ref<ArrayImpl> make(Ref<Storage> storage, DType dtype, const Shape& shape, const Strides& strides,
                             int64_t offset) {
    static_assert(sizeof(ArrayImpl) <= kBlockBytes[static_cast<int>(BlockKind::array)]);
    return Ref<ArrayImpl>::adopt(new (new_block(BlockKind::array))
                                     ArrayImpl(std::move(storage), dtype, shape, strides, offset));
  }
  static void destroy(ArrayImpl* array) noexcept {
    array->~ArrayImpl();
    free_block(BlockKind::array, array);
  }

  /// What a layer above keeps with the array, and which of that node's outputs the array is.
  struct Extension {
    Ref<ArrayExtension> node;
    uint32_t output = 0;
  };
  /// f(extension), which must be brief: it runs under a lock.
  template <class F>
  auto look_at_extension(const F& f) const {
    const FlagLock lock(extension_locked);
    return f(extension_);
  }
  Extension extension() const {
    return look_at_extension([](const Extension& e) { return e; });
  }
  /// Sets the flag kRecorded too, or takes it away.
  void set_extension(Extension next, bool own) {
    const FlagLock lock(extension_locked);
    std::swap(extension_, next);  // (the old one ends after the lock: it may be the last owner of a graph)
    if (own) {
      flags.fetch_or(kRecorded, std::memory_order_relaxed);
    } else {
      flags.fetch_and(static_cast<uint8_t>(~kRecorded), std::memory_order_relaxed);
    }
  }
  /// The same, before anybody else knows the array: without locked instructions.
  void init_extension(Extension next) {
    extension_ = std::move(next);
    flags.store(flags.load(std::memory_order_relaxed) | kRecorded, std::memory_order_relaxed);
  }
  /// Leaves the flags alone. Does nothing and returns false when `expected` is no longer there.
  bool exchange_extension(const ArrayExtension* expected, Extension next) {
    const FlagLock lock(extension_locked);
    if (extension_.node.get() != expected) return false;
    std::swap(extension_, next);
    return true;
  }

  /// Has it a node of its own?
  bool has_own_node() const { return (flags.load(std::memory_order_relaxed) & kRecorded) != 0; }
  /// The array that owns the history of this one's memory: this one, unless it is a view without a node of
  /// its own.
  const ArrayImpl& root() const {
    const ArrayImpl* array = this;
    while (array->base && !array->has_own_node()) array = array->base.get();
    return *array;
  }
  ArrayImpl& root() { return const_cast<ArrayImpl&>(std::as_const(*this).root()); }

  /// Is it, or what it is a view of, recorded, whether this thread records or not?
  bool marked() const { return root().has_own_node(); }
  bool recorded() const { return recording && marked(); }
  /// Nobody has to be told what happens to it.
  bool plain() const {
    const uint8_t set = flags.load(std::memory_order_relaxed);
    if (set == 0 && !base) [[likely]]
      return true;
    return (set & ~kRecorded) == 0 && !recorded();
  }
  bool contiguous() const;
  Context context() const { return storage->context(); }
  /// What a kernel sees of the array when its storage's memory is at `memory`.
  Tensor tensor(void* memory) const { return {element_at(memory, dtype, offset), dtype, shape, strides}; }
  /// Does broadcasting let several elements have one place in memory? (What as_strided() lays over each other
  /// is for its caller to know.)
  bool repeats() const {
    bool repeated = false, nothing = false;
    for (int i = 0; i < shape.rank(); ++i) {
      repeated = repeated || (strides[i] == 0 && shape[i] > 1);
      nothing = nothing || shape[i] == 0;
    }
    return repeated && !nothing;
  }
  /// All of the storage, each element once: an operation that sets it replaces the variable's whole value.
  bool covers_storage() const {
    return static_cast<size_t>(shape.numel()) * size_of(dtype) == storage->bytes() && contiguous();
  }

 private:
  Extension extension_;

  ArrayImpl(Ref<Storage> s, DType d, const Shape& sh, const Strides& st, int64_t o)
      : dtype(d), offset(o), storage(std::move(s)), shape(sh), strides(st) {}
  ~ArrayImpl() = default;
};

/// The bytes [first, last) that the elements of an array span, from the start of its storage.
struct ByteRange {
  int64_t first, last;
};
ByteRange byte_range(const ArrayImpl& array);

/// May the two share an element, other than each its own twin at the same place?
bool may_overlap(const ArrayImpl& a, const ArrayImpl& b);

/// Are the two the very same elements in the same order?
bool same_elements(const ArrayImpl& a, const ArrayImpl& b);

/// Can one operation use memory of both? All contexts of the CPU share the host's memory.
inline bool one_memory(Context a, Context b) { return a == b || (a.is_cpu() && b.is_cpu()); }

}  // namespace mx::detail
