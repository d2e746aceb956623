// For builds without the headers of cuDNN.
#include "engine/base/error.h"
#include "operators/cuda/cudnn_plan.h"

namespace mx::cuda {

class CudnnPlan {};

bool cudnn_is_usable() { return false; }
std::shared_ptr<CudnnPlan> cudnn_plan(const CudnnProblem&) { return nullptr; }
bool run_cudnn(const KernelArgs&, const std::shared_ptr<CudnnPlan>&, const CudnnOperands&) { return false; }
int64_t cudnn_executions() { return 0; }
std::string cudnn_device_json(int) {
  throw DeviceError("[cuDNN] expected a build with cuDNN, got one without its headers");
}

}  // namespace mx::cuda
