// Resources for a kernel while it runs: memory for intermediate results, and objects that are made once and
// reused.
//
//   void run(const KernelArgs& args) {
//     Scratch sums(args, bytes);                           // freed when run() returns
//     Handle& handle = kernel_resource<Handle>(args);      // the same one at the next call
//
// kernels::thread_workspace (operators/kernels/workspace.h) is cheaper. A kernel may use it for a buffer that
// only its own thread uses, if nothing that it calls meanwhile uses the workspace too.
#pragma once

#include <cstddef>
#include <map>

#include "engine/base/thread_kept.h"
#include "ndarray/launch.h"

namespace mx {

/// `bytes` bytes of uninitialized memory, aligned to 64 bytes. It is host memory for kernels of the CPU and
/// of virtual devices, and GPU memory in the order of the kernel's stream for kernels of a GPU. It comes from
/// the device's pool, so a steady state allocates nothing. May be used in parallel loops. Throws OutOfMemory.
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

/// Returns an object that is kept between calls, such as a library's handle, a plan or a table. There is one
/// T for each thread, and on a GPU one for each thread and stream. The first use makes it, as T(args) if T
/// has such a constructor, else as T(). It lives as long as the thread.
template <class T>
T& kernel_resource(const KernelArgs& args) {
  // One per thread, because most libraries do not allow two threads to use one handle at once.
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
