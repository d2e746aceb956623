// A few steps of training on a GPU give the losses of the CPU.
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/segment.h"
#include "kvstore/kvstore.h"
#include "nn/nn.h"
#include "nn/trainer.h"
#include "operators/operators.h"
#include "optim/optimizers.h"
#include "tests/cuda/operators/compare.h"

namespace mx {
namespace {

using MakeNet = std::function<std::shared_ptr<nn::Sequential>()>;

/// Returns the losses of 8 steps on one batch whose classes are hidden in the images.
template <class Optimizer, class Options>
std::vector<double> losses_on(Context device, const MakeNet& make, const Shape& images,
                              const Options& options) {
  manual_seed(3);
  const std::shared_ptr<nn::Sequential> net = make();
  net->to(device);
  Optimizer optimizer(net->parameters(), options);
  Generator numbers(5);
  const NDArray x = numbers.normal(0, 1, images, f32);
  const NDArray labels = (arange(images[0], i64) % 10);
  const NDArray given = x.to(device), wanted = labels.to(device);
  std::vector<double> losses;
  for (int step = 0; step < 8; ++step) {
    const NDArray loss = nn::cross_entropy((*net)(given), wanted);
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
    losses.push_back(loss.item<double>());
  }
  return losses;
}

template <class Optimizer, class Options>
void expect_same_losses(const MakeNet& make, const Shape& images, const Options& options) {
  const Context device = test::tested_device();
  if (device.is_cpu()) GTEST_SKIP() << "there is no GPU";
  const std::vector<double> expected = losses_on<Optimizer>(cpu(), make, images, options);
  EXPECT_LT(expected.back(), expected.front());
  std::vector<double> got;
  try {
    got = losses_on<Optimizer>(device, make, images, options);
  } catch (const Error& e) {
    FAIL() << e.what();
  }
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(expected[i], got[i], 2e-3 * expected[i]) << "step " << i;
}

std::shared_ptr<nn::Sequential> perceptron() {
  return std::make_shared<nn::Sequential>(nn::Linear{784, 128}, nn::ReLU{}, nn::Linear{128, 10});
}
std::shared_ptr<nn::Sequential> lenet() {
  return std::make_shared<nn::Sequential>(
      nn::Conv2d{1, 6, 5, {.padding = {2, 2}}}, nn::ReLU{}, nn::MaxPool2d{2}, nn::Conv2d{6, 16, 5},
      nn::ReLU{}, nn::MaxPool2d{2}, nn::Flatten{}, nn::Linear{400, 84}, nn::ReLU{}, nn::Linear{84, 10});
}

TEST(TrainingOnGpu, OfAPerceptronWithSgd) {
  expect_same_losses<optim::SGD>(perceptron, {64, 784}, optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
}
TEST(TrainingOnGpu, OfAPerceptronWithAdam) {
  expect_same_losses<optim::Adam>(perceptron, {64, 784}, optim::AdamOptions{.lr = 1e-3});
}
TEST(TrainingOnGpu, OfAConvolutionalNetwork) {
  expect_same_losses<optim::SGD>(lenet, {32, 1, 28, 28}, optim::SGDOptions{.lr = 0.1, .momentum = 0.9});
}

TEST(TrainingOnGpu, WithATrainer) {
  const Context device = test::tested_device();
  if (device.is_cpu()) GTEST_SKIP() << "there is no GPU";
  const auto losses = [](Context context) {
    manual_seed(4);
    const std::shared_ptr<nn::Sequential> net = perceptron();
    net->to(context);
    nn::Trainer trainer(net->parameters(), optim::AdamWOptions{.lr = 1e-3});
    Generator numbers(5);
    const NDArray x = numbers.normal(0, 1, {64, 784}, f32).to(context);
    const NDArray labels = (arange(64, i64) % 10).to(context);
    std::vector<double> all;
    for (int step = 0; step < 5; ++step) {
      const NDArray loss = nn::cross_entropy((*net)(x), labels);
      trainer.zero_grad();
      loss.backward();
      trainer.step();
      all.push_back(loss.item<double>());
    }
    return all;
  };
  const std::vector<double> expected = losses(cpu());
  std::vector<double> got;
  try {
    got = losses(device);
  } catch (const Error& e) {
    FAIL() << e.what();
  }
  for (size_t i = 0; i < expected.size(); ++i)
    EXPECT_NEAR(expected[i], got[i], 2e-3 * expected[i]) << "step " << i;
}

// The first replay captures the step as a graph of the GPU, and the others launch it.
TEST(TrainingOnGpu, OfASegmentThatIsReplayed) {
  const Context device = test::tested_device();
  if (device.is_cpu()) GTEST_SKIP() << "there is no GPU";
  const optim::SGDOptions options{.lr = 0.1, .momentum = 0.9};
  for (const auto& [make, images] :
       {std::pair<MakeNet, Shape>{perceptron, {64, 784}}, {lenet, {32, 1, 28, 28}}}) {
    const std::vector<double> expected = losses_on<optim::SGD>(cpu(), make, images, options);
    manual_seed(3);
    const std::shared_ptr<nn::Sequential> net = make();
    net->to(device);
    optim::SGD optimizer(net->parameters(), options);
    const NDArray x = Generator(5).normal(0, 1, images, f32).to(device);
    const NDArray labels = (arange(images[0], i64) % 10).to(device);
    NDArray shown = zeros({}, f32, device);
    const auto step = [&] {
      const NDArray loss = nn::cross_entropy((*net)(x), labels);
      optimizer.zero_grad();
      loss.backward();
      optimizer.step();
      shown.copy_from(loss.detach());
    };
    // The first step makes what later ones use again: gradients, and the state of the optimiser.
    step();
    std::vector<double> got{shown.item<double>()};
    Segment segment = current_engine().record(step);
    while (got.size() < expected.size()) {
      segment.replay();
      got.push_back(shown.item<double>());
    }
    for (size_t i = 0; i < expected.size(); ++i)
      EXPECT_NEAR(expected[i], got[i], 2e-3 * expected[i]) << "step " << i;
  }
}

}  // namespace
}  // namespace mx
