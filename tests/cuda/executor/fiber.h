// A fiber: a function on its own stack that gives control back in the middle. The sanitizers are told of
// every switch. Compiled without sanitizers; MX_ASAN_FIBERS and MX_TSAN_FIBERS say which one the program has.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace mx::test {

class Fiber {
 public:
  /// The function that a fiber runs. It must not return, but call leave(true) at its end.
  using Entry = void (*)();

  Fiber() = default;
  Fiber(const Fiber&) = delete;
  Fiber& operator=(const Fiber&) = delete;
  ~Fiber();

  /// Called before the first prepare() of a launch: what follows in this host thread is ordered after all
  /// that its fibers have done.
  static void begin_launch();
  /// Prepares the fiber to run `entry` from its beginning, at the next enter().
  void prepare(Entry entry);
  /// Runs the fiber until it calls leave(). `tag` orders its first step after what this thread has done.
  void enter();
  /// Called on the fiber's stack: continues after enter(). `last`: the fiber does not run again.
  void leave(bool last);
  /// Called first on the fiber's stack.
  void entered();

 private:
  static constexpr size_t kStackBytes = size_t{64} << 10;

  std::unique_ptr<char[]> stack_;
  void* own_ = nullptr;     // the stack pointer while the fiber does not run
  void* caller_ = nullptr;  // the stack pointer of enter() while it runs
#if defined(MX_ASAN_FIBERS)
  // The sanitizer's second stack for variables, to find uses after a return. It stays for the next prepare(),
  // because to make one takes as long as a hundred switches.
  void* own_fake_ = nullptr;
  void* caller_fake_ = nullptr;
  const void* caller_bottom_ = nullptr;
  size_t caller_bytes_ = 0;
#endif
#if defined(MX_TSAN_FIBERS)
  void renew_tsan();

  void* tsan_ = nullptr;
  void* tsan_caller_ = nullptr;
  uint64_t launch_ = 0;  // in which it was prepared
  bool ended_ = false;
#endif
};

/// Scope in which ThreadSanitizer does not look at the calling thread's accesses: the executor's own.
class Unseen {
 public:
  Unseen();
  ~Unseen();
  Unseen(const Unseen&) = delete;
  Unseen& operator=(const Unseen&) = delete;
};

/// Order accesses for ThreadSanitizer: what came before release(tag) is before what comes after acquire(tag).
void tsan_release(void* tag);
void tsan_acquire(void* tag);

}  // namespace mx::test
