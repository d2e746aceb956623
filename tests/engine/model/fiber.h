// Fiber: a function on a stack of its own, within one thread. For the model checker, which switches some
// ten million times a second; a switch costs about ten nanoseconds because it saves no signal mask (except
// under AddressSanitizer, which must be told of every switch).
#pragma once

#include <csetjmp>
#include <cstddef>
#include <memory>

#include <ucontext.h>

namespace mx::test::model {

class Fiber {
 public:
  /// The calling thread's own stack.
  Fiber() : started_(true) {}
  /// A new stack. entry(argument) begins at the first switch to it and must never return.
  Fiber(void (*entry)(void*), void* argument);
  Fiber(const Fiber&) = delete;

  /// Leaves the running fiber, which must be `from`; returns when somebody switches back to `from`.
  static void switch_to(Fiber& from, Fiber& to);

 private:
  static void begin();

  static constexpr size_t kStackBytes = 128 << 10;
  std::unique_ptr<char[]> stack_;
  void (*entry_)(void*) = nullptr;
  void* argument_ = nullptr;
  bool started_;
  ucontext_t context_ = {};
  jmp_buf place_ = {};
  // For AddressSanitizer: what belongs to this stack.
  [[maybe_unused]] void* fake_stack_ = nullptr;
  const void* bottom_ = nullptr;
  size_t size_ = 0;
};

}  // namespace mx::test::model
