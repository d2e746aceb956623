// What a kernel may ask for while it runs: memory for intermediate results, and resources that are made once.
//
//   void run(const KernelArgs& args) {
//     Scratch sums(args, bytes);                           // gone when run() returns
//     Handle& handle = kernel_resource<Handle>(args);      // the same one at the next call
//
// A kernel that needs a buffer of this thread alone, and calls nothing in between that may need one too, has
// kernels::thread_workspace (operators/kernels/workspace.h), which is cheaper.
#pragma once

#include <cstddef>
#include <map>

#include "engine/base/thread_kept.h"
#include "ndarray/launch.h"

namespace mx {

/// `bytes` bytes with any content, aligned to 64: of the host for kernels that run there (those of the CPU
/// and of virtual devices), else of the GPU, in the order of the kernel's stream. From the device's pool, so
/// that a steady state allocates nothing. May be used in parallel loops. Throws OutOfMemory.
class Scratch {
 public:
  Scratch(const KernelArgs& args, size_t bytes);
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void* data() const { return data_; }
  template <class T>
  T* as() const {
    return static_cast<T*>(data_);
  }

 private:
  Device& device_;
  Stream* stream_;
  void* data_;
};

/// A library's handle, a plan, a table: one T for each thread, and on a GPU for each of its streams, made at
/// the first use, as T(args) if it can be made so, else as T(). It lives as long as the thread.
template <class T>
T& kernel_resource(const KernelArgs& args) {
  // Per thread, so that nobody shares one: most libraries do not let two threads use a handle at once.
  std::map<void*, T>& made = detail::thread_kept<std::map<void*, T>, T>();
  void* const key = args.stream == nullptr ? nullptr : args.device->native_stream();
  const auto found = made.find(key);
  if (found != made.end()) return found->second;
  if constexpr (requires { T(args); }) {
    return made.try_emplace(key, args).first->second;
  } else {
    return made.try_emplace(key).first->second;
  }
}

}  // namespace mx
