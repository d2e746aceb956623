// RunContext: the context, the stream and the access checks of a running operation. Completion: the token
// that ends an asynchronous operation.
#pragma once

#include <exception>

#include "engine/device/device.h"
#include "engine/var.h"

namespace mx {

class Engine;
namespace detail {
struct Op;
class EngineImpl;
class SegmentGraph;
class SegmentRun;
}  // namespace detail

/// Given to an operation's function. Valid while that function runs, on its thread.
class RunContext {
 public:
  /// Returns the context that the push asked for.
  Context context() const { return context_; }

  /// Returns the stream to enqueue on, or null for an operation of the CPU. The engine has already ordered
  /// the stream after everything the operation depends on.
  Stream* stream() const { return stream_; }

  /// In mode `check`: throws AccessError, naming the operation and the variable, if `v` was not declared for
  /// reading (reads, updates) or writing (writes, updates). Does nothing in the other modes.
  void read(Var v) const {
    if (check_) [[unlikely]]
      check(v, false);
  }
  void write(Var v) const {
    if (check_) [[unlikely]]
      check(v, true);
  }

 private:
  friend class detail::EngineImpl;
  friend class detail::SegmentGraph;
  friend class detail::SegmentRun;
  void check(Var v, bool write) const;

  const detail::Op* op_ = nullptr;
  Stream* stream_ = nullptr;
  Context context_;
  bool check_ = false;
};

/// Ends an operation of push_async(). One-shot and move-only; callable from any thread. Exactly one of
/// done() and fail() must be called: a second call throws InvalidState, and dropping the token unused fails
/// the operation.
class Completion {
 public:
  Completion() = default;
  Completion(Completion&& other) noexcept : impl_(other.impl_), op_(other.op_) { other.op_ = nullptr; }
  Completion& operator=(Completion&& other) noexcept;
  Completion(const Completion&) = delete;
  Completion& operator=(const Completion&) = delete;
  ~Completion();

  /// Ends the operation successfully: its writes become visible.
  void done() { finish(nullptr); }
  void operator()() { done(); }
  /// Ends the operation with an error, which poisons what the operation writes. A null pointer counts as an
  /// unknown error.
  void fail(std::exception_ptr error);

  explicit operator bool() const { return op_ != nullptr; }

 private:
  friend class detail::EngineImpl;
  Completion(detail::EngineImpl* impl, detail::Op* op) : impl_(impl), op_(op) {}
  void finish(std::exception_ptr error);

  detail::EngineImpl* impl_ = nullptr;
  detail::Op* op_ = nullptr;
};

}  // namespace mx
