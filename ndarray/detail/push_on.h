// push_on(): pushes an operation that touches arrays' memory. Internal.
//
// It is the only way to push such an operation. Small CPU operations run at once in the calling thread if
// nothing in flight uses their memory (launch.h). So every storage counts the pushed operations that use it
// and have not run. push_on() adds the operation to this count before the operation is queued, and the
// operation's closure subtracts it when the closure is destroyed. No other code gets a storage's variable,
// with one exception: NDArray::var(), for operations that a program pushes itself. After that call every
// operation on the storage goes through the engine.
//
// This would happen without the count. A read has been pushed and runs on a worker:
//
//   worker      [ reads x[0] .. x[31]              reads x[32] .. x[63] ]
//   caller              x += 1 runs at once, because x looks unused
//
// The worker then reads old elements first and new ones afterwards.
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
  std::vector<Var> more_[3];  // instead of inline_ when there are more
  size_t count_[3] = {};
};

/// The arrays of a pushed operation, owned by its closure. Each storage of the CPU counts the operation as
/// pending from construction to destruction.
///
/// The destructor also determines whether later operations may use the memory directly. A storage that the
/// operation has written is good if ran_well() was called, and tainted otherwise. After an operation of a
/// device all its host memory is tainted, even if it was only read, because the device may still be using it.
class PushedArrays {
 public:
  PushedArrays(std::span<const ArrayUse> uses, const Engine& engine, bool on_device);
  ~PushedArrays();
  PushedArrays(const PushedArrays&) = delete;
  PushedArrays& operator=(const PushedArrays&) = delete;

  size_t size() const { return size_; }
  ArrayImpl& operator[](size_t i) const { return *reinterpret_cast<ArrayImpl*>(words()[i] & ~kTouchMask); }
  Touch touch(size_t i) const { return static_cast<Touch>(words()[i] & kTouchMask); }
  /// In mode check: tells the engine what the operation touches.
  void declare(const RunContext& context) const;
  /// The operation's work has ended, here and without an error. A replay may still fail later, so a recorded
  /// operation never makes memory good.
  void ran_well() { ran_well_ = !recorded_; }

 private:
  // A pointer and its touch in one word: blocks of arrays are aligned to 64 bytes.
  static constexpr uintptr_t kTouchMask = 3;
  static constexpr size_t kInline = 8;
  const uintptr_t* words() const { return more_ != nullptr ? more_.get() : inline_; }

  uint32_t size_;
  bool recorded_, on_device_, ran_well_ = false;
  uintptr_t inline_[kInline];
  std::unique_ptr<uintptr_t[]> more_;
};

/// The arrays of an operation and the function that uses them, in one block of the block cache.
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

/// The closure that the engine gets. It is one pointer, so moving it into the operation is cheap.
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

/// Pushes body(const RunContext&, PushedArrays&). `from` is the body, or an object from which the Body is
/// constructed in place. `options` must have no lists of variables: they are made from `uses`. Waits until
/// direct uses of the arrays, which are short, have ended. Throws any exception of Engine::push.
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

/// Blocks until all operations that were pushed on the array's memory have run, also those that only read it.
/// Throws the error of one that should have set the array. `name` is for messages and traces.
void wait_for_readers(ArrayImpl& array, const char* name);

}  // namespace mx::detail
