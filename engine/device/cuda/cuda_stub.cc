#include "engine/base/check.h"
#include "engine/device/cuda/cuda_backend.h"

namespace mx {

int cuda_device_count() { return 0; }

CudaSupport find_cuda_support() { return {"", "", "this build has no CUDA"}; }

std::unique_ptr<Device> open_cuda_device(int id) {
  throw DeviceError(detail::concat("[gpu(", id, ")] expected a build with CUDA, got one without"));
}

}  // namespace mx
