// Convolutions by cuDNN: the choice of an engine for a problem, and its execution. Internal.
//
// An engine is the first one of the library's heuristics (mode A, then the fallback list) that
//   - gives the same bits at each run: no engine with the note "nondeterministic";
//   - adds up in the computing type, f32 or f64, in the usual way: no sums of reduced precision, no operands
//     converted to f16, no Winograd and Fourier transforms, whose errors are larger;
//   - computes f32 without TF32, unless the problem allows it: no tensor cores for f32;
//   - is not compiled while the program runs, which takes seconds;
//   - has a plan, with a workspace of a limited size.
// Some problems have none. A build without the headers of cuDNN has cudnn_stub.cc, which knows no plan.
//
// Plans are kept, and so is the knowledge that there is none. If there are too many, all are dropped; the
// engines that are used have no code of their own in a plan, so graphs that were captured stay valid.
// Workspace comes from Scratch at each call, so calls on several streams and replays of a graph share none.
// Everything may be called while a graph is captured.
//
// Thread-safety: any thread may call.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "ndarray/dtype.h"
#include "ndarray/launch.h"

namespace mx::cuda {

/// Which operand of y = convolution(x, weight) is computed from the others.
enum class ConvolutionPart : uint8_t { y, x, weight };

/// A convolution of 2 or 3 spatial axes, and everything on which the choice of an engine depends. All arrays
/// are dense: (images, channels, spatial...) in row-major order, or with the channels last. The number of
/// groups follows from the channels of x and of the weight.
struct CudnnProblem {
  ConvolutionPart part = ConvolutionPart::y;
  DType dtype = DType::f32;  ///< of all arrays
  bool tf32 = false;         ///< f32 operands may be rounded to TF32
  bool channels_last = false;
  bool with_bias = false;  ///< one number for each channel of the result is added; not for the weight
  int32_t device = 0;
  int32_t axes = 2;
  std::array<int64_t, 5> x{}, weight{}, y{};  ///< sizes: images, channels, and those of the spatial axes
  std::array<int64_t, 3> before{}, after{};   ///< zeros around x; not negative
  std::array<int64_t, 3> stride{}, dilation{};
  std::array<int32_t, 3> alignment{};  ///< bytes, of the addresses of x, weight and y; 16 is enough
  auto operator<=>(const CudnnProblem&) const = default;
};

/// The addresses of the arrays; bias is null for problems without.
struct CudnnOperands {
  void *x = nullptr, *weight = nullptr, *y = nullptr;
  const void* bias = nullptr;
};

class CudnnPlan;

/// Returns false if cuDNN is turned off (MX_CUDNN=0) or cannot be loaded. A reason is logged once.
bool cudnn_is_usable();

/// Returns null if there is no engine for the problem, or if cuDNN cannot be used. A reason is logged once.
/// Precondition: all sizes are 1 or more, and the problem's device is current.
std::shared_ptr<CudnnPlan> cudnn_plan(const CudnnProblem& problem);

/// Enqueues the convolution on the kernel's stream. Returns false if the library refuses; then nothing has
/// been enqueued, and later calls of cudnn_plan() return null. Throws DeviceError if the execution fails.
bool run_cudnn(const KernelArgs& args, const std::shared_ptr<CudnnPlan>& plan, const CudnnOperands& operands);

/// Returns how many convolutions cuDNN has computed in this process.
int64_t cudnn_executions();

/// Returns cuDNN's description of the current device as JSON, from which plans for it can be made on another
/// machine. Throws DeviceError if cuDNN cannot be used.
std::string cudnn_device_json(int device);

}  // namespace mx::cuda
