// Convolutions on a GPU by cuDNN and by own kernels: the CPU's results, the same bits at each run, in graphs
// too. Skips itself without a GPU, and with MX_CUDNN=0 what cuDNN would compute.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "operators/convolution.h"
#include "operators/cuda/convolution.h"
#include "operators/cuda/cudnn_plan.h"
#include "operators/elementwise_binary.h"
#include "operators/random.h"
#include "tests/cuda/operators/compare.h"
#include "tests/operators/registry_support.h"

namespace mx::test {
namespace {

class CudnnOnGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (tested_device().kind != DeviceKind::gpu) GTEST_SKIP() << "there is no GPU";
  }
  void TearDown() override { cuda::set_convolution_method(cuda::ConvolutionMethod::automatic); }

  static NDArray numbers(const Shape& shape, DType type) { return Generator(7).normal(0, 1, shape).to(type); }
};

TEST_F(CudnnOnGpu, EveryMethodGivesTheResultsOfTheCpu) {
  for (const auto method :
       {cuda::ConvolutionMethod::cudnn, cuda::ConvolutionMethod::direct, cuda::ConvolutionMethod::products}) {
    cuda::set_convolution_method(method);
    const int64_t before = cuda::cudnn_executions();
    for (const char* name : {"convolution", "convolution_transpose", "convolution_weights"}) {
      const Operator& op = *find_operator(name);
      for (const Sample& sample : samples_of(op))
        for (const DType type : dtypes_of(op)) {
          const Sample typed = as_dtype(op, sample, type);
          SCOPED_TRACE(detail::concat("method ", static_cast<int>(method), ", ", label(op, typed)));
          std::vector<NDArray> moved;
          for (const NDArray& input : typed.inputs) moved.push_back(input.to(tested_device()));
          const NDArray expected = call(op, typed.attrs, typed.inputs)[0];
          EXPECT_EQ("", difference_of(expected, call(op, typed.attrs, moved)[0]));
        }
    }
    const int64_t executions = cuda::cudnn_executions() - before;
    if (method == cuda::ConvolutionMethod::cudnn && cuda::cudnn_is_usable()) {
      EXPECT_GT(executions, 40);
    } else {
      EXPECT_EQ(0, executions);
    }
  }
}

// Larger ones, for which other engines are chosen.
TEST_F(CudnnOnGpu, LayersOfANetworkRepeatBitForBit) {
  const Context device = tested_device();
  for (const DType type : {f32, bf16, f16}) {
    const NDArray x = numbers({2, 64, 14, 14}, type), w = numbers({96, 64, 3, 3}, type) * 0.05,
                  b = numbers({96}, type);
    const NDArray gx = x.to(device), gw = w.to(device), gb = b.to(device);
    const ConvolutionAttrs attrs{.stride = 2, .padding = 1};
    const NDArray y = convolution(x, w, b, attrs), gy = convolution(gx, gw, gb, attrs);
    EXPECT_EQ("", difference_of(y, gy)) << to_string(type);
    const auto all = [&] {
      const ConvolutionTransposeAttrs back{.stride = 2, .padding = 1, .output_padding = 1};
      const ConvolutionWeightsAttrs weights{.kernel = 3, .stride = 2, .padding = 1};
      return std::vector<Content>{content_of(convolution(gx, gw, gb, attrs).to(cpu())),
                                  content_of(convolution_transpose(gy, gw, back).to(cpu())),
                                  content_of(convolution_weights(gx, gy, weights).to(cpu()))};
    };
    const std::vector<Content> first = all();
    for (int i = 0; i < 5; ++i) EXPECT_EQ(first, all()) << to_string(type);
  }
}

TEST_F(CudnnOnGpu, ASegmentReplaysTheConvolution) {
  const Context device = tested_device();
  const NDArray x = numbers({4, 16, 14, 14}, f32), w = numbers({16, 16, 3, 3}, f32) * 0.1;
  const NDArray gx = x.to(device), gw = w.to(device);
  NDArray out = zeros(x.shape(), f32, device), twice = zeros(x.shape(), f32, device);
  const Operator& op = *find_operator("convolution");
  const ConvolutionAttrs attrs{.padding = 1};
  Segment segment = current_engine().record([&] {
    const NDArray once[] = {gx, gw};
    call_into(out, op, attrs, once);
    const NDArray again[] = {out, gw};
    call_into(twice, op, attrs, again);
  });
  const NDArray expected = convolution(convolution(x, w, attrs), w, attrs);
  for (int i = 0; i < 5; ++i) {  // without a graph, then as one
    twice.fill_(-1);
    segment.replay();
    EXPECT_EQ("", difference_of(expected, twice)) << "replay " << i;
  }
}

TEST_F(CudnnOnGpu, DescribesTheDevice) {
  if (!cuda::cudnn_is_usable()) GTEST_SKIP() << "cuDNN is off or not installed";
  const std::string json = cuda::cudnn_device_json(tested_device().id);
  EXPECT_EQ('{', json[0]);
  EXPECT_NE(std::string::npos, json.find("multiProcessorCount")) << json;
  // scripts/gpu_first.sh keeps it: plans for this GPU can then be made on machines without one.
  if (const char* const path = std::getenv("MX_CUDNN_DEVICE_JSON"); path != nullptr)
    std::ofstream(path) << json << '\n';
}

}  // namespace
}  // namespace mx::test
