// Defines malloc in the executable, which overrides glibc's; glibc's remains reachable under its internal
// names. Sanitizers define malloc themselves, so the build then leaves MX_BENCH_COUNT_MALLOC undefined.
#include "benchmarks/support/malloc_count.h"

#include <atomic>
#include <cerrno>
#include <cstddef>

namespace mx::bench {
namespace {

std::atomic<bool> g_counting{false};
std::atomic<unsigned long> g_calls{0};

}  // namespace

bool can_count_allocations() {
#ifdef MX_BENCH_COUNT_MALLOC
  return true;
#else
  return false;
#endif
}

void start_counting_allocations() {
  g_calls.store(0, std::memory_order_relaxed);
  g_counting.store(true, std::memory_order_seq_cst);
}

unsigned long stop_counting_allocations() {
  g_counting.store(false, std::memory_order_seq_cst);
  return g_calls.load(std::memory_order_relaxed);
}

}  // namespace mx::bench

#ifdef MX_BENCH_COUNT_MALLOC

static inline void count_call() {
  using namespace mx::bench;
  if (g_counting.load(std::memory_order_relaxed)) [[unlikely]]
    g_calls.fetch_add(1, std::memory_order_relaxed);
}

extern "C" {

void* __libc_malloc(size_t);
void* __libc_calloc(size_t, size_t);
void* __libc_realloc(void*, size_t);
void* __libc_memalign(size_t, size_t);

void* malloc(size_t size) noexcept {
  count_call();
  return __libc_malloc(size);
}

void* calloc(size_t count, size_t size) noexcept {
  count_call();
  return __libc_calloc(count, size);
}

void* realloc(void* old, size_t size) noexcept {
  count_call();
  return __libc_realloc(old, size);
}

void* memalign(size_t alignment, size_t size) noexcept {
  count_call();
  return __libc_memalign(alignment, size);
}

void* aligned_alloc(size_t alignment, size_t size) noexcept {
  count_call();
  return __libc_memalign(alignment, size);
}

int posix_memalign(void** out, size_t alignment, size_t size) noexcept {
  count_call();
  void* block = __libc_memalign(alignment, size);
  if (block == nullptr) return ENOMEM;
  *out = block;
  return 0;
}

}  // extern "C"

#endif
