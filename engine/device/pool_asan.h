// Tells AddressSanitizer which bytes of a pool's segments are in use. Compiles to nothing without it.
#pragma once

#include <cstddef>

#if defined(__SANITIZE_ADDRESS__)
#  define MX_POOL_ASAN 1
#elif defined(__has_feature)
#  if __has_feature(address_sanitizer)
#    define MX_POOL_ASAN 1
#  endif
#endif

#ifdef MX_POOL_ASAN
#  include <sanitizer/asan_interface.h>
#endif

namespace mx::pool_asan {

#ifdef MX_POOL_ASAN
constexpr size_t kRedzone = 64;  ///< bytes after a request that no code may access

inline void allow(const void* base, size_t bytes, bool host_accessible) {
  if (host_accessible) ASAN_UNPOISON_MEMORY_REGION(base, bytes);
}
inline void forbid(const void* base, size_t bytes, bool host_accessible) {
  if (host_accessible) ASAN_POISON_MEMORY_REGION(base, bytes);
}
#else
constexpr size_t kRedzone = 0;

inline void allow(const void*, size_t, bool) {}
inline void forbid(const void*, size_t, bool) {}
#endif

}  // namespace mx::pool_asan
