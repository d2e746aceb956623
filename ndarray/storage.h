// Storage: the memory that an array and its views share, and the engine's variable that stands for it.
//
// Memory is allocated by the first operation that uses it, on the stream of that operation. The variable is
// made when an operation is first pushed: an array whose operations all run at once in the calling thread
// never meets the engine.
//
// Running at once ("direct"). For memory of the CPU, `state_` counts the operations that are pushed and have
// not run (pending) and the threads that use the memory directly. Direct use is allowed only while nothing
// pending conflicts. A push waits until direct uses, which are short (launch.cc), have ended. So a direct use
// has the place in the order that it would have had if it had been pushed.
//
// A storage is *tainted* when its last writer failed or was skipped, and while a device may still be using
// it. Operations on it then go through the engine, which knows about errors and streams, until an operation
// of the CPU with exclusive access has run well.
//
// Every push is counted, because detail::push_on() is the only code that can get at the variable. The one
// exception is shared_var(), after which nothing is direct any more.
//
// Thread-safety: all members may be called from any thread.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "engine/detail/at_replay.h"
#include "engine/engine.h"
#include "ndarray/detail/ref.h"

namespace mx {

/// The engine that arrays use: that of the innermost EngineScope of this thread, else Engine::get().
Engine& current_engine();

/// Sets the engine of this thread's arrays while it lives. Arrays must not outlive an engine other than
/// Engine::get() that they have been used with.
class EngineScope {
 public:
  explicit EngineScope(Engine& engine);
  ~EngineScope();
  EngineScope(const EngineScope&) = delete;
  EngineScope& operator=(const EngineScope&) = delete;

  /// What the layers above keep for this thread's innermost scope, destroyed when the scope ends, and so
  /// before its engine; null outside of any. Internal.
  static std::shared_ptr<void>* kept();

 private:
  friend Engine& current_engine();
  Engine& engine_;
  EngineScope* before_;
  std::shared_ptr<void> kept_;
};

namespace detail {
class PushedArrays;
class UseLists;
}  // namespace detail

class Storage {
 public:
  /// Throws InvalidArgument for a device that does not exist.
  static detail::Ref<Storage> make(size_t bytes, Context context);
  /// Over memory of the CPU that somebody else owns; `release` is called once, from any thread, when the last
  /// use has ended.
  static detail::Ref<Storage> wrap(void* data, size_t bytes, std::function<void()> release);

  size_t bytes() const { return bytes_; }
  Context context() const { return context_; }
  bool on_cpu() const { return context_.is_cpu(); }

  /// The variable, for operations pushed by hand. Nobody counts those, so from now on every operation on
  /// this memory goes through the engine. Waits until direct uses have ended. Throws InvalidState when
  /// another engine has made the variable.
  Var shared_var(Engine& engine);

  /// Blocks until the operations that were pushed to set the content have run; throws what went wrong with
  /// them.
  void wait();
  /// The same with a limit; false when it passed first.
  bool wait(int64_t timeout_ms);
  /// Inside an operation in mode check that has not declared this memory: the name of that operation.
  std::optional<std::string> undeclared_in_operation(bool write) const;

  /// The memory; null if no operation has used it.
  void* data() const { return data_.load(std::memory_order_acquire); }
  /// The memory, allocated on `stream` (null: for the host, at once) if there is none. Throws OutOfMemory.
  void* ensure(Stream* stream) {
    void* data = data_.load(std::memory_order_acquire);
    return data != nullptr ? data : allocate(stream);
  }

  /// How often an operation has changed the content since the storage was made; for finding changes of values
  /// that were saved. Each replay of the segment that makes the content counts as a change.
  uint32_t version() const {
    const detail::ReplayCount* const segment = maker();
    const uint32_t own = version_.load(std::memory_order_relaxed);
    return segment == nullptr ? own : own + segment->replays.load(std::memory_order_relaxed);
  }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }

  /// Counts the replays of the segment that makes the content; null if no segment does.
  const detail::ReplayCount* maker() const { return maker_.load(std::memory_order_acquire); }
  /// Does nothing if a maker is known.
  void set_maker(const detail::Ref<detail::ReplayCount>& segment);

  /// May the content change without bump_version()? True once something has the variable, a host pointer or
  /// the memory itself, or a recorded segment writes it. Never becomes false again.
  bool has_unseen_writers() const { return unseen_writers_.load(std::memory_order_relaxed); }
  void expect_unseen_writers() { unseen_writers_.store(true, std::memory_order_relaxed); }

  // Direct use, of memory of the CPU only. try_ functions return false when the operation must be pushed.
  bool try_read() {
    uint64_t state = state_.load(std::memory_order_relaxed);
    while ((state & ~kReaders) == 0)
      if (state_.compare_exchange_weak(state, state + kReader, std::memory_order_acquire)) return true;
    return false;
  }
  void end_read() { state_.fetch_sub(kReader, std::memory_order_release); }
  bool try_write() {
    uint64_t state = 0;
    return state_.compare_exchange_strong(state, kWriter, std::memory_order_acquire);
  }
  void end_write() { state_.fetch_sub(kWriter, std::memory_order_release); }
  /// Has every pushed operation run, and well, and is no thread writing?
  bool quiet() const { return (state_.load(std::memory_order_acquire) & ~kReaders) == 0; }

  std::atomic<uint32_t> refs{1};
  static void destroy(Storage* storage) noexcept;

 private:
  friend class detail::PushedArrays;
  friend class detail::UseLists;

  static constexpr uint64_t kReader = 1, kReaders = 0xfffff, kWriter = 1 << 20, kPending = uint64_t{1} << 24,
                            kTainted = uint64_t{1} << 60, kShared = uint64_t{1} << 61;
  static constexpr size_t kInlineBytes = 64;
  static constexpr uint32_t kNone = 0, kMaking = 1, kReady = 2;

  Storage(size_t bytes, Context context, Device* device)
      : context_(context), bytes_(bytes), device_(device) {}
  struct Ending;

  // For push_on().

  /// The variable, made now if there is none. Throws InvalidState when another engine has made it.
  Var var(Engine& engine);
  bool has_var() const { return var_ready_.load(std::memory_order_acquire) == kReady; }
  /// Precondition: has_var().
  Var known_var() const { return var_; }
  /// Before a push; waits until direct uses have ended.
  void begin_pending() { wait_for_direct_uses(state_.fetch_add(kPending, std::memory_order_acquire)); }
  void end_pending() { state_.fetch_sub(kPending, std::memory_order_release); }
  void taint() { state_.fetch_or(kTainted, std::memory_order_relaxed); }
  void cleanse() {
    if ((state_.load(std::memory_order_relaxed) & kTainted) != 0)
      state_.fetch_and(~kTainted, std::memory_order_relaxed);
  }

  void wait_for_direct_uses(uint64_t state) const {
    if ((state & (kReaders | kWriter)) != 0) [[unlikely]]
      wait_for_end_of_direct_uses();
  }
  void wait_for_end_of_direct_uses() const;
  void* allocate(Stream* stream);
  static void end(Storage* storage) noexcept;
  void free_data(void* data) noexcept;

  Context context_;
  std::atomic<uint64_t> state_{0};
  std::atomic<void*> data_{nullptr};
  size_t bytes_;
  Device* device_;  // null: the memory is somebody else's
  Engine* engine_ = nullptr;
  Var var_;
  std::atomic<uint32_t> var_ready_{kNone};
  std::atomic<uint32_t> version_{0};
  std::atomic<detail::ReplayCount*> maker_{nullptr};  // owns a reference
  std::atomic<bool> allocating_{false};
  std::atomic<bool> unseen_writers_{false};
  std::function<void()>* release_ = nullptr;
  alignas(64) std::byte inline_[kInlineBytes];  // small arrays need no allocation of their own
};

}  // namespace mx
