// Lets a program that knows nothing of the stand-in for CUDA compile fused kernels for the host.
#include "operators/cuda/nvrtc.h"
#include "tests/cuda/fused/expressions.h"

namespace mx::fake_cuda {
namespace {

const bool replaced = [] {
  cuda::replace_compiler(test::compile_on_host);
  return true;
}();

}  // namespace
}  // namespace mx::fake_cuda
