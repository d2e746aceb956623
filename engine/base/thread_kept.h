// thread_kept<T>(): a T that each thread keeps for itself, usable as long as the thread runs code.
//
// A thread_local object with a destructor must not be used after the thread's destructors have run; on the
// thread that ends the process, the engine runs what is left after that. Here the thread's T is destroyed
// with it, and one that is asked for later stays until the process ends.
#pragma once

namespace mx::detail {

/// Tag tells apart those of one type.
template <class T, class Tag>
T& thread_kept() {
  static thread_local constinit T* kept = nullptr;
  if (kept == nullptr) [[unlikely]] {
    kept = new T();
    struct Janitor {
      ~Janitor() {
        delete kept;
        kept = nullptr;
      }
    };
    static thread_local const Janitor janitor;
    (void)&janitor;
  }
  return *kept;
}

}  // namespace mx::detail
