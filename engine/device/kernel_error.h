// Errors that a kernel finds in the values of its arrays: an index out of range, a label that is no class.
//
// A kernel of a GPU cannot throw. It notes the value in a word that host and device see, and goes on with
// some value that touches no memory beyond its arrays. The host looks at the word when the work has ended;
// then the error belongs to the operation as if its task had thrown it.
//
// Thread-safety: watch() is called by the thread that runs the task; the function that it got runs on any
// thread.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>

namespace mx {

/// Of the bad values that the kernels of one task have noted, the one with the smallest place. All members
/// are 0 at first. Kernels change it through note_error() (ndarray/cuda/kernel_errors.cuh).
struct KernelError {
  int32_t lock = 0;  ///< taken by the thread that changes the others
  int32_t found = 0;
  int64_t place = 0;  ///< the kernel's choice, for instance the number of the element in row-major order
  int64_t value = 0;  ///< an integer, or the bits of a double
  int64_t other = 0;  ///< a second integer, if the message has one
};

/// Implemented by the streams of a backend whose tasks only start the work, in addition to Stream.
class KernelErrors {
 public:
  virtual ~KernelErrors() = default;

  /// Makes an exception from what a kernel has noted. Called at most once for each launch, on any thread. The
  /// arrays of the task may have been freed by then.
  using Describe = std::function<std::exception_ptr(const KernelError&)>;

  /// Returns a word for the kernels that the running task is about to start on this stream. What they note is
  /// an error of the task: it fails the next recorded event, callbacks that follow, and synchronize(). In a
  /// capture, it does so for each launch of the graph. If a graph is launched again before the error of the
  /// earlier launch has been observed, both launches may report it.
  /// Throws DeviceError if there is no memory. Precondition: called from a task of the stream.
  virtual KernelError* watch(Describe describe) = 0;
};

}  // namespace mx
