// Annotations for ThreadSanitizer.
//
// oneTBB is not compiled with ThreadSanitizer, so the sanitizer does not see the happens-before edge from the
// thread that enqueues a task to the thread that runs it. MX_TSAN_RELEASE before the enqueue and
// MX_TSAN_ACQUIRE at the start of the task, on the same address, declare that edge and nothing else. Without
// the sanitizer they compile to nothing. The one file that uses them, worker_host.cc, is itself compiled
// without the sanitizer, because oneTBB's headers write the task's memory from it; its build defines
// MX_TSAN_ANNOTATE.
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
// For the time of a call into oneTBB that clears memory of oneTBB's own allocator. The sanitizer intercepts
// memset in every library, but it does not see the synchronisation inside oneTBB, so it would report a race.
#  define MX_TSAN_IGNORE_WRITES_BEGIN() AnnotateIgnoreWritesBegin(__FILE__, __LINE__)
#  define MX_TSAN_IGNORE_WRITES_END() AnnotateIgnoreWritesEnd(__FILE__, __LINE__)
#else
#  define MX_TSAN_IGNORE_WRITES_BEGIN() ((void)0)
#  define MX_TSAN_IGNORE_WRITES_END() ((void)0)
#  define MX_TSAN_ACQUIRE(address) ((void)(address))
#  define MX_TSAN_RELEASE(address) ((void)(address))
#endif
