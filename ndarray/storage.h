// Storage: the memory that an array and its views share, with its variable in the engine.
//
// Memory is allocated by the first operation that uses it, on the stream of that operation. The variable is
// created when an operation is first pushed. If all operations on an array run directly in the calling
// thread, the array never uses the engine.
//
// Direct execution. For memory of the CPU, `state_` counts the pushed operations that have not run (pending)
// and the threads that use the memory directly. Direct use is allowed only if no pending operation conflicts
// with it. A push waits until direct uses, which are short (launch.cc), have ended. So a direct use takes
// effect at the same point of the order as if it had been pushed.
//
// A storage is *tainted* if its last writer failed or was skipped, or if a device may still be using it.
// Operations on it then go through the engine, which knows about errors and streams, until an operation of
// the CPU with exclusive access has succeeded.
//
// Every push is counted, because only detail::push_on() can access the variable. The one exception is
// shared_var(): after a call of it, every operation on the storage is pushed.
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

/// Returns the engine that arrays use: that of this thread's innermost EngineScope, otherwise Engine::get().
Engine& current_engine();

/// Sets the engine that arrays use on this thread while the scope lives. An array must not outlive an engine
/// with which it was used, unless that is Engine::get().
class EngineScope {
 public:
  explicit EngineScope(Engine& engine);
  ~EngineScope();
  EngineScope(const EngineScope&) = delete;
  EngineScope& operator=(const EngineScope&) = delete;

  /// Returns the pointer that layers above may set for this thread's innermost scope; null outside of any
  /// scope. Its object is released when the scope ends, and so before the engine. Internal.
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
  /// Makes a storage without memory. Throws InvalidArgument for a device that does not exist.
  static detail::Ref<Storage> make(size_t bytes, Context context);
  /// Makes a storage over host memory that it does not own. `release` is called once, from any thread, when
  /// the last use has ended.
  static detail::Ref<Storage> wrap(void* data, size_t bytes, std::function<void()> release);

  size_t bytes() const { return bytes_; }
  Context context() const { return context_; }
  bool on_cpu() const { return context_.is_cpu(); }

  /// Returns the variable, for operations that the program pushes itself. Those are not counted, so from now
  /// on every operation on this memory goes through the engine. Waits until direct uses have ended. Throws
  /// InvalidState if another engine created the variable.
  Var shared_var(Engine& engine);

  /// Blocks until the operations that were pushed to set the content have run. Throws the error if one
  /// failed.
  void wait();
  /// The same with a time limit. Returns false if the limit passes first.
  bool wait(int64_t timeout_ms);
  /// Returns the name of the current operation if it runs in mode check and has not declared this memory.
  std::optional<std::string> undeclared_in_operation(bool write) const;

  /// Returns the memory; null if no operation has used it.
  void* data() const { return data_.load(std::memory_order_acquire); }
  /// Returns the memory; allocates it on `stream` (null: for the host, at once) if there is none. Throws
  /// OutOfMemory.
  void* ensure(Stream* stream) {
    void* data = data_.load(std::memory_order_acquire);
    return data != nullptr ? data : allocate(stream);
  }

  /// Returns how many operations have changed the content. Used to detect changes of saved values. Each
  /// replay of the segment that makes the content counts as a change.
  uint32_t version() const {
    const detail::ReplayCount* const segment = maker();
    const uint32_t own = version_.load(std::memory_order_relaxed);
    return segment == nullptr ? own : own + segment->replays.load(std::memory_order_relaxed);
  }
  void bump_version() { version_.fetch_add(1, std::memory_order_relaxed); }

  /// Returns true if the memory is, or has been, that of a gradient that backward passes add to in place.
  /// Never becomes false again.
  bool has_been_gradient() const { return has_been_gradient_.load(std::memory_order_relaxed); }
  void set_has_been_gradient() { has_been_gradient_.store(true, std::memory_order_relaxed); }

  /// Begins a new moment of the process, for made_since(): every storage that exists is older.
  static uint64_t new_moment() { return moment_.fetch_add(1, std::memory_order_relaxed) + 1; }
  /// Returns true if the storage was made after new_moment() had returned `moment`. May return false for a
  /// storage that another thread has made since.
  bool made_since(uint64_t moment) const { return made_at_ >= moment; }

  /// Counts the replays of the segment that makes the content; null if no segment does.
  const detail::ReplayCount* maker() const { return maker_.load(std::memory_order_acquire); }
  /// Does nothing if a maker is known.
  void set_maker(const detail::Ref<detail::ReplayCount>& segment);

  /// Returns true if the content may change without bump_version(): the variable, a host pointer or the
  /// memory itself has been handed out, or a recorded segment writes it. Never becomes false again.
  bool has_unseen_writers() const { return unseen_writers_.load(std::memory_order_relaxed); }
  void expect_unseen_writers() { unseen_writers_.store(true, std::memory_order_relaxed); }

  // Direct use; for memory of the CPU only. The try_ functions return false if the operation must be pushed.
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
  /// Returns true if every pushed operation has succeeded and no thread is writing directly. Always false
  /// after shared_var().
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

  /// Returns the variable; creates it if there is none. Throws InvalidState if another engine created it.
  Var var(Engine& engine);
  bool has_var() const { return var_ready_.load(std::memory_order_acquire) == kReady; }
  /// Precondition: has_var().
  Var known_var() const { return var_; }
  /// Counts an operation as pending, before its push. Waits until direct uses have ended.
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
  Device* device_;  // null: the storage does not own the memory (wrap())
  Engine* engine_ = nullptr;
  Var var_;
  std::atomic<uint32_t> var_ready_{kNone};
  std::atomic<uint32_t> version_{0};
  std::atomic<detail::ReplayCount*> maker_{nullptr};  // owns a reference
  std::atomic<bool> allocating_{false};
  std::atomic<bool> unseen_writers_{false};
  std::atomic<bool> has_been_gradient_{false};
  std::function<void()>* release_ = nullptr;
  const uint64_t made_at_ = moment_.load(std::memory_order_relaxed);
  static inline constinit std::atomic<uint64_t> moment_{0};
  alignas(64) std::byte inline_[kInlineBytes];  // small arrays need no allocation of their own
};

}  // namespace mx
