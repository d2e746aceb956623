// Tests of convolutions by cuDNN over a fake of its device half.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "operators/cuda/convolution.h"
#include "operators/matmul.h"
#include "tests/cuda/executor/fake_cudnn.h"
#include "tests/cuda/executor/kernel_cases.h"

namespace mx::test {

/// Skips if cuDNN is not installed. Every test begins and ends with the fake's usual behaviour.
class WithFakeCudnn : public SizesTest {
 protected:
  void SetUp() override {
    static const std::string problem = install_fake_cudnn();
    if (!problem.empty()) GTEST_SKIP() << problem;
    reset();
    cuda::set_convolution_method(cuda::ConvolutionMethod::cudnn);
  }
  void TearDown() override {
    reset();
    cuda::set_convolution_method(cuda::ConvolutionMethod::automatic);
    set_tf32(false);
  }
  static void reset() {
    FakeCudnn& fake = fake_cudnn();
    fake.gpu = FakeGpu::h200;
    fake.no_handles = fake.no_engines = fake.refuse_execution = fake.fail_execution = false;
  }
};

}  // namespace mx::test
