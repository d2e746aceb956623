// OpPool and VarPool: the memory of the two hot records. Internal.
//
// Both allocate 64 KiB slabs aligned to their size, so that the slab of an address is found by masking it. No
// slab is freed before the engine is destroyed. Without that, checking a stale handle would read freed
// memory.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include "engine/detail/op.h"

namespace mx::detail {

/// Operations move in chains of kChain, so that the pool's mutex is taken once for many of them. A pusher
/// takes a chain into its thread's cache. The engine returns chains as operations complete.
class OpPool {
 public:
  static constexpr int kChain = 64;
  OpPool() = default;
  OpPool(const OpPool&) = delete;
  ~OpPool();

  /// Returns a chain of up to kChain operations linked by next(). Throws OutOfMemory.
  Op* take_chain();
  /// Returns a chain of any length to the pool. Ignores null.
  void give_chain(Op* chain) noexcept;
  /// Returns several chains, linked by next_chain(), to the pool.
  void give_chains(Op* chains) noexcept;
  static Op*& next_chain(Op* chain) { return chain->cold().next_chain; }
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

  std::atomic<bool> engine_gone{false};  // the engine is destroyed; recorded segments keep the pool alive

 private:
  Op* make_slab();

  std::mutex mutex_;  // nothing is allocated under it
  Op* chains_ = nullptr;
  std::vector<void*> slabs_;
  std::atomic<size_t> bytes_{0};
};

/// Variables. The generations are together in the slab's header, apart from the blocks: pushers read the
/// generations at every push while workers write the blocks, so the two must not share cache lines.
class VarPool {
 public:
  static constexpr size_t kVarsPerSlab = 896;
  struct Slab {
    std::atomic<uint32_t> generations[kVarsPerSlab];
    uint32_t pins[kVarsPerSlab];      // how many segments pin each; under the engine's lock
    std::atomic<const char**> names;  // null until a variable of the slab has a name
    char pad[kSlabBytes - kVarsPerSlab * (sizeof(VarBlock) + 2 * sizeof(uint32_t)) - sizeof(void*)];
    VarBlock vars[kVarsPerSlab];
  };
  static_assert(sizeof(Slab) == kSlabBytes);

  VarPool() = default;
  VarPool(const VarPool&) = delete;
  ~VarPool();

  /// Returns the block of a new variable. Throws OutOfMemory. The name may be null.
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
  /// Ends the generation of a handle. Returns false if it had already ended.
  static bool end_generation(const Var& v) {
    uint32_t expected = v.generation;
    return generation_of(v.block).compare_exchange_strong(expected, expected + 1, std::memory_order_relaxed);
  }
  /// Counts a variable as freed, before its block is given to give_all(). Any thread.
  void end_life() { live_.fetch_sub(1, std::memory_order_relaxed); }
  /// Makes the blocks of freed variables, linked by next_dead(), available for new ones. Precondition: their
  /// generations have been ended.
  void give_all(VarBlock* vars);
  /// The next block in a list for give_all().
  static VarBlock*& next_dead(VarBlock* var) { return var->next_dead; }

  static std::atomic<uint32_t>& generation_of(const VarBlock* var) {
    auto* slab = static_cast<Slab*>(slab_of(var));
    return slab->generations[var - slab->vars];
  }
  static bool alive(const Var& v) {
    return generation_of(v.block).load(std::memory_order_relaxed) == v.generation;
  }
  size_t live() const { return live_.load(std::memory_order_relaxed); }
  /// Returns all present slabs. Slabs exist until the pool is destroyed.
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

  std::mutex mutex_;   // nothing is allocated under it
  std::mutex making_;  // held while a thread makes a slab; taken before mutex_
  std::vector<VarBlock*> free_;
  std::vector<Slab*> slabs_;
  std::atomic<size_t> live_{0};
};

}  // namespace mx::detail
