#include "operators/cuda/convolution_cudnn.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <optional>
#include <utility>

#include "ndarray/cuda/element.cuh"
#include "operators/cuda/operand.h"
#include "operators/matmul.h"

namespace mx::cuda {
namespace {

using mx::detail::ConvolutionSizes;

constexpr int kBiasThreads = 256;
constexpr int32_t kEnoughAlignment = 16;  // bytes; no engine asks for more

/// result[outer, channel, inner] += bias[channel], for contiguous elements.
template <class A>
__global__ void add_to_channels(Elements result, Elements bias, int64_t channels, int64_t inner, int64_t n) {
  for (int64_t at = global_index(); at < n; at += global_size())
    store(result, at, load<A>(result, at) + load<A>(bias, at / inner % channels));
}

/// (images, spatial..., channels) of (images, channels, spatial...), over the same memory.
Tensor channels_last(const Tensor& t) {
  Tensor view = t;
  const int last = t.rank() - 1;
  for (int i = 1; i < last; ++i) {
    view.shape[i] = t.shape[i + 1];
    view.strides[i] = t.strides[i + 1];
  }
  view.shape[last] = t.shape[1];
  view.strides[last] = t.strides[1];
  return view;
}

int32_t bytes_of_alignment(const Tensor& t) {
  if (!t.contiguous()) return kEnoughAlignment;  // of the copy
  int32_t alignment = kEnoughAlignment;
  while (reinterpret_cast<uintptr_t>(t.data) % static_cast<uintptr_t>(alignment) != 0) alignment /= 2;
  return alignment;
}

/// The problem, without layout and alignment. None if cuDNN does not compute it: its sizes are 32-bit numbers
/// in places, it needs elements, and paddings are not negative.
std::optional<CudnnProblem> problem_of(ConvolutionPart part, const ConvolutionSizes& sizes, const Tensor& x,
                                       const Tensor& weight, const Tensor& y) {
  CudnnProblem p;
  p.part = part;
  p.dtype = x.dtype;
  p.axes = std::max(2, sizes.axes);
  const std::array<std::pair<const Tensor*, std::array<int64_t, 5>*>, 3> arrays = {
      {{&x, &p.x}, {&weight, &p.weight}, {&y, &p.y}}};
  const int skipped = p.axes - sizes.axes;  // one axis becomes the second of two, the first has one element
  for (const auto& [tensor, to] : arrays) {
    if (tensor->numel() == 0 || tensor->numel() > INT32_MAX) return std::nullopt;
    to->fill(1);
    (*to)[0] = tensor->shape[0];
    (*to)[1] = tensor->shape[1];
    for (int a = 0; a < sizes.axes; ++a) (*to)[static_cast<size_t>(2 + skipped + a)] = tensor->shape[2 + a];
  }
  p.stride.fill(1);
  p.dilation.fill(1);
  for (int a = 0; a < sizes.axes; ++a) {
    const auto at = static_cast<size_t>(skipped + a);
    p.stride[at] = sizes.stride[a];
    p.dilation[at] = sizes.dilation[a];
    p.before[at] = sizes.padding[a];
    // A transposed convolution with a large output padding, and its gradients, have fewer positions than the
    // padding on both sides would give.
    const int64_t last_read = (y.shape[2 + a] - 1) * sizes.stride[a] +
                              sizes.dilation[a] * (weight.shape[2 + a] - 1) - sizes.padding[a];
    const int64_t most = last_read + sizes.stride[a] - x.shape[2 + a];
    p.after[at] = std::min(sizes.padding[a], most);
    if (p.after[at] < 0 || last_read >= x.shape[2 + a] + p.after[at]) return std::nullopt;
  }
  return p;
}

}  // namespace

bool convolve_by_cudnn(const KernelArgs& args, ConvolutionPart part, const ConvolutionSizes& sizes,
                       const Tensor& x, const Tensor& weight, const Tensor& y, const Tensor* bias) {
  if (!cudnn_is_usable()) return false;
  std::optional<CudnnProblem> problem = problem_of(part, sizes, x, weight, y);
  if (!problem) return false;
  problem->channels_last =
      !(x.contiguous() && y.contiguous()) && channels_last(x).contiguous() && channels_last(y).contiguous();
  std::array<Tensor, 3> arrays = {x, weight, y};
  for (size_t i = 0; i < 3; ++i) {
    if (problem->channels_last) arrays[i] = channels_last(arrays[i]);
    problem->alignment[i] = bytes_of_alignment(arrays[i]);
  }
  problem->device = args.device == nullptr ? 0 : args.device->device().context().id;
  problem->tf32 = x.dtype == DType::f32 && tf32();
  problem->with_bias = bias != nullptr;
  std::shared_ptr<CudnnPlan> plan = cudnn_plan(*problem);
  bool is_added = false;
  if (plan == nullptr && bias != nullptr && (x.dtype == DType::f32 || x.dtype == DType::f64)) {
    // Few engines add a bias. f16 and bf16 would be rounded before and after the sum.
    is_added = true;
    problem->with_bias = false;
    plan = cudnn_plan(*problem);
  }
  if (plan == nullptr) return false;

  const size_t computed = part == ConvolutionPart::x ? 0 : part == ConvolutionPart::weight ? 1 : 2;
  std::array<std::optional<Operand>, 3> operands;
  std::array<void*, 3> data{};
  const Result result(args, arrays[computed], x.dtype);
  for (size_t i = 0; i < 3; ++i)
    data[i] = i == computed ? result->data
                            : operands[i].emplace(args, arrays[i], x.dtype, !arrays[i].contiguous())->data;
  std::optional<Operand> numbers;
  if (bias != nullptr) numbers.emplace(args, *bias, x.dtype, !bias->contiguous());
  if (!run_cudnn(args, plan, {data[0], data[1], data[2], problem->with_bias ? (*numbers)->data : nullptr}))
    return false;
  if (is_added) {
    const int64_t n = result->numel(), channels = bias->shape[0],
                  inner = problem->channels_last ? 1 : n / (result->shape[0] * channels);
    visit_real(x.dtype, [&]<class A>() {
      launch(stream_of(args), blocks_for(n, kBiasThreads, 1 << 16), kBiasThreads, 0, add_to_channels<A>,
             Elements{result->data, x.dtype}, Elements{(*numbers)->data, x.dtype}, channels, inner, n);
    });
  }
  result.store(args);
  return true;
}

}  // namespace mx::cuda
