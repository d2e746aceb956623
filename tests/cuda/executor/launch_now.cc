// Launches of programs whose kernels run on the calling thread.
#include "ndarray/cuda/host_threads.h"

namespace mx::cuda::host {

void launch(void*, Index3 grid, Index3 block, size_t shared_bytes, std::function<void()> body) {
  run(grid, block, shared_bytes, body);
}

}  // namespace mx::cuda::host
