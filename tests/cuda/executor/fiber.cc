#include "tests/cuda/executor/fiber.h"

#include <cstdint>
#include <deque>
#include <memory>
#include <utility>

#if defined(MX_ASAN_FIBERS)
#  include <sanitizer/asan_interface.h>
#  include <sanitizer/common_interface_defs.h>
#endif
#if defined(MX_TSAN_FIBERS)
extern "C" {
void* __tsan_get_current_fiber();
void* __tsan_create_fiber(unsigned flags);
void __tsan_destroy_fiber(void* fiber);
void __tsan_switch_to_fiber(void* fiber, unsigned flags);
void __tsan_acquire(void* address);
void __tsan_release(void* address);
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
void AnnotateIgnoreWritesBegin(const char* file, int line);
void AnnotateIgnoreWritesEnd(const char* file, int line);
}
#endif

#if !defined(__x86_64__)
#  error "expected x86-64: the switch of fibers is written for it"
#endif

// Stores the registers that a called function must keep, and the stack pointer; continues on the other stack.
extern "C" void mx_test_switch_stacks(void** save, void* to);
asm(R"(
.pushsection .text
.globl mx_test_switch_stacks
.type mx_test_switch_stacks,@function
mx_test_switch_stacks:
  pushq %rbp
  pushq %rbx
  pushq %r12
  pushq %r13
  pushq %r14
  pushq %r15
  movq %rsp, (%rdi)
  movq %rsi, %rsp
  popq %r15
  popq %r14
  popq %r13
  popq %r12
  popq %rbx
  popq %rbp
  ret
.size mx_test_switch_stacks,.-mx_test_switch_stacks
.popsection
)");

namespace mx::test {
namespace {

#if defined(MX_TSAN_FIBERS)
/// A fiber of the sanitizer. It keeps its stack: what an earlier one did on it would look like a race.
struct TsanFiber {
  void* fiber;
  std::unique_ptr<char[]> stack;
};

/// The sanitizer's fibers of a host thread. To create one takes a quarter of a millisecond, so they are used
/// again, but only in a later launch: within a launch, the sanitizer would take two CUDA threads for one.
struct TsanFibers {
  uint64_t launch = 0;
  std::deque<TsanFiber> used, free;  // used: those of this launch whose threads have ended, oldest first

  /// Destroys the oldest fibers if there are too many. Late: the sanitizer takes the accesses of a fiber for
  /// those of a later one that has the same number.
  static void destroy_oldest(std::deque<TsanFiber>& fibers) {
    constexpr size_t kKept = 4000;
    while (fibers.size() > kKept) {
      __tsan_destroy_fiber(fibers.front().fiber);
      fibers.pop_front();
    }
  }
};

TsanFibers& tsan_fibers() {
  // Not destroyed: at the end of a thread, fibers are destroyed after this would be.
  static thread_local auto& fibers = *new TsanFibers;
  return fibers;
}
#endif

}  // namespace

Fiber::~Fiber() {
  const Unseen unseen;
#if defined(MX_TSAN_FIBERS)
  if (tsan_ != nullptr) __tsan_destroy_fiber(tsan_);
#endif
  stack_.reset();
}

void Fiber::begin_launch() {
#if defined(MX_TSAN_FIBERS)
  const Unseen unseen;
  TsanFibers& fibers = tsan_fibers();
  ++fibers.launch;
  for (TsanFiber& fiber : fibers.used) fibers.free.push_back(std::move(fiber));
  fibers.used.clear();
  fibers.destroy_oldest(fibers.free);
#endif
}

#if defined(MX_TSAN_FIBERS)
/// Takes a fiber of the sanitizer that no other thread of this launch has had.
void Fiber::renew_tsan() {
  TsanFibers& fibers = tsan_fibers();
  if (tsan_ != nullptr && !ended_) {  // after a fault: the sanitizer has functions of it that never return
    __tsan_destroy_fiber(tsan_);
    tsan_ = nullptr;
    stack_.reset();
  }
  if (tsan_ != nullptr && launch_ == fibers.launch) {
    fibers.used.push_back({tsan_, std::move(stack_)});
    fibers.destroy_oldest(fibers.used);
    tsan_ = nullptr;
  }
  if (tsan_ == nullptr) {
    if (fibers.free.empty()) {
      tsan_ = __tsan_create_fiber(0);
    } else {
      tsan_ = fibers.free.back().fiber;
      stack_ = std::move(fibers.free.back().stack);
      fibers.free.pop_back();
    }
  }
  launch_ = fibers.launch;
  ended_ = false;
}
#endif

void Fiber::prepare(Entry entry) {
  const Unseen unseen;
#if defined(MX_TSAN_FIBERS)
  renew_tsan();
#endif
  if (stack_ == nullptr) stack_.reset(new char[kStackBytes]);
#if defined(MX_ASAN_FIBERS)
  __asan_unpoison_memory_region(stack_.get(), kStackBytes);
#endif
  const uintptr_t end = (reinterpret_cast<uintptr_t>(stack_.get()) + kStackBytes) & ~uintptr_t{15};
  void** top = reinterpret_cast<void**>(end);
  *--top = nullptr;  // the return address of `entry`, which never returns; it aligns the stack
  *--top = reinterpret_cast<void*>(entry);
  constexpr int kRegisters = 6;
  for (int i = 0; i < kRegisters; ++i) *--top = nullptr;
  own_ = top;
}

void Fiber::enter() {
#if defined(MX_ASAN_FIBERS)
  __sanitizer_start_switch_fiber(&caller_fake_, stack_.get(), kStackBytes);
#endif
#if defined(MX_TSAN_FIBERS)
  constexpr unsigned kNoSync = 1;
  tsan_caller_ = __tsan_get_current_fiber();
  __tsan_switch_to_fiber(tsan_, kNoSync);
#endif
  mx_test_switch_stacks(&caller_, own_);
#if defined(MX_ASAN_FIBERS)
  __sanitizer_finish_switch_fiber(caller_fake_, nullptr, nullptr);
#endif
}

void Fiber::entered() {
#if defined(MX_ASAN_FIBERS)
  __sanitizer_finish_switch_fiber(own_fake_, &caller_bottom_, &caller_bytes_);
#endif
}

void Fiber::leave([[maybe_unused]] bool last) {
#if defined(MX_ASAN_FIBERS)
  __sanitizer_start_switch_fiber(&own_fake_, caller_bottom_, caller_bytes_);
#endif
#if defined(MX_TSAN_FIBERS)
  ended_ = last;
  constexpr unsigned kNoSync = 1;
  __tsan_switch_to_fiber(tsan_caller_, kNoSync);
#endif
  mx_test_switch_stacks(&own_, caller_);
  entered();
}

#if defined(MX_TSAN_FIBERS)
Unseen::Unseen() {
  AnnotateIgnoreReadsBegin(__FILE__, __LINE__);
  AnnotateIgnoreWritesBegin(__FILE__, __LINE__);
}
Unseen::~Unseen() {
  AnnotateIgnoreWritesEnd(__FILE__, __LINE__);
  AnnotateIgnoreReadsEnd(__FILE__, __LINE__);
}
void tsan_release(void* tag) { __tsan_release(tag); }
void tsan_acquire(void* tag) { __tsan_acquire(tag); }
#else
Unseen::Unseen() {}
Unseen::~Unseen() {}
void tsan_release(void*) {}
void tsan_acquire(void*) {}
#endif

}  // namespace mx::test
