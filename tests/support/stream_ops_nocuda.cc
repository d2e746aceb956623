// Replaces stream_ops_cuda.cu in builds without the CUDA toolkit.
#include "engine/base/error.h"
#include "tests/support/stream_ops.h"

namespace mx::test {

StreamOps& cuda_stream_ops() {
  throw DeviceError("[stream_ops] expected a build with CUDA, got one without");
}

}  // namespace mx::test
