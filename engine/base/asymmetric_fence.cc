#include "engine/base/asymmetric_fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace mx {
namespace detail {

// Set before main(), and before any engine can exist. Until then it is false, which is always correct, since
// both sides then use full fences.
const bool light_fences_are_free =
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;

void full_fence() {
  // A read-modify-write, because ThreadSanitizer does not support atomic_thread_fence.
  static std::atomic<int> place{0};
  place.fetch_add(0, std::memory_order_seq_cst);
#if !defined(__SANITIZE_THREAD__)
  std::atomic_thread_fence(std::memory_order_seq_cst);
#endif
}

}  // namespace detail

void AsymmetricFence::heavy() {
  if (detail::light_fences_are_free) syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
  detail::full_fence();
}

}  // namespace mx
