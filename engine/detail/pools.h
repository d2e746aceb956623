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
  size_t bytes() const { return bytes_.load(std::memory_order_relaxed); }

 private:
  std::mutex mutex_;
  Op* chains_ = nullptr;  // linked through the cold record of their first operation
  std::vector<void*> slabs_;
  std::atomic<size_t> bytes_{0};
};

/// Variables. The generations sit together in the slab's header, apart from the blocks: pushers read them on
/// every push, workers write the blocks all the time, and the two must not share lines.
class VarPool {
 public:
  static constexpr size_t kVarsPerSlab = 960;
  struct Slab {
    std::atomic<uint32_t> generations[kVarsPerSlab];
    const char** names;  // of the variables that have one
    char pad[kSlabBytes - kVarsPerSlab * (sizeof(VarBlock) + sizeof(uint32_t)) - sizeof(void*)];
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
    return slab->names != nullptr ? slab->names[var - slab->vars] : nullptr;
  }
  /// Ends the generation of a handle; false when it had ended already.
  static bool end_generation(const Var& v) {
    uint32_t expected = v.generation;
    return generation_of(v.block).compare_exchange_strong(expected, expected + 1, std::memory_order_relaxed);
  }
  /// The block may serve a new variable (its generation has been ended).
  void give(VarBlock* var);

  static std::atomic<uint32_t>& generation_of(const VarBlock* var) {
    auto* slab = static_cast<Slab*>(slab_of(var));
    return slab->generations[var - slab->vars];
  }
  static bool alive(const Var& v) {
    return generation_of(v.block).load(std::memory_order_relaxed) == v.generation;
  }
  size_t live() const { return live_.load(std::memory_order_relaxed); }
  /// Calls f(VarBlock&) for every block ever made; f must not use the pool.
  template <class F>
  void for_each(F&& f) {
    std::lock_guard lock(mutex_);
    for (Slab* slab : slabs_) {
      for (VarBlock& var : slab->vars) f(var);
    }
  }

 private:
  std::mutex mutex_;
  std::vector<VarBlock*> free_;
  std::vector<Slab*> slabs_;
  std::atomic<size_t> live_{0};
};

}  // namespace mx::detail
