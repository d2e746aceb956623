// thread_kept<T>(): one T per thread, usable as long as the thread runs code.
//
// A thread_local object must not be used after its destructor has run. But destructors of other objects may
// still use the engine then; on the thread that ends the process, so may those of static objects. The T of
// thread_kept() is deleted after all thread_local objects of the thread. If it is asked for again after that,
// a new one is made, and deleted later.
#pragma once

#include <memory>

namespace mx::detail {

struct ThreadKept {
  ThreadKept() = default;
  ThreadKept(const ThreadKept&) = delete;
  ThreadKept& operator=(const ThreadKept&) = delete;
  virtual ~ThreadKept() = default;
  ThreadKept* next = nullptr;
};

/// Deletes `kept` at the end of the calling thread, after its thread_local objects. The objects of the thread
/// that ends the process are never deleted. Throws std::system_error if pthread has no room for the object.
void delete_at_thread_end(ThreadKept* kept);

/// The T of one thread.
template <class T, class Tag>
struct Kept final : ThreadKept {
  T value{};
  ~Kept() override { of_thread = nullptr; }
  static inline thread_local constinit Kept* of_thread = nullptr;
};

/// Returns the calling thread's T. Each Tag has its own object.
template <class T, class Tag>
T& thread_kept() {
  using Mine = Kept<T, Tag>;  // nvcc does not compile a class that is local to the function
  if (Mine::of_thread == nullptr) [[unlikely]] {
    auto made = std::make_unique<Mine>();
    delete_at_thread_end(made.get());
    Mine::of_thread = made.release();
  }
  return Mine::of_thread->value;
}

}  // namespace mx::detail
