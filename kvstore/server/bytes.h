// Bytes: a piece of memory with shared ownership. BytePool: reuses the memory of large pieces. Internal.
//
// Thread-safety: a Bytes is a value; the bytes that it refers to have no protection. A pool may be used from
// any thread, and its pieces may outlive it.
#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

namespace mx::kv {

struct Bytes {
  std::shared_ptr<void> owner;  ///< null if the creator guarantees that the memory lives long enough
  std::byte* data = nullptr;
  size_t size = 0;

  bool empty() const { return size == 0; }
  /// Returns true if no other object owns the memory, so that it may be changed.
  bool unique() const { return owner.use_count() == 1; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data), size}; }

  /// Memory that the caller keeps alive.
  static Bytes borrowed(const void* data, size_t size) {
    return {nullptr, static_cast<std::byte*>(const_cast<void*>(data)), size};
  }
  static Bytes of(std::string text) {
    auto owner = std::make_shared<std::string>(std::move(text));
    auto* data = reinterpret_cast<std::byte*>(owner->data());
    const size_t size = owner->size();
    return {std::move(owner), data, size};
  }
};

/// Keeps the memory of pieces that nobody uses any more, because fresh memory of the system costs a page
/// fault for every 4 KiB.
class BytePool {
 public:
  /// `kept_bytes`: how many unused bytes the pool keeps.
  explicit BytePool(size_t kept_bytes) : free_(std::make_shared<Free>(kept_bytes)) {}
  /// Returns memory for `size` bytes, aligned to 64 bytes. Throws OutOfMemory.
  Bytes make(size_t size);

 private:
  struct Piece {
    void* memory;
    size_t capacity;
  };
  struct Free {
    explicit Free(size_t kept) : kept_bytes(kept) {}
    ~Free();
    const size_t kept_bytes;
    std::mutex mutex;
    size_t bytes = 0;           // guarded by mutex
    std::vector<Piece> pieces;  // guarded by mutex
  };
  std::shared_ptr<Free> free_;
};

}  // namespace mx::kv
