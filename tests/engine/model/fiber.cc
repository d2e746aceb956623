// The checks of fortified libraries would report a longjmp() to another stack as an attack.
#undef _FORTIFY_SOURCE

#include "tests/engine/model/fiber.h"

#if defined(__SANITIZE_ADDRESS__)
#  define MX_ASAN 1
#elif defined(__has_feature)
#  if __has_feature(address_sanitizer)
#    define MX_ASAN 1
#  endif
#endif

#ifdef MX_ASAN
#  include <sanitizer/common_interface_defs.h>
#endif

namespace mx::test::model {

namespace {

thread_local Fiber* starting = nullptr;
[[maybe_unused]] thread_local Fiber* leaving = nullptr;

}  // namespace

Fiber::Fiber(void (*entry)(void*), void* argument)
    : stack_(new char[kStackBytes]), entry_(entry), argument_(argument), started_(false) {
  bottom_ = stack_.get();
  size_ = kStackBytes;
  getcontext(&context_);
  context_.uc_stack.ss_sp = stack_.get();
  context_.uc_stack.ss_size = kStackBytes;
  context_.uc_link = nullptr;
  makecontext(&context_, &Fiber::begin, 0);
}

void Fiber::begin() {
  Fiber* self = starting;
#ifdef MX_ASAN
  const void* bottom = nullptr;
  size_t size = 0;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
  if (leaving->stack_ == nullptr) {  // the bounds of the thread's own stack are known only here
    leaving->bottom_ = bottom;
    leaving->size_ = size;
  }
#endif
  self->entry_(self->argument_);
}

void Fiber::switch_to(Fiber& from, Fiber& to) {
  starting = &to;
#ifdef MX_ASAN
  leaving = &from;
  __sanitizer_start_switch_fiber(&from.fake_stack_, to.bottom_, to.size_);
  swapcontext(&from.context_, &to.context_);
  __sanitizer_finish_switch_fiber(from.fake_stack_, nullptr, nullptr);
#else
  if (_setjmp(from.place_) != 0) return;
  if (to.started_) _longjmp(to.place_, 1);
  to.started_ = true;
  setcontext(&to.context_);
#endif
}

}  // namespace mx::test::model
