// The threads of a CUDA kernel on the host: the functions through which ndarray/cuda/kernel.cuh runs kernels
// that g++ has compiled. Only tests implement them (tests/cuda/executor/executor.cc), so no library of mxrun
// calls them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>

namespace mx::cuda::host {

/// As dim3 of CUDA.
struct Index3 {
  unsigned x, y, z;
  Index3(unsigned nx = 1, unsigned ny = 1, unsigned nz = 1) : x(nx), y(ny), z(nz) {}
};

/// The position of the running CUDA thread.
struct Place {
  Index3 thread, block, block_size, grid_size;
};
const Place& place();

/// The place of a call in the source of a kernel.
struct Site {
  const char* file = "";
  int line = 0;
  friend bool operator==(const Site& a, const Site& b) { return a.file == b.file && a.line == b.line; }
};

/// Runs `body` once for each thread of the grid. Returns when all have ended. Throws what a thread throws,
/// and KernelFault (executor.h) for what CUDA refuses or leaves undefined.
void run(Index3 grid, Index3 block, size_t shared_bytes, const std::function<void()>& body);

/// Starts a kernel on a stream: runs it at once if the stream is null, as it is for the CPU's kernels. A test
/// program defines it: launch_now.cc, or launch.cc of the stand-in for CUDA (tests/cuda/fake).
void launch(void* stream, Index3 grid, Index3 block, size_t shared_bytes, std::function<void()> body);

/// Waits for all threads of the block. A barrier whose threads come from several sites is a fault.
void barrier(Site site);

/// The operations of a warp. All threads of `lanes` must make the same call from the same site.
enum class Exchange : uint8_t { shuffle, shuffle_xor, shuffle_up, shuffle_down, ballot, sync };

/// Returns the value of the lane that `argument` selects, or the ballot. `sync` also orders memory accesses.
uint64_t exchange(Exchange kind, Site site, uint32_t lanes, uint64_t value, int argument);

/// Returns memory of the block for this key: the same for all its threads, filled with 0xFF (NaN).
void* static_shared(const void* key, size_t bytes, size_t alignment);
/// Returns the memory of the block whose size run() was given.
void* dynamic_shared();

/// Throws KernelFault unless the address is a multiple of `alignment`.
void check_aligned(const void* address, size_t alignment);

}  // namespace mx::cuda::host
