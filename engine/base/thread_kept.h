// thread_kept<T>(): a T that each thread keeps for itself, usable as long as the thread runs code.
//
// A thread_local object with a destructor must not be used after the thread's destructors have run; but
// destructors may use the engine, and on the thread that ends the process it runs what is left after them.
// Here the thread's T goes after all of them, and one that is asked for still later goes later.
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

/// Deletes `kept` when the thread has ended and its thread_local objects are gone. What the thread that ends
/// the process keeps stays until then. Throws std::system_error if the system has no room for thread data.
void delete_at_thread_end(ThreadKept* kept);

/// Tag tells apart those of one type.
template <class T, class Tag>
T& thread_kept() {
  struct Kept;
  static thread_local constinit Kept* kept = nullptr;
  struct Kept : ThreadKept {
    T value{};
    ~Kept() override { kept = nullptr; }
  };
  if (kept == nullptr) [[unlikely]] {
    auto made = std::make_unique<Kept>();
    delete_at_thread_end(made.get());
    kept = made.release();
  }
  return kept->value;
}

}  // namespace mx::detail
