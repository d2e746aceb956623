#include "engine/base/check.h"
#include "engine/device/cuda/cuda_backend.h"
#include "engine/device/tool_range.h"

namespace mx {

int cuda_device_count() { return 0; }

CudaSupport find_cuda_support() { return {"", "", "this build has no CUDA"}; }

std::unique_ptr<Device> open_cuda_device(int id) {
  throw DeviceError(detail::concat("[gpu(", id, ")] expected a build with CUDA, got one without"));
}

bool tool_listens() noexcept { return false; }
void begin_tool_range(const char*) noexcept {}
void end_tool_range() noexcept {}

}  // namespace mx
