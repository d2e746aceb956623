// A Fiber is a function that runs on its own stack within one thread. The model checker switches between
// fibers about ten million times a second. A switch costs about ten nanoseconds because it saves no signal
// mask (except under AddressSanitizer, which must be told of every switch).
#pragma once

#include <csetjmp>
#include <cstddef>
#include <memory>

#include <ucontext.h>

namespace mx::test::model {

class Fiber {
 public:
  /// Represents the calling thread with its own stack.
  Fiber() : started_(true) {}
  /// Allocates a new stack. entry(argument) begins at the first switch to the fiber and must never return.
  Fiber(void (*entry)(void*), void* argument);
  Fiber(const Fiber&) = delete;

  /// Switches from the running fiber, which must be `from`, to `to`. Returns when some fiber switches back to
  /// `from`.
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
  // AddressSanitizer's data of this stack.
  [[maybe_unused]] void* fake_stack_ = nullptr;
  const void* bottom_ = nullptr;
  size_t size_ = 0;
};

}  // namespace mx::test::model
