// The part of cuDNN that needs a GPU, for tests without one: handles and executions, over the descriptors,
// the heuristics and the plans of the real library, which makes them for a GPU that is only described. A
// convolution is computed in double on the host from what the descriptors say, so a wrong size, stride or
// attribute gives wrong numbers. What the library's documentation forbids is refused with a message.
//
// The descriptions of GPUs have the numbers of NVIDIA's data sheets. cuDNN writes such a description of a GPU
// that is there (cudnn_device_json() of operators/cuda/cudnn_plan.h).
#pragma once

#include <cuda_runtime_api.h>

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

namespace mx::test {

enum class FakeGpu : uint8_t { a100, h200, b200 };

struct FakeCudnn {
  // What the fake does.
  std::atomic<FakeGpu> gpu{FakeGpu::h200};
  std::atomic<bool> no_handles{false};  ///< creating a handle fails, as without a driver
  std::atomic<bool> no_engines{false};  ///< the heuristics find nothing
  std::atomic<bool> refuse_execution{false};
  std::atomic<bool> fail_execution{false};

  /// On the stand-in for CUDA: returns the device of a stream. A handle is then checked to be used on its
  /// own.
  int (*device_of)(cudaStream_t stream) = nullptr;

  // What has happened.
  std::atomic<int64_t> handles{0};   ///< created
  std::atomic<int64_t> searches{0};  ///< lists of engines that were asked for
  std::atomic<int64_t> plans{0};     ///< finalized by the real library
  std::atomic<int64_t> executions{0};
  std::atomic<int64_t> biases{0};          ///< executions that add a bias
  std::atomic<int64_t> with_workspace{0};  ///< executions that need workspace
  std::atomic<int64_t> uneven{0};          ///< executions with different paddings at the ends of an axis
  std::atomic<int64_t> descriptors{0};     ///< that exist
};

FakeCudnn& fake_cudnn();

/// The engine of the plan that was finalized last: its number and notes, as the library gives them.
struct FakeEngine {
  int64_t number = -1, workspace = -1;
  std::vector<int> numerical_notes, behavior_notes;
  bool operator==(const FakeEngine&) const = default;
};
FakeEngine last_planned_engine();

/// Makes the kernels use the fake from now on. Returns why not, if the library is not installed, or nothing.
std::string install_fake_cudnn();

}  // namespace mx::test
