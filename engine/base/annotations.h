// What the tools that check this code must be told.
//
// oneTBB is not compiled with ThreadSanitizer, so the happens-before edge from the thread that enqueues a
// task to the thread that runs it is invisible to it: MX_TSAN_RELEASE before the enqueue and
// MX_TSAN_ACQUIRE at the start of the task, on the same address, make it visible. They mark that edge only
// and compile to nothing elsewhere. The one file that uses them (worker_host.cc) is itself compiled without
// the sanitizer, since oneTBB's headers write the task's memory from it, and says so with MX_TSAN_ANNOTATE.
#pragma once

#if defined(__SANITIZE_THREAD__) || defined(MX_TSAN_ANNOTATE)
#  define MX_TSAN 1
#elif defined(__has_feature)
#  if __has_feature(thread_sanitizer)
#    define MX_TSAN 1
#  endif
#endif

#ifdef MX_TSAN
extern "C" void AnnotateIgnoreWritesBegin(const char* file, int line);
extern "C" void AnnotateIgnoreWritesEnd(const char* file, int line);
extern "C" void __tsan_acquire(void* address);
extern "C" void __tsan_release(void* address);
#  define MX_TSAN_ACQUIRE(address) __tsan_acquire(const_cast<void*>(static_cast<const void*>(address)))
#  define MX_TSAN_RELEASE(address) __tsan_release(const_cast<void*>(static_cast<const void*>(address)))
// Around a call of oneTBB that clears memory it has got from itself: the sanitizer sees the memset, in every
// library, but not what ordered it.
#  define MX_TSAN_IGNORE_WRITES_BEGIN() AnnotateIgnoreWritesBegin(__FILE__, __LINE__)
#  define MX_TSAN_IGNORE_WRITES_END() AnnotateIgnoreWritesEnd(__FILE__, __LINE__)
#else
#  define MX_TSAN_IGNORE_WRITES_BEGIN() ((void)0)
#  define MX_TSAN_IGNORE_WRITES_END() ((void)0)
#  define MX_TSAN_ACQUIRE(address) ((void)(address))
#  define MX_TSAN_RELEASE(address) ((void)(address))
#endif
