// Convolutions by cuDNN on the stand-in for CUDA: streams, devices, captures and replays. The tests of
// tests/cuda/operators/cudnn_gpu_test.cc run here too.
#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>
#include <vector>

#include "engine/engine.h"
#include "operators/convolution.h"
#include "operators/cuda/convolution.h"
#include "operators/cuda/cudnn_plan.h"
#include "operators/random.h"
#include "tests/cuda/executor/fake_cudnn.h"
#include "tests/cuda/fake/fake_cuda.h"
#include "tests/cuda/operators/compare.h"

namespace mx::test {
namespace {

class InstalledCudnn : public ::testing::Environment {
  void SetUp() override {
    const std::string problem = install_fake_cudnn();
    if (!problem.empty()) GTEST_SKIP() << problem;
    fake_cudnn().device_of = fake_cuda::device_of;
  }
};
[[maybe_unused]] ::testing::Environment* const installed =
    ::testing::AddGlobalTestEnvironment(new InstalledCudnn);

class CudnnOnFake : public ::testing::Test {
 protected:
  void TearDown() override { cuda::set_convolution_method(cuda::ConvolutionMethod::automatic); }
  static NDArray numbers(const Shape& shape, uint64_t seed = 7) {
    return Generator(seed).normal(0, 1, shape);
  }
};

TEST_F(CudnnOnFake, StreamsAndDevicesMayComputeAtTheSameTime) {
  const int64_t before = cuda::cudnn_executions();
  const NDArray w = numbers({6, 4, 3, 3});
  std::vector<NDArray> expected, got;
  constexpr int kCalls = 40;
  const NDArray weights[] = {w.to(gpu(0)), w.to(gpu(1))};
  for (int i = 0; i < kCalls; ++i) {
    const NDArray x = numbers({1, 4, 7, 7}, static_cast<uint64_t>(i));
    expected.push_back(convolution(convolution(x, w, {.padding = 1}), numbers({2, 6, 3, 3})));
  }
  const NDArray last = numbers({2, 6, 3, 3}), lasts[] = {last.to(gpu(0)), last.to(gpu(1))};
  std::vector<std::thread> threads;
  got.resize(kCalls);
  for (int t = 0; t < 2; ++t)
    threads.emplace_back([&, t] {
      for (int i = t; i < kCalls; i += 2) {
        const int device = i / 2 % 2;
        const NDArray x = numbers({1, 4, 7, 7}, static_cast<uint64_t>(i)).to(gpu(device));
        got[static_cast<size_t>(i)] =
            convolution(convolution(x, weights[device], {.padding = 1}), lasts[device]);
      }
    });
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < kCalls; ++i) EXPECT_EQ("", difference_of(expected[i], got[i])) << "call " << i;
  EXPECT_EQ(before + 2 * kCalls, cuda::cudnn_executions());
}

/// Two convolutions, one after the other, in a segment of a GPU. Their engine needs workspace.
struct Chain {
  NDArray x = Generator(3).normal(0, 1, {1, 16, 6, 6}).to(bf16),
          w = Generator(4).normal(0, 0.2, {16, 16, 3, 3}).to(bf16);
  NDArray expected = convolution(convolution(x, w, {.padding = 1}), w, {.padding = 1});
  NDArray gx = x.to(gpu(0)), gw = w.to(gpu(0));
  NDArray middle = zeros(x.shape(), bf16, gpu(0)), out = zeros(x.shape(), bf16, gpu(0));
  Segment segment = current_engine().record([this] {
    const Operator& op = *find_operator("convolution");
    const NDArray first[] = {gx, gw};
    call_into(middle, op, ConvolutionAttrs{.padding = 1}, first);
    const NDArray second[] = {middle, gw};
    call_into(out, op, ConvolutionAttrs{.padding = 1}, second);
  });

  void replay() {
    out.fill_(-1);
    segment.replay();
    EXPECT_EQ("", difference_of(expected, out));
  }
};

// Where the library makes handles and plans, the fake allocates as the library may.
TEST_F(CudnnOnFake, APlanMayBeMadeDuringACapture) {
  Chain chain;
  const int64_t before = cuda::cudnn_executions();
  // The first replay runs without a graph, here by own kernels. The second one captures.
  cuda::set_convolution_method(cuda::ConvolutionMethod::direct);
  chain.replay();
  EXPECT_EQ(before, cuda::cudnn_executions());
  cuda::set_convolution_method(cuda::ConvolutionMethod::cudnn);
  chain.replay();
  EXPECT_EQ(before + 2, cuda::cudnn_executions());
  for (int i = 0; i < 5; ++i) chain.replay();
  EXPECT_EQ(before + 2, cuda::cudnn_executions()) << "a launch of a graph calls the library";
}

// In a process whose first call of cuDNN is in a capture.
TEST_F(CudnnOnFake, TheHandleMayBeMadeDuringACapture) {
  EXPECT_EQ(0, std::system("exec /proc/$PPID/exe --gtest_brief=1 "
                           "--gtest_filter=CudnnOnFake.APlanMayBeMadeDuringACapture"));
}

TEST_F(CudnnOnFake, ACaptureMakesNoHandle) {
  Chain chain;
  chain.replay();
  const int64_t handles = fake_cudnn().handles, plans = fake_cudnn().plans;
  for (int i = 0; i < 3; ++i) chain.replay();
  EXPECT_EQ(handles, fake_cudnn().handles);
  EXPECT_EQ(plans, fake_cudnn().plans);
}

// The fake fails if two executions have one workspace at the same time.
TEST_F(CudnnOnFake, GraphsAndCallsShareNoWorkspace) {
  const int64_t before = fake_cudnn().with_workspace;
  Chain first, second;
  for (int i = 0; i < 3; ++i) {
    first.replay();
    second.replay();
  }
  const NDArray x = first.x.to(gpu(0));
  std::vector<NDArray> results;
  for (int i = 0; i < 20; ++i) {
    first.segment.replay();
    second.segment.replay();
    results.push_back(convolution(convolution(x, first.gw, {.padding = 1}), first.gw, {.padding = 1}));
  }
  for (const NDArray& result : results) EXPECT_EQ("", difference_of(first.expected, result));
  EXPECT_EQ("", difference_of(first.expected, first.out));
  EXPECT_EQ("", difference_of(second.expected, second.out));
  EXPECT_GE(fake_cudnn().with_workspace, before + 40) << "nothing was shown";
}

TEST_F(CudnnOnFake, AGraphOutlivesThePlansThatAreKept) {
  Chain chain;
  for (int i = 0; i < 3; ++i) chain.replay();
  fake_cudnn().no_engines = true;
  for (int64_t n = 1; n < 1100; ++n) {
    cuda::CudnnProblem p{.device = 9,
                         .x = {n, 1, 1, 1},
                         .weight = {1, 1, 1, 1},
                         .y = {n, 1, 1, 1},
                         .stride = {1, 1},
                         .dilation = {1, 1},
                         .alignment = {16, 16, 16}};
    EXPECT_EQ(nullptr, cuda::cudnn_plan(p));
  }
  fake_cudnn().no_engines = false;
  for (int i = 0; i < 3; ++i) chain.replay();
}

TEST_F(CudnnOnFake, AFailureIsAnErrorOfTheOperation) {
  const NDArray x = numbers({1, 3, 9, 9}).to(gpu(0)), w = numbers({4, 3, 2, 2}).to(gpu(0));
  fake_cudnn().fail_execution = true;
  const NDArray y = convolution(x, w);
  EXPECT_THROW(y.wait(), DeviceError);
  fake_cudnn().fail_execution = false;
  EXPECT_EQ("", difference_of(convolution(x.to(cpu()), w.to(cpu())), convolution(x, w)));
}

}  // namespace
}  // namespace mx::test
