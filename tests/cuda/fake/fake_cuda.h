// A stand-in for the CUDA runtime on a machine without a GPU. A test program that compiles these sources into
// itself gets them in place of the runtime library, because the linker finds them first.
//
// Two devices (or more) have memory, streams, events, pools, captures and graphs. Device memory is memory of
// the host. One thread, the scheduler, runs the work of all streams, in a random order that the rules of
// streams and events allow. So a missing wait soon gives a wrong result. The seed determines the choices,
// but not how far the program has come meanwhile.
//
// The rules come from NVIDIA's documentation and from tests/cuda/facts, which run on this stand-in and on
// GPUs. Where the documentation calls something undefined (a copy whose kind does not fit its pointers, a
// destroyed event), the stand-in refuses it. Functions of the runtime that this project does not call are
// missing, so calling one is an error of the linker.
//
// Not shown: speed, the memory model, what the host reads of device memory without a copy, kernels that
// nvcc has compiled.
//
// Thread-safety: everything is safe from any thread.
#pragma once

#include <cuda_runtime_api.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace mx::fake_cuda {

struct Options {
  int devices = 2;
  size_t bytes = size_t{3} << 30;  ///< memory of a device
  uint64_t seed = 1;               ///< of the scheduler's order
  int most_delay = 3;              ///< rounds of the scheduler for which work may be held back
};

/// Sets the options; the number of devices counts only before the first call of CUDA. The environment
/// variable MX_FAKE_CUDA_SEED replaces the seed at the start.
void set_options(const Options& options);

/// A kernel. The scheduler calls it until it returns true; between the calls other work runs. A kernel that
/// waits for the host, or for other kernels, returns false meanwhile. A copy of the function is a new launch.
using Step = std::function<bool()>;

/// Thrown by a kernel: the code with which all calls of its device fail from then on.
struct Fault {
  cudaError_t code;
};

/// Throws the fault of a kernel that reads or writes here, unless all of it is memory of a device or
/// page-locked.
void check_access(const void* address, size_t bytes, size_t alignment);

/// Starts a kernel, as `kernel<<<grid, block, shared_bytes, stream>>>` does. Errors are left for
/// cudaGetLastError(). `function` stands for the kernel where CUDA asks for a function; with lazy loading its
/// first launch waits until the device is idle. Null: a kernel that is loaded.
void launch(const void* function, dim3 grid, dim3 block, size_t shared_bytes, cudaStream_t stream, Step step);

/// Lets the n-th allocation of device memory from now on fail (1: the next).
void fail_allocation(int device, int n);
/// Loses a device as a fault of a kernel would.
void lose(int device, cudaError_t code);
/// Returns the device of a stream; -1 for one that has been destroyed.
int device_of(cudaStream_t stream);
/// Returns whether a call has created the context of a device.
bool has_context(int device);
/// Returns whether kernels of a device may access the memory at this address: its own, or that of a device to
/// which it has peer access, if the memory's pool allows it.
bool may_access(int device, const void* address);
/// Returns whether the memory at this address is of a pool that a device may not access, not even as a peer.
bool is_pool_memory_closed_to(int device, const void* address);
/// Returns the priorities with which the kernels of the graph that was launched last run.
std::vector<int> graph_priorities();
/// Returns the text of the exception that a kernel threw last; empty if none did.
std::string fault_text();

}  // namespace mx::fake_cuda
