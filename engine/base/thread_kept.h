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

/// The object of one thread. Not a local class of thread_kept(), because nvcc does not compile that.
template <class T, class Tag>
struct ThreadKeptValue final : ThreadKept {
  T value{};
  static inline thread_local constinit ThreadKeptValue* of_thread = nullptr;
  ~ThreadKeptValue() override { of_thread = nullptr; }
};

/// Returns the calling thread's T. Each Tag has its own object.
template <class T, class Tag>
T& thread_kept() {
  ThreadKeptValue<T, Tag>*& kept = ThreadKeptValue<T, Tag>::of_thread;
  if (kept == nullptr) [[unlikely]] {
    auto made = std::make_unique<ThreadKeptValue<T, Tag>>();
    delete_at_thread_end(made.get());
    kept = made.release();
  }
  return kept->value;
}

}  // namespace mx::detail
