#include "engine/detail/pools.h"

#include <algorithm>
#include <cstdlib>
#include <new>

#include "engine/base/check.h"
#include "engine/base/make_room.h"

namespace mx::detail {

namespace {

void* new_slab(const char* what) {
  void* slab = std::aligned_alloc(kSlabBytes, kSlabBytes);
  MX_CHECK(slab != nullptr, OutOfMemory, "[engine] expected ", kSlabBytes, " more bytes for ", what,
           ", but the host is out of memory");
  return slab;
}

}  // namespace

OpPool::~OpPool() {
  for (void* slab : slabs_) std::free(slab);
}

Op* OpPool::take_chain() {
  std::lock_guard lock(mutex_);
  if (chains_ == nullptr) {
    make_room(slabs_);
    char* slab = static_cast<char*>(new_slab("pending operations"));
    slabs_.push_back(slab);
    bytes_.fetch_add(kSlabBytes, std::memory_order_relaxed);
    // Chains in address order: a pusher then walks forward through memory.
    for (size_t begin = (kOpsPerSlab - 1) / kChain * kChain;; begin -= kChain) {
      Op* next = nullptr;
      for (size_t i = std::min(begin + kChain, kOpsPerSlab); i-- > begin;) {
        Op* op = ::new (slab + kOpBytes * i) Op;
        op->next() = next;
        next = op;
      }
      next->cold().ext = reinterpret_cast<ExtBlock*>(chains_);
      chains_ = next;
      if (begin == 0) break;
    }
  }
  Op* chain = chains_;
  chains_ = reinterpret_cast<Op*>(chain->cold().ext);
  return chain;
}

void OpPool::give_chain(Op* chain) noexcept {
  if (chain == nullptr) return;
  std::lock_guard lock(mutex_);
  chain->cold().ext = reinterpret_cast<ExtBlock*>(chains_);
  chains_ = chain;
}

VarPool::~VarPool() {
  for (Slab* slab : slabs_) {
    delete[] slab->names;
    std::free(slab);
  }
}

VarBlock* VarPool::take(const char* name) {
  std::lock_guard lock(mutex_);
  if (free_.empty()) {
    free_.reserve(kVarsPerSlab * (slabs_.size() + 1));
    make_room(slabs_);
    auto* slab = ::new (new_slab("variables")) Slab;
    slab->names = nullptr;
    slabs_.push_back(slab);
    for (size_t i = kVarsPerSlab; i-- > 0;) {
      slab->generations[i].store(1, std::memory_order_relaxed);
      free_.push_back(&slab->vars[i]);
    }
  }
  VarBlock* var = free_.back();
  auto* slab = static_cast<Slab*>(slab_of(var));
  if (name != nullptr && slab->names == nullptr) slab->names = new const char* [kVarsPerSlab] {};
  if (slab->names != nullptr) slab->names[var - slab->vars] = name;
  free_.pop_back();
  live_.fetch_add(1, std::memory_order_relaxed);
  return var;
}

void VarPool::give(VarBlock* var) {
  std::lock_guard lock(mutex_);
  free_.push_back(var);
  live_.fetch_sub(1, std::memory_order_relaxed);
}

}  // namespace mx::detail
