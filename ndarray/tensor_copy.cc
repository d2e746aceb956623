#include "ndarray/tensor_copy.h"

#include "ndarray/cuda_kernels.h"
#include "ndarray/detail/create_attrs.h"
#include "ndarray/kernels/copy.h"

namespace mx::detail {
namespace {

// Variables, because they are null in a build without CUDA, where no kernel has a stream.
const KernelFn kCopyOnGpu = cuda::copy, kFillOnGpu = cuda::fill;

}  // namespace

void copy_tensor(const KernelArgs& args, const Tensor& to, const Tensor& from) {
  if (args.stream == nullptr) return kernels::copy(to, from);
  kCopyOnGpu({{&from, 1}, {&to, 1}, nullptr, args.device, args.stream});
}

void fill_tensor(const KernelArgs& args, const Tensor& to, const Scalar& value) {
  if (args.stream == nullptr) return kernels::fill(to, value);
  const Attrs attrs = ConstantAttrs{value};
  kFillOnGpu({{}, {&to, 1}, &attrs, args.device, args.stream});
}

}  // namespace mx::detail
