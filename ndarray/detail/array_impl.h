// ArrayImpl: the object that an NDArray handle points to. Internal to this library: operators and the layers
// above use it, programs do not.
//
// Shape, strides, offset and type never change after construction: another view is another ArrayImpl over the
// same Storage. So pushed operations may read them at any time.
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

/// Data that a layer above stores with an array: the node of the tape, or of a graph, that computes the
/// array. The outputs of a node share one extension.
struct ArrayExtension {
  std::atomic<uint32_t> refs{1};
  static void destroy(ArrayExtension* extension) noexcept { extension->end(); }

 protected:
  virtual void end() noexcept = 0;  // called when the last owner has been destroyed
  ~ArrayExtension() = default;
};

struct ArrayImpl;

/// Work that must be done before the array's value is used: an indexed read. It is deferred because the array
/// may turn out to be only the target of an assignment, which needs no read. The object stays with the array
/// after the work is done, so that other threads may access it at any time.
struct DeferredValue {
  const Context context;  // of the array. fill() may give the array another storage, so ask here.
  std::recursive_mutex mutex;

  explicit DeferredValue(Context c) : context(c) {}
  virtual ~DeferredValue() = default;
  /// Computes the value. Called with the mutex held; called once, or again after it has thrown.
  virtual void fill(ArrayImpl& array) = 0;
};

/// Reasons why an array is not a plain value. They are bits of one byte, so an operation tests them all at
/// once.
enum ArrayFlags : uint8_t {
  kRecorded = 1,  // the array has a node of its own; a view of a recorded array does not have this flag
  kSymbolic = 2,  // a node of a graph
  kDeferred = 4,  // see DeferredValue
};

/// True if this thread records its operations on recorded arrays.
inline thread_local constinit bool recording __attribute__((tls_model("initial-exec"))) = true;

struct ArrayImpl {
  std::atomic<uint32_t> refs{1};
  DType dtype;
  std::atomic<uint8_t> flags{0};
  mutable std::atomic<bool> extension_locked{false};
  int64_t offset;  // of the first element, in elements from the start of the storage
  Ref<Storage> storage;
  std::unique_ptr<DeferredValue> deferred;  // set before any other thread knows the array
  /// For a view: the array through whose node gradients of the view flow. If the array that the view was
  /// taken of was recorded, that is this array, which may be a view itself, with exceptions (gradient_base()
  /// and as_strided() in view.cc, record_view() of autograd). Otherwise it is its root(). Empty for arrays
  /// that are no views, and for views of recorded arrays made by a thread that does not record.
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

  /// The node that a layer above stores with the array, and the number of the array among the node's outputs.
  struct Extension {
    Ref<ArrayExtension> node;
    uint32_t output = 0;
  };
  /// Returns f(extension). f must be brief, because it runs under a spin lock.
  template <class F>
  auto look_at_extension(const F& f) const {
    const FlagLock lock(extension_locked);
    return f(extension_);
  }
  Extension extension() const {
    return look_at_extension([](const Extension& e) { return e; });
  }
  /// Replaces the extension, and sets the flag kRecorded to `own`.
  void set_extension(Extension next, bool own) {
    const FlagLock lock(extension_locked);
    // The old extension is destroyed with `next`, after the lock is released: it may own a whole graph.
    std::swap(extension_, next);
    if (own) {
      flags.fetch_or(kRecorded, std::memory_order_relaxed);
    } else {
      flags.fetch_and(static_cast<uint8_t>(~kRecorded), std::memory_order_relaxed);
    }
  }
  /// Sets the extension and the flag kRecorded of an array that no other thread can access yet. Needs no
  /// locked instructions.
  void init_extension(Extension next) {
    extension_ = std::move(next);
    flags.store(flags.load(std::memory_order_relaxed) | kRecorded, std::memory_order_relaxed);
  }
  /// Replaces the extension if its node is still `expected`; otherwise returns false. The flags do not
  /// change.
  bool exchange_extension(const ArrayExtension* expected, Extension next) {
    const FlagLock lock(extension_locked);
    if (extension_.node.get() != expected) return false;
    std::swap(extension_, next);
    return true;
  }

  /// Returns true if the array has a node of its own. A view without one uses the node of its base.
  bool has_own_node() const { return (flags.load(std::memory_order_relaxed) & kRecorded) != 0; }
  /// Returns the array whose node describes this one's memory: this array, unless it is a view without a node
  /// of its own.
  const ArrayImpl& root() const {
    const ArrayImpl* array = this;
    while (array->base && !array->has_own_node()) array = array->base.get();
    return *array;
  }
  ArrayImpl& root() { return const_cast<ArrayImpl&>(std::as_const(*this).root()); }

  /// Returns true if the array, or the array of which it is a view, is recorded, even if this thread does not
  /// record.
  bool marked() const { return root().has_own_node(); }
  bool recorded() const { return recording && marked(); }
  /// Returns true if an operation on the array needs neither recording, nor a graph, nor a deferred read.
  bool plain() const {
    const uint8_t set = flags.load(std::memory_order_relaxed);
    if (set == 0 && !base) [[likely]]
      return true;
    return (set & ~kRecorded) == 0 && !recorded();
  }
  bool contiguous() const;
  Context context() const { return storage->context(); }
  /// Returns the tensor that a kernel gets if the storage's memory is at `memory`.
  Tensor tensor(void* memory) const { return {element_at(memory, dtype, offset), dtype, shape, strides}; }
  /// Returns true if several elements share one place in memory because of broadcasting. For elements that
  /// overlap because of as_strided() or sliding_window() see may_overlap().
  bool repeats() const {
    bool repeated = false, nothing = false;
    for (int i = 0; i < shape.rank(); ++i) {
      repeated = repeated || (strides[i] == 0 && shape[i] > 1);
      nothing = nothing || shape[i] == 0;
    }
    return repeated && !nothing;
  }
  /// Returns false if each element has a place in memory of its own. That is so if the dimensions are nested:
  /// in some order of the dimensions, each stride is longer than all that the dimensions before it reach.
  /// Views other than those of as_strided() and sliding_window() are nested unless they are broadcast.
  bool may_overlap() const {
    int64_t reach = 0;
    for (int i = shape.rank() - 1; i >= 0; --i) {
      if (shape[i] == 1) continue;
      if (strides[i] <= reach || shape[i] == 0) return may_overlap_in_any_order();
      reach += (shape[i] - 1) * strides[i];
    }
    return false;
  }
  /// Returns true if the array contains each element of its storage once. An operation that writes such an
  /// array replaces the variable's whole value.
  bool covers_storage() const {
    return static_cast<size_t>(shape.numel()) * size_of(dtype) == storage->bytes() && contiguous();
  }

 private:
  bool may_overlap_in_any_order() const;

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

/// Returns true if an element of one array may share memory with an element of the other at another index. So
/// it returns false if the two arrays have the same elements in the same order.
bool may_overlap(const ArrayImpl& a, const ArrayImpl& b);

/// Returns true if both arrays consist of the same elements in the same order.
bool same_elements(const ArrayImpl& a, const ArrayImpl& b);

/// Returns true if one operation can use memory of both contexts. All contexts of the CPU share the host's
/// memory.
inline bool one_memory(Context a, Context b) { return a == b || (a.is_cpu() && b.is_cpu()); }

}  // namespace mx::detail
