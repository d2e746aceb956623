#include "kvstore/server/bytes.h"

#include <cstdlib>

#include "engine/base/check.h"

namespace mx::kv {

BytePool::Free::~Free() {
  for (const Piece& piece : pieces) std::free(piece.memory);
}

Bytes BytePool::make(size_t size) {
  // Capacities are multiples of 4 KiB, so that pieces of nearly the same size share memory.
  constexpr size_t kUnit = 4096;
  const size_t capacity = (size + kUnit - 1) / kUnit * kUnit + (size == 0 ? kUnit : 0);
  void* memory = nullptr;
  {
    std::lock_guard lock(free_->mutex);
    auto& pieces = free_->pieces;
    for (size_t i = pieces.size(); i-- > 0;)
      if (pieces[i].capacity == capacity) {
        memory = pieces[i].memory;
        free_->bytes -= capacity;
        pieces[i] = pieces.back();
        pieces.pop_back();
        break;
      }
  }
  if (memory == nullptr) memory = std::aligned_alloc(64, capacity);
  MX_CHECK(memory != nullptr, OutOfMemory, "[kvstore] expected ", capacity, " bytes of memory, got none");
  std::shared_ptr<void> owner(memory, [free = free_, capacity](void* released) {
    std::lock_guard lock(free->mutex);
    if (free->bytes + capacity > free->kept_bytes) {
      std::free(released);
      return;
    }
    free->bytes += capacity;
    free->pieces.push_back({released, capacity});
  });
  return {std::move(owner), static_cast<std::byte*>(memory), size};
}

}  // namespace mx::kv
