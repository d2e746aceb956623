#include "engine/detail/pools.h"

#include <algorithm>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#include "engine/base/check.h"
#include "engine/base/no_engine_lock.h"

namespace mx::detail {

namespace {

void* new_slab(const char* what) {
  assert_no_engine_lock();
  void* slab = std::aligned_alloc(kSlabBytes, kSlabBytes);
  MX_CHECK(slab != nullptr, OutOfMemory, "[engine] expected ", kSlabBytes, " more bytes for ", what,
           ", but the host is out of memory");
  return slab;
}

}  // namespace

OpPool::~OpPool() {
  for (void* slab : slabs_) std::free(slab);
}

// Makes a slab of operations and returns them as chains, linked by next_chain(). The chains are in address
// order, so that a pusher walks forward through memory.
Op* OpPool::make_slab() {
  std::vector<void*> room;
  char* slab = static_cast<char*>(new_slab("pending operations"));
  Op* chains = nullptr;
  for (size_t begin = (kOpsPerSlab - 1) / kChain * kChain;; begin -= kChain) {
    Op* next = nullptr;
    for (size_t i = std::min(begin + kChain, kOpsPerSlab); i-- > begin;) {
      Op* op = ::new (slab + kOpBytes * i) Op;
      op->next() = next;
      next = op;
    }
    next_chain(next) = chains;
    chains = next;
    if (begin == 0) break;
  }
  // The list of slabs may have to grow; its memory, too, is allocated without the mutex.
  for (;;) {
    std::unique_lock lock(mutex_);
    if (slabs_.size() < slabs_.capacity()) {
      slabs_.push_back(slab);
      break;
    }
    if (room.capacity() > slabs_.size()) {
      room.assign(slabs_.begin(), slabs_.end());
      room.swap(slabs_);
      continue;
    }
    const size_t wanted = 2 * slabs_.size() + 8;
    lock.unlock();
    try {
      room.reserve(wanted);
    } catch (...) {
      std::free(slab);
      throw;
    }
  }
  bytes_.fetch_add(kSlabBytes, std::memory_order_relaxed);
  return chains;
}

Op* OpPool::take_chain() {
  {
    std::lock_guard lock(mutex_);
    if (chains_ != nullptr) {
      Op* chain = chains_;
      chains_ = next_chain(chain);
      return chain;
    }
  }
  Op* first = make_slab();
  give_chains(next_chain(first));
  return first;
}

void OpPool::give_chain(Op* chain) noexcept {
  if (chain == nullptr) return;
  next_chain(chain) = nullptr;
  give_chains(chain);
}

void OpPool::give_chains(Op* chains) noexcept {
  assert_no_engine_lock();
  if (chains == nullptr) return;
  Op* last = chains;
  while (next_chain(last) != nullptr) last = next_chain(last);
  std::lock_guard lock(mutex_);
  next_chain(last) = chains_;
  chains_ = chains;
}

VarPool::~VarPool() {
  for (Slab* slab : slabs_) {
    delete[] slab->names.load();
    std::free(slab);
  }
}

// Precondition: the caller holds making_, so that no other thread makes the lists longer. Everything is
// allocated before mutex_ is taken.
void VarPool::add_slab() {
  std::vector<VarBlock*> more_free;
  std::vector<Slab*> more_slabs;
  more_free.reserve(kVarsPerSlab * (slabs_.size() + 1));
  more_slabs.reserve(slabs_.size() + 1);
  auto* slab = ::new (new_slab("variables")) Slab;
  slab->names.store(nullptr, std::memory_order_relaxed);
  for (size_t i = 0; i < kVarsPerSlab; ++i) {
    slab->generations[i].store(1, std::memory_order_relaxed);
    slab->pins[i] = 0;
  }
  std::lock_guard lock(mutex_);
  more_free.assign(free_.begin(), free_.end());
  for (size_t i = kVarsPerSlab; i-- > 0;) more_free.push_back(&slab->vars[i]);
  more_slabs.assign(slabs_.begin(), slabs_.end());
  more_slabs.push_back(slab);
  free_.swap(more_free);
  slabs_.swap(more_slabs);
}

VarBlock* VarPool::take(const char* name) {
  for (;;) {
    std::unique_lock lock(mutex_);
    if (!free_.empty()) {
      VarBlock* var = free_.back();
      auto* slab = static_cast<Slab*>(slab_of(var));
      const char** names = slab->names.load(std::memory_order_relaxed);
      if (name == nullptr || names != nullptr) {
        if (names != nullptr) names[var - slab->vars] = name;
        free_.pop_back();
        live_.fetch_add(1, std::memory_order_relaxed);
        return var;
      }
      lock.unlock();
      auto made = std::make_unique<const char*[]>(kVarsPerSlab);
      if (const char** none = nullptr; slab->names.compare_exchange_strong(none, made.get())) made.release();
      continue;
    }
    lock.unlock();
    std::lock_guard making(making_);
    {
      std::lock_guard look(mutex_);
      if (!free_.empty()) continue;
    }
    add_slab();
  }
}

void VarPool::give_all(VarBlock* vars) {
  assert_no_engine_lock();
  std::lock_guard lock(mutex_);
  while (vars != nullptr) {
    VarBlock* const var = vars;
    vars = next_dead(var);
    free_.push_back(var);  // never allocates: there is room for all blocks
  }
}

}  // namespace mx::detail
