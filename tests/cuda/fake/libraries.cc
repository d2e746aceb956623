// Libraries of kernels that are loaded while the program runs. Here, the machine code is a shared library of
// the host, with the kernel as a function of a thread:
//   extern "C" void kernel(const void* argument, int64_t thread, int64_t threads);
//   extern "C" const size_t kernel_argument_bytes = sizeof(argument);
#include <cuda.h>
#include <dlfcn.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "tests/cuda/fake/state.h"

namespace mx::fake_cuda {
namespace {

using KernelFunction = void (*)(const void*, int64_t, int64_t);

/// The size of a shared library whose section headers come last, as linkers write it; 0 if it is none.
size_t image_bytes(const void* code) {
  const auto* const bytes = static_cast<const unsigned char*>(code);
  if (std::memcmp(bytes, "\177ELF", 4) != 0) return 0;
  uint64_t headers = 0;
  uint16_t size = 0, count = 0;
  std::memcpy(&headers, bytes + 40, sizeof headers);
  std::memcpy(&size, bytes + 58, sizeof size);
  std::memcpy(&count, bytes + 60, sizeof count);
  return headers + size_t{size} * count;
}

CUresult library_load(CUlibrary* library, const void* code, CUjit_option*, void**, unsigned, CUlibraryOption*,
                      void**, unsigned) {
  const size_t bytes = image_bytes(code);
  if (bytes == 0) return CUDA_ERROR_INVALID_IMAGE;
  char path[] = "/tmp/mx_fake_kernel_XXXXXX";
  const int file = ::mkstemp(path);
  if (file < 0) return CUDA_ERROR_OPERATING_SYSTEM;
  const bool written = ::write(file, code, bytes) == static_cast<ssize_t>(bytes);
  ::close(file);
  void* const handle = written ? ::dlopen(path, RTLD_NOW | RTLD_LOCAL) : nullptr;
  ::unlink(path);
  if (handle == nullptr) return CUDA_ERROR_INVALID_IMAGE;
  *library = static_cast<CUlibrary>(handle);
  return CUDA_SUCCESS;
}

std::map<const void*, size_t>& argument_sizes() {
  static auto* const sizes = new std::map<const void*, size_t>;
  return *sizes;
}

// As machine code of a GPU does, the library knows the size of the argument: <name>_argument_bytes.
CUresult library_kernel(CUkernel* kernel, CUlibrary library, const char* name) {
  void* const function = ::dlsym(library, name);
  const void* const bytes = ::dlsym(library, (std::string(name) + "_argument_bytes").c_str());
  if (function == nullptr || bytes == nullptr) return CUDA_ERROR_NOT_FOUND;
  const Lock lock(state().mutex);
  argument_sizes()[function] = *static_cast<const size_t*>(bytes);
  *kernel = static_cast<CUkernel>(function);
  return CUDA_SUCCESS;
}

CUresult launch_kernel(CUfunction function, unsigned grid, unsigned, unsigned, unsigned block, unsigned,
                       unsigned, unsigned shared_bytes, CUstream stream, void** parameters, void**) {
  const auto run = reinterpret_cast<KernelFunction>(function);
  std::vector<unsigned char> argument;
  {
    const Lock lock(state().mutex);
    const auto known = argument_sizes().find(reinterpret_cast<const void*>(function));
    if (known == argument_sizes().end()) return CUDA_ERROR_INVALID_HANDLE;
    const auto* const from = static_cast<const unsigned char*>(parameters[0]);
    argument.assign(from, from + known->second);
  }
  const auto threads = static_cast<int64_t>(grid) * block;
  launch(nullptr, dim3(grid), dim3(block), shared_bytes, stream, [=, argument = std::move(argument)] {
    for (int64_t thread = 0; thread < threads; ++thread) run(argument.data(), thread, threads);
    return true;
  });
  return static_cast<CUresult>(cudaGetLastError());
}

}  // namespace

void* library_function(const char* name) {
  if (std::strcmp(name, "cuLibraryLoadData") == 0) return reinterpret_cast<void*>(&library_load);
  if (std::strcmp(name, "cuLibraryGetKernel") == 0) return reinterpret_cast<void*>(&library_kernel);
  return reinterpret_cast<void*>(&launch_kernel);
}

}  // namespace mx::fake_cuda
