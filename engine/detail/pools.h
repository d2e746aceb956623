// OpPool and VarPool: memory of the two hot records. Internal.
//
// Both take 64 KiB slabs aligned to their size, so that an address leads to its slab's header. Nothing is
// given back before the engine goes: that is what makes a stale handle safe to look at.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "engine/detail/op.h"

namespace mx::detail {

/// Operations move in chains of kChain, so that the pool's mutex is taken once for many of them: pushers
/// take chains into a cache of their thread, the engine returns chains as operations complete.
class OpPool {
 public:
  static constexpr int kChain = 64;
  OpPool() = default;
  OpPool(const OpPool&) = delete;
  ~OpPool();

  /// A chain of up to kChain operations linked by next(). Throws OutOfMemory.
  Op* take_chain();
  /// Any length; null is ignored.
  void give_chain(Op* chain) noexcept;
  /// Several chains, linked by next_chain().
  void give_chains(Op* chains) noexcept;
  static Op*& next_chain(Op* chain) { return chain->cold().next_chain; }
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

  std::atomic<bool> engine_gone{false};  // what recorded segments still have of it is this pool

 private:
  Op* make_slab();

  std::mutex mutex_;  // (nothing is allocated under it)
  Op* chains_ = nullptr;
  std::vector<void*> slabs_;
  std::atomic<size_t> bytes_{0};
};

/// Variables. The generations sit together in the slab's header, apart from the blocks: pushers read them on
/// every push, workers write the blocks all the time, and the two must not share lines.
class VarPool {
 public:
  static constexpr size_t kVarsPerSlab = 896;
  struct Slab {
    std::atomic<uint32_t> generations[kVarsPerSlab];
    uint32_t pins[kVarsPerSlab];      // by segments; under the engine's lock
    std::atomic<const char**> names;  // of the variables that have one
    char pad[kSlabBytes - kVarsPerSlab * (sizeof(VarBlock) + 2 * sizeof(uint32_t)) - sizeof(void*)];
    VarBlock vars[kVarsPerSlab];
  };
  static_assert(sizeof(Slab) == kSlabBytes);

  VarPool() = default;
  VarPool(const VarPool&) = delete;
  ~VarPool();

  /// Throws OutOfMemory. The name may be null.
  VarBlock* take(const char* name);
  static const char* name_of(const VarBlock* var) {
    auto* slab = static_cast<Slab*>(slab_of(var));
    const char** names = slab->names.load(std::memory_order_acquire);
    return names != nullptr ? names[var - slab->vars] : nullptr;
  }
  static uint32_t& pins_of(const VarBlock* var) {
    auto* slab = static_cast<Slab*>(slab_of(var));
    return slab->pins[var - slab->vars];
  }
  /// Ends the generation of a handle; false when it had ended already.
  static bool end_generation(const Var& v) {
    uint32_t expected = v.generation;
    return generation_of(v.block).compare_exchange_strong(expected, expected + 1, std::memory_order_relaxed);
  }
  /// The variable is no more, and its block on the way to give_all(). Any thread.
  void end_life() { live_.fetch_sub(1, std::memory_order_relaxed); }
  /// Blocks of such variables, linked by next_dead(): they may serve new ones (their generations have been
  /// ended).
  void give_all(VarBlock* vars);
  /// Of a variable that is about to be given back.
  static VarBlock*& next_dead(VarBlock* var) { return var->next_dead; }

  static std::atomic<uint32_t>& generation_of(const VarBlock* var) {
    auto* slab = static_cast<Slab*>(slab_of(var));
    return slab->generations[var - slab->vars];
  }
  static bool alive(const Var& v) {
    return generation_of(v.block).load(std::memory_order_relaxed) == v.generation;
  }
  size_t live() const { return live_.load(std::memory_order_relaxed); }
  /// All slabs that there are now. Slabs stay until the pool goes.
  std::vector<Slab*> slabs() {
    const std::lock_guard making(making_);
    return slabs_;
  }
  /// Calls f(VarBlock&) for every block of these slabs.
  template <class F>
  static void for_each(const std::vector<Slab*>& slabs, F&& f) {
    for (Slab* slab : slabs) {
      for (VarBlock& var : slab->vars) f(var);
    }
  }

 private:
  void add_slab();

  std::mutex mutex_;   // (nothing is allocated under it)
  std::mutex making_;  // of the thread that makes a slab; taken before mutex_
  std::vector<VarBlock*> free_;
  std::vector<Slab*> slabs_;
  std::atomic<size_t> live_{0};
};

}  // namespace mx::detail
