// push_on(): pushes an operation that touches arrays' memory. Internal.
//
// It is the only way to push one. A small operation of the CPU runs at once in the calling thread if no
// operation in flight uses its memory (launch.h). So every storage must know which operations have been
// pushed on it and have not run. push_on() counts the operation as pending at each of its storages before it
// is queued. The operation's closure owns these counts and ends them when it is destroyed. No other code gets
// a storage's variable, with one exception: NDArray::var() returns it, for operations that the program pushes
// itself. From then on every operation on that storage is pushed.
//
// Without the count, the caller below would change elements that the worker has not read yet. A read has been
// pushed and runs on a worker:
//
//   worker      [ reads x[0] .. x[31]              reads x[32] .. x[63] ]
//   caller              x += 1 runs at once, because x looks unused
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <source_location>
#include <span>
#include <type_traits>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "ndarray/detail/array_impl.h"
#include "ndarray/detail/block_cache.h"

namespace mx::detail {

/// How an operation touches an array's memory; the words are those of PushOptions.
enum class Touch : uint8_t { read, write, update };

struct ArrayUse {
  ArrayImpl* array;
  Touch touch;
};

/// The variables of the arrays of one push, sorted into the three lists of PushOptions. Lives until the push
/// has returned.
class UseLists {
 public:
  UseLists(Engine& engine, std::span<const ArrayUse> uses);
  void set(PushOptions& options) const;

 private:
  static constexpr size_t kInline = 16;
  Var inline_[3][kInline];
  std::vector<Var> more_[3];  // used instead of inline_ if there are more than kInline arrays
  size_t count_[3] = {};      // entries of inline_
};

/// The arrays of a pushed operation, owned by its closure. Each storage of the CPU counts the operation as
/// pending from construction to destruction.
///
/// The destructor also sets whether the memory may be used directly afterwards. A storage that the operation
/// has written is tainted unless ran_well() was called. After an operation of a device every storage of the
/// host is tainted, even one that was only read, because the device may still be using it.
class PushedArrays {
 public:
  PushedArrays(std::span<const ArrayUse> uses, const Engine& engine, bool on_device);
  ~PushedArrays();
  PushedArrays(const PushedArrays&) = delete;
  PushedArrays& operator=(const PushedArrays&) = delete;

  size_t size() const { return size_; }
  ArrayImpl& operator[](size_t i) const { return *reinterpret_cast<ArrayImpl*>(words()[i] & ~kTouchMask); }
  Touch touch(size_t i) const { return static_cast<Touch>(words()[i] & kTouchMask); }
  /// Reports to the engine what the operation touches; for mode check.
  void declare(const RunContext& context) const;
  /// Called when the operation has ended without an error. Has no effect in a recorded operation, because a
  /// later replay of it may fail.
  void ran_well() { ran_well_ = !recorded_; }

 private:
  // Each word is a pointer and, in its low bits, the touch. The low bits are free because blocks of arrays
  // are aligned to 64 bytes.
  static constexpr uintptr_t kTouchMask = 3;
  static constexpr size_t kInline = 8;
  const uintptr_t* words() const { return more_ != nullptr ? more_.get() : inline_; }

  uint32_t size_;
  bool recorded_, on_device_, ran_well_ = false;
  uintptr_t inline_[kInline];
  std::unique_ptr<uintptr_t[]> more_;
};

/// A pushed operation: its arrays, and the function that uses them. It lies in one block of the block cache.
template <class Body>
struct PushedOperation {
  PushedArrays arrays;
  Body body;

  template <class From>
  PushedOperation(std::span<const ArrayUse> uses, const Engine& engine, bool on_device, From&& from)
      : arrays(uses, engine, on_device), body(std::forward<From>(from)) {}
  static void destroy(PushedOperation* operation) noexcept {
    operation->~PushedOperation();
    free_block(BlockKind::call, operation);
  }
};

/// The closure that is given to the engine: one pointer, which owns the PushedOperation.
template <class Body>
class PushedPointer {
 public:
  explicit PushedPointer(PushedOperation<Body>* operation) : operation_(operation) {}
  PushedPointer(PushedPointer&& other) noexcept : operation_(std::exchange(other.operation_, nullptr)) {}
  ~PushedPointer() {
    if (operation_ != nullptr) PushedOperation<Body>::destroy(operation_);
  }
  void operator()(const RunContext& context) {
    operation_->arrays.declare(context);
    operation_->body(context, operation_->arrays);
  }

 private:
  PushedOperation<Body>* operation_;
};

/// Pushes body(const RunContext&, PushedArrays&). `from` is the body, or an argument from which a Body is
/// constructed in place. The lists of `options` are set from `uses`. Waits until direct uses of the arrays,
/// which are short, have ended. Throws what Engine::push throws. Any thread may call it.
template <class Body, class From>
void push_on(Engine& engine, std::span<const ArrayUse> uses, From&& from, PushOptions options,
             std::source_location where) {
  using Operation = PushedOperation<Body>;
  static_assert(sizeof(Operation) <= kBlockBytes[static_cast<int>(BlockKind::call)]);
  const UseLists lists(engine, uses);
  lists.set(options);
  void* const block = new_block(BlockKind::call);
  Operation* operation;
  try {
    operation =
        ::new (block) Operation(uses, engine, !options.context.get().is_cpu(), std::forward<From>(from));
  } catch (...) {
    free_block(BlockKind::call, block);
    throw;
  }
  engine.push(PushedPointer<Body>(operation), options, where);
}
template <class Body>
void push_on(Engine& engine, std::span<const ArrayUse> uses, Body body, const PushOptions& options,
             std::source_location where) {
  push_on<Body, Body>(engine, uses, std::move(body), options, where);
}

/// Blocks until all operations that were pushed on the array's memory have run, including those that only
/// read it. Throws the array's error if an operation that should have set it has failed. `name` is for
/// messages and traces.
void wait_for_readers(ArrayImpl& array, const char* name);

}  // namespace mx::detail
