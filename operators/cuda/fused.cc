// Launches fused kernels (operators/fused.h): from this process's memory, from the cache on disk, or compiled
// now.
#include <algorithm>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <utility>

#include "engine/base/check.h"
#include "engine/device/cuda/cuda_driver.h"
#include "engine/device/cuda/cuda_error.h"
#include "ndarray/launch.h"
#include "operators/cuda/fused.h"
#include "operators/cuda/image_cache.h"
#include "operators/cuda/nvrtc.h"
#include "operators/fused_attrs.h"

namespace mx::cuda {
namespace {

using mx::detail::FusedKernelArgs;
using mx::detail::FusedOperand;

constexpr unsigned kThreads = 256;
constexpr int64_t kMostBlocks = 1 << 16;

void check_driver(CUresult result, const char* call) {
  if (result != CUDA_SUCCESS)
    throw DeviceError(
        mx::detail::concat("[fused] expected success of ", call, ", got error ", static_cast<int>(result)));
}

int current_architecture() {
  int device = 0, major = 0, minor = 0;
  MX_CUDA(cudaGetDevice(&device));
  MX_CUDA(cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device));
  MX_CUDA(cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device));
  return major * 10 + minor;
}

CUkernel load(const std::string& image) {
  const CudaDriver& driver = cuda_driver();
  if (driver.library_load == nullptr || driver.library_kernel == nullptr || driver.launch_kernel == nullptr)
    throw DeviceError(
        "[fused] expected a CUDA driver of version 12 or newer, got one without cuLibraryLoadData");
  CUlibrary library = nullptr;
  check_driver(driver.library_load(&library, image.data(), nullptr, nullptr, 0, nullptr, nullptr, 0),
               "cuLibraryLoadData");
  CUkernel kernel = nullptr;
  check_driver(driver.library_kernel(&kernel, library, "mx_fused"), "cuLibraryGetKernel");
  return kernel;  // the library stays loaded
}

CUkernel make_kernel(const std::string& source, int architecture) {
  const std::string folder = image_folder();
  const std::string key = mx::detail::concat("sm_", architecture, '\n', compiler_identity(), '\n', source);
  if (const std::optional<std::string> image = cached_image(folder, key)) {
    try {
      return load(*image);
    } catch (const DeviceError&) {  // not machine code for this driver: compile it again
    }
  }
  const std::string image = compile(source, architecture);
  const CUkernel kernel = load(image);
  cache_image(folder, key, image);
  return kernel;
}

// Kernels of a library serve all devices of the architecture. Nothing is unloaded.
CUkernel kernel_of(const mx::detail::FusedProgram& program, int architecture) {
  mx::detail::FusedKernelSlot& slot = program.kernel;
  if (slot.architecture.load(std::memory_order_acquire) == architecture)
    return static_cast<CUkernel>(slot.kernel.load(std::memory_order_relaxed));
  static std::mutex& mutex = *new std::mutex;
  static auto& loaded = *new std::map<std::pair<int, std::string>, CUkernel>;
  const std::lock_guard lock(mutex);  // also while it compiles, so that no two threads do the same work
  CUkernel& kernel = loaded[{architecture, program.source}];
  if (kernel == nullptr) {
    // The thread may be capturing a graph; loading code does not touch its stream.
    const CaptureExempt exempt;
    kernel = make_kernel(program.source, architecture);
  }
  if (slot.architecture.load(std::memory_order_relaxed) == 0) {
    slot.kernel.store(kernel, std::memory_order_relaxed);
    slot.architecture.store(architecture, std::memory_order_release);
  }
  return kernel;
}

// Removes dimensions of one element, and joins those that every operand goes through as if they were one.
void collapse(FusedKernelArgs& args, size_t inputs) {
  int rank = 0;
  const auto each = [&](const auto& f) {
    f(args.out);
    for (size_t k = 0; k < inputs; ++k) f(args.in[k]);
  };
  for (int d = 0; d < args.rank; ++d) {
    if (args.shape[d] == 1) continue;
    bool joins = rank > 0;
    each(
        [&](const FusedOperand& o) { joins = joins && o.strides[rank - 1] == o.strides[d] * args.shape[d]; });
    const int to = joins ? rank - 1 : rank;
    args.shape[to] = joins ? args.shape[to] * args.shape[d] : args.shape[d];
    each([&](FusedOperand& o) { o.strides[to] = o.strides[d]; });
    rank = to + 1;
  }
  if (rank == 0) {
    args.shape[0] = 1;
    each([](FusedOperand& o) { o.strides[0] = 0; });
    args.out.strides[0] = 1;
    rank = 1;
  }
  args.rank = rank;
}

FusedOperand operand(const Tensor& x, const Shape& shape) {
  FusedOperand made{x.data, {}};
  const Tensor wide = x.broadcast(shape);
  for (int d = 0; d < shape.rank(); ++d) made.strides[d] = wide.strides[d];
  return made;
}

FusedKernelArgs arguments(const KernelArgs& args) {
  const Tensor& out = args.out[0];
  FusedKernelArgs made{};
  made.out = operand(out, out.shape);
  for (size_t k = 0; k < args.in.size(); ++k) made.in[k] = operand(args.in[k], out.shape);
  made.rank = out.rank();
  made.numel = out.numel();
  for (int d = 0; d < out.rank(); ++d) made.shape[d] = out.shape[d];
  collapse(made, args.in.size());
  const auto is_aligned = [](const FusedOperand& o, const Tensor& t) {
    return o.strides[0] == 0 || reinterpret_cast<uintptr_t>(o.data) % (4 * size_of(t.dtype)) == 0;
  };
  made.flat = made.rank == 1 && made.out.strides[0] == 1;
  made.aligned = is_aligned(made.out, out);
  for (size_t k = 0; k < args.in.size(); ++k) {
    made.flat = made.flat && (made.in[k].strides[0] == 0 || made.in[k].strides[0] == 1);
    made.aligned = made.aligned && is_aligned(made.in[k], args.in[k]);
  }
  return made;
}

void run_fused(const KernelArgs& args) {
  FusedKernelArgs arguments_of_kernel = arguments(args);
  if (arguments_of_kernel.numel == 0) return;
  const CUkernel kernel = kernel_of(*args.attr<mx::detail::FusedAttrs>().program, current_architecture());
  const int64_t each = arguments_of_kernel.flat ? 4 : 1;
  const int64_t blocks = (arguments_of_kernel.numel + each * kThreads - 1) / (each * kThreads);
  void* parameters[] = {&arguments_of_kernel};
  check_driver(
      cuda_driver().launch_kernel(
          reinterpret_cast<CUfunction>(kernel), static_cast<unsigned>(std::min(blocks, kMostBlocks)), 1, 1,
          kThreads, 1, 1, 0, static_cast<CUstream>(args.device->native_stream()), parameters, nullptr),
      "cuLaunchKernel");
}

}  // namespace

KernelFn fused_kernel() { return run_fused; }

}  // namespace mx::cuda
