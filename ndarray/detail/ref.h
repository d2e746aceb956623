// Ref<T>: an owning pointer to an object that counts its owners itself. Internal.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>

namespace mx::detail {

/// T has `std::atomic<uint32_t> refs` and `static void destroy(T*) noexcept`.
template <class T>
class Ref {
 public:
  Ref() = default;
  Ref(std::nullptr_t) {}
  /// Adopts the reference that the object was created with.
  static Ref adopt(T* object) {
    Ref ref;
    ref.object_ = object;
    return ref;
  }
  explicit Ref(T* object) : object_(object) { retain(); }
  Ref(const Ref& other) : object_(other.object_) { retain(); }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { release(object_); }

  T* get() const { return object_; }
  T* operator->() const { return object_; }
  T& operator*() const { return *object_; }
  explicit operator bool() const { return object_ != nullptr; }
  T* leave() { return std::exchange(object_, nullptr); }

  static void release(T* object) noexcept {
    if (object == nullptr) return;
    // A sole owner needs no atomic read-modify-write: no other thread can add a reference in the meantime.
    if (object->refs.load(std::memory_order_acquire) == 1 ||
        object->refs.fetch_sub(1, std::memory_order_acq_rel) == 1)
      T::destroy(object);
  }

 private:
  void retain() {
    if (object_ != nullptr) object_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  T* object_ = nullptr;
};

}  // namespace mx::detail
