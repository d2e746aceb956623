// Launches of kernels that g++ has compiled, on the streams of the stand-in for CUDA. The executor runs them.
#include <atomic>

#include "ndarray/cuda/host_threads.h"
#include "tests/cuda/executor/executor.h"
#include "tests/cuda/fake/fake_cuda.h"

namespace mx::cuda_on_host::host {

void launch(void* stream, Index3 grid, Index3 block, size_t shared_bytes, std::function<void()> body) {
  if (stream == nullptr) return run(grid, block, shared_bytes, body);
  static std::atomic<uint64_t> launches{0};
  const test::ExecutorOptions options{test::ThreadOrder::shuffled, ++launches};
  fake_cuda::launch(nullptr, dim3(grid.x, grid.y, grid.z), dim3(block.x, block.y, block.z), shared_bytes,
                    static_cast<cudaStream_t>(stream), [=, body = std::move(body)] {
                      test::executor_options() = options;
                      run(grid, block, shared_bytes, body);
                      return true;
                    });
}

}  // namespace mx::cuda_on_host::host
