#include "engine/base/asymmetric_fence.h"

#include <linux/membarrier.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace mx {
namespace detail {

// Decided before main(), and before any engine can exist: until then it is false, which is always right.
const bool light_fences_are_free =
    syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0;

void full_fence() {
  // (Not atomic_thread_fence, of which ThreadSanitizer knows nothing.)
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
