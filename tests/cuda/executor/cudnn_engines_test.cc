// The engines that are chosen from the heuristics of the real cuDNN for GPUs that are only described: for the
// convolutions of known networks there is one, it keeps the rules of operators/cuda/cudnn_plan.h, and the
// library can make a plan with it.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include "operators/convolution.h"
#include "operators/cuda/cudnn_plan.h"
#include "tests/cuda/executor/cudnn_case.h"

namespace mx::test {
namespace {

using cuda::ConvolutionPart;
using cuda::CudnnProblem;

constexpr int kTensorCore = 0, kStrictNan = 9;   // numerical notes of the library
constexpr int kNativeGraphs = 3, kCublasLt = 4;  // its notes about behavior

struct Layer {
  const char* where;
  std::array<int64_t, 5> x, weight;
  std::array<int64_t, 3> padding, stride;
  int32_t axes = 2;
  std::array<int64_t, 3> dilation{1, 1, 1};
};

const Layer kLayers[] = {
    {"LeNet", {64, 1, 28, 28}, {6, 1, 5, 5}, {2, 2}, {1, 1}},
    {"ResNet-50, first", {32, 3, 224, 224}, {64, 3, 7, 7}, {3, 3}, {2, 2}},
    {"ResNet-50, 3x3", {32, 64, 56, 56}, {64, 64, 3, 3}, {1, 1}, {1, 1}},
    {"ResNet-50, 1x1", {32, 256, 56, 56}, {512, 256, 1, 1}, {0, 0}, {2, 2}},
    {"ResNet-50, last", {32, 512, 7, 7}, {2048, 512, 1, 1}, {0, 0}, {1, 1}},
    {"ResNeXt, groups", {32, 128, 56, 56}, {128, 4, 3, 3}, {1, 1}, {1, 1}},
    {"MobileNet, depthwise", {32, 96, 112, 112}, {96, 1, 3, 3}, {1, 1}, {2, 2}},
    {"DeepLab, dilated", {4, 256, 33, 33}, {256, 256, 3, 3}, {6, 6}, {1, 1}, 2, {6, 6, 1}},
    {"speech, one axis", {16, 80, 1, 3000}, {384, 80, 1, 3}, {0, 1}, {1, 1}},
    {"video, three axes", {4, 64, 8, 56, 56}, {64, 64, 3, 3, 3}, {1, 1, 1}, {1, 1, 1}, 3},
};

CudnnProblem problem_of(const Layer& layer, ConvolutionPart part, DType type) {
  CudnnProblem p;
  p.part = part;
  p.dtype = type;
  p.axes = layer.axes;
  p.x = layer.x;
  p.weight = layer.weight;
  p.y = {layer.x[0], layer.weight[0], 0, 0, 0};
  p.before = p.after = layer.padding;
  p.stride = layer.stride;
  p.dilation = layer.dilation;
  p.alignment = {16, 16, 16};
  for (size_t a = 0; a < static_cast<size_t>(p.axes); ++a)
    p.y[2 + a] = (p.x[2 + a] + 2 * p.before[a] - p.dilation[a] * (p.weight[2 + a] - 1) - 1) / p.stride[a] + 1;
  return p;
}

std::string name_of(const CudnnProblem& p, const Layer& layer) {
  return detail::concat(layer.where, ", ", to_string(p.dtype), ", part ", static_cast<int>(p.part),
                        p.with_bias ? ", bias" : "", p.channels_last ? ", channels last" : "");
}

class CudnnEngines : public WithFakeCudnn {
 protected:
  /// Calls f(problem, name) for the layers in all types and layouts.
  template <class F>
  static void for_each_problem(const F& f) {
    for (const Layer& layer : kLayers)
      for (const DType type : {f32, f64, f16, bf16})
        for (const ConvolutionPart part : {ConvolutionPart::y, ConvolutionPart::x, ConvolutionPart::weight})
          for (const bool last : {false, true})
            for (const bool with_bias : {false, true}) {
              if (with_bias && part != ConvolutionPart::y) continue;
              CudnnProblem p = problem_of(layer, part, type);
              p.channels_last = last;
              p.with_bias = with_bias;
              f(p, name_of(p, layer));
            }
  }
  static std::vector<int> others(std::vector<int> notes, const std::vector<int>& allowed) {
    std::erase_if(notes,
                  [&](int note) { return std::find(allowed.begin(), allowed.end(), note) != allowed.end(); });
    return notes;
  }
  /// The engine for a problem. Each call is for another device, so nothing is remembered.
  static FakeEngine engine_of(CudnnProblem p) {
    static int32_t devices = 100;
    p.device = devices++;
    return cuda::cudnn_plan(p) == nullptr ? FakeEngine{} : last_planned_engine();
  }
};

TEST_F(CudnnEngines, LayersOfNetworksHaveEnginesThatKeepTheRules) {
  for (const FakeGpu gpu : {FakeGpu::a100, FakeGpu::h200, FakeGpu::b200}) {
    fake_cudnn().gpu = gpu;
    if (kSlow && gpu != FakeGpu::h200) continue;
    for_each_problem([&](const CudnnProblem& p, const std::string& name) {
      SCOPED_TRACE(detail::concat("GPU ", static_cast<int>(gpu), ": ", name));
      const FakeEngine engine = engine_of(p);
      ASSERT_GE(engine.number, 0) << "no engine";
      std::vector<int> allowed = {kStrictNan};
      if (p.dtype != f32) allowed.push_back(kTensorCore);
      EXPECT_EQ(std::vector<int>{}, others(engine.numerical_notes, allowed));
      EXPECT_EQ(std::vector<int>{}, others(engine.behavior_notes, {kNativeGraphs, kCublasLt}));
      EXPECT_LE(engine.workspace, int64_t{1} << 30);
    });
    if (HasFatalFailure()) return;
  }
}

TEST_F(CudnnEngines, AnEngineIsChosenTheSameWayEachTime) {
  for_each_problem([&](const CudnnProblem& p, const std::string& name) {
    SCOPED_TRACE(name);
    if (p.with_bias) return;
    EXPECT_EQ(engine_of(p), engine_of(p));
  });
}

// The library's own switch shows which engines use TF32. It reads the variable once, so another process has
// it.
TEST_F(CudnnEngines, F32UsesTf32OnlyIfItMay) {
  const bool is_forbidden = std::getenv("NVIDIA_TF32_OVERRIDE") != nullptr;
  std::string without;
  int with = 0, problems = 0;
  for_each_problem([&](CudnnProblem p, const std::string& name) {
    SCOPED_TRACE(name);
    if (p.dtype != f32) return;
    ++problems;
    const FakeEngine plain = engine_of(p);
    p.tf32 = true;
    const FakeEngine engine = engine_of(p);
    if (engine != plain) ++with;
    EXPECT_EQ(std::vector<int>{}, others(engine.numerical_notes, {kStrictNan, kTensorCore}));
    without += detail::concat("engine of ", name, ": ", is_forbidden ? engine.number : plain.number, '\n');
  });
  if (is_forbidden) {
    std::cout << without << std::flush;
    return;
  }
  EXPECT_GT(with, problems / 2);
  const std::string other =
      "NVIDIA_TF32_OVERRIDE=0 exec /proc/$PPID/exe --gtest_filter=CudnnEngines.F32UsesTf32OnlyIfItMay";
  std::string forbidden;
  std::FILE* const pipe = popen(other.c_str(), "r");
  ASSERT_NE(nullptr, pipe);
  std::array<char, 256> line{};
  while (std::fgets(line.data(), static_cast<int>(line.size()), pipe) != nullptr)
    if (std::string_view(line.data()).starts_with("engine of ")) forbidden += line.data();
  EXPECT_EQ(0, pclose(pipe));
  EXPECT_EQ(without, forbidden);
}

TEST_F(CudnnEngines, TheOptionForTf32SaysIfItMay) {
  const std::vector<NDArray> inputs = {numbers({1, 512, 4, 4}), numbers({128, 512, 1, 1})};
  for (const bool allowed : {true, false}) {
    set_tf32(allowed);
    const int64_t plans = fake_cudnn().plans;
    const std::vector<NDArray> got = call(on_host(*find_operator("convolution")), ConvolutionAttrs{}, inputs);
    expect_close(convolution(inputs[0], inputs[1]), got[0], f32);
    ASSERT_GT(fake_cudnn().plans, plans);
    const std::vector<int> notes = last_planned_engine().numerical_notes;
    EXPECT_EQ(allowed ? 1 : 0, std::count(notes.begin(), notes.end(), kTensorCore));
  }
}

TEST_F(CudnnEngines, ProblemsThatTheLibraryFindsWrongHaveNone) {
  CudnnProblem p = problem_of(kLayers[0], ConvolutionPart::y, f32);
  p.y[2] += 1;
  EXPECT_EQ(-1, engine_of(p).number);
}

TEST_F(CudnnEngines, NoDescriptorIsLeftBehind) {
  // The cache drops all plans when it has the plans of 1024 problems.
  const int64_t before = fake_cudnn().descriptors;
  for (int i = 0; i < 3; ++i) {
    CudnnProblem wrong = problem_of(kLayers[0], ConvolutionPart::y, f32);
    wrong.y[2] += 1;
    (void)engine_of(wrong);
    fake_cudnn().no_engines = true;
    (void)engine_of(problem_of(kLayers[0], ConvolutionPart::x, f64));
    fake_cudnn().no_engines = false;
  }
  EXPECT_EQ(before, fake_cudnn().descriptors);
}

}  // namespace
}  // namespace mx::test
