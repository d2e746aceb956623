// A complete user program: the block, the network, one training step, saving.
#include <gtest/gtest.h>
#include <mx/mx.h>

#include <cmath>
#include <filesystem>
#include <vector>

#include "tests/ndarray/io_temp.h"

using namespace mx;

namespace {

struct Block : nn::Module {
  nn::Linear fc1, fc2;
  nn::BatchNorm1d bn;
  explicit Block(int64_t d) : fc1{d, d}, fc2{d, d}, bn{d} {
    add("fc1", fc1);
    add("fc2", fc2);
    add("bn", bn);
  }
  NDArray forward(const NDArray& x) { return x + fc2(relu(bn(fc1(x)))); }
};

/// Returns two clouds of points, with one label each.
std::pair<NDArray, NDArray> clouds(Context context) {
  Generator generator(1);
  const NDArray labels = arange(200) % 2;
  const NDArray images = generator.randn({200, 8}) + (labels.to(f32) * 2 - 1).reshape({200, 1});
  return {images.to(context), labels.to(context)};
}

// The loop of the documents, line by line, on every available device; only part of the epoch of digits.
TEST(Surface, TheWholeLoopOfTrainingIsAProgram) {
  if (!std::filesystem::exists(MX_MNIST)) GTEST_SKIP() << MX_MNIST << " is not here";
  const test::TempFolder folder;
  std::vector<float> expected;
  for (const Context device : {cpu(), virt(0)}) {
    manual_seed(1);
    nn::Sequential net{nn::Linear{784, 64}, nn::ReLU{}, Block{64}, nn::Linear{64, 10}};
    net.to(device);
    optim::SGD opt(net.parameters(), {.lr = 0.1, .momentum = 0.9, .weight_decay = 1e-4});
    optim::CosineLR schedule(opt, {.steps = 1000, .warmup = 50});
    data::Loader loader(data::mnist(MX_MNIST, data::Split::train), {.batch_size = 64, .shuffle = true});
    metric::Accuracy accuracy;
    int step = 0;
    for (auto& [images, labels] : loader) {
      NDArray logits = net(images.to(device));
      NDArray l = nn::cross_entropy(logits, labels.to(device));
      opt.zero_grad();
      l.backward();
      opt.step();
      schedule.step();
      if (++step > 100) accuracy.update(logits, labels);  // asynchronous; value() waits
      if (step == 200) break;
    }
    EXPECT_GT(accuracy.value(), 0.85);
    save_safetensors(folder / "net.safetensors", net.state_dict());
    std::vector<float> weights;
    for (const auto& [name, array] : load_safetensors(folder / "net.safetensors"))
      for (float value : array.to_vector<float>()) weights.push_back(value);
    if (expected.empty()) expected = weights;
    EXPECT_TRUE(expected == weights) << device;
  }
}

TEST(Surface, ModulesComposeTrainAndAreSaved) {
  for (const Context device : {cpu(), virt(0), virt(1)}) {
    manual_seed(1);
    nn::Sequential net{nn::Linear{8, 16}, nn::ReLU{}, Block{16}, nn::Linear{16, 2}};
    net.to(device);
    const auto [images, labels] = clouds(device);
    std::vector<float> losses;
    for (int i = 0; i < 30; ++i) {
      NDArray logits = net(images);
      NDArray l = nn::cross_entropy(logits, labels);
      net.zero_grad();
      l.backward();
      const NoGrad pause;
      for (NDArray w : net.parameters()) w -= 0.1 * w.grad();
      losses.push_back(l.item<float>());
    }
    EXPECT_LT(losses.back(), 0.1f);
    EXPECT_LT(losses.back(), losses.front() / 4);

    const test::TempFolder folder;
    save_safetensors(folder / "net.safetensors", net.state_dict());
    nn::Sequential again{nn::Linear{8, 16}, nn::ReLU{}, Block{16}, nn::Linear{16, 2}};
    again.load(folder / "net.safetensors");
    EXPECT_EQ(net(images).to_vector<float>(), again(images.to(cpu())).to_vector<float>());
  }
}

// Two devices train in turn without affecting each other: each gives the numbers of the CPU.
TEST(Surface, APenaltyOnTheGradientOfTheInputTrainsACapturedNetwork) {
  manual_seed(3);
  nn::Sequential net{nn::Linear{3, 4}, nn::Tanh{}, nn::Linear{4, 1}};
  const auto f = [&](const NDArray& x) { return sum(net(x)); };
  const NDArray x = Generator(2).randn({5, 3});
  std::vector<std::vector<std::vector<float>>> found;
  for (const bool recorded : {false, true}) {
    net.zero_grad();
    NDArray at = x.clone();
    if (recorded) at.requires_grad_();
    const NDArray g = grad(f)(at);
    sum(g * g).backward();
    found.emplace_back();
    for (const NDArray& p : net.parameters())
      found.back().push_back(p.grad().defined() ? p.grad().to_vector<float>() : std::vector<float>());
    EXPECT_EQ(recorded, at.grad().defined());
  }
  EXPECT_EQ(found[1], found[0]);
  const NDArray w = net.parameters()[0];
  const float was = found[0][0][0], step = 1e-2f;
  const auto penalty = [&](float change) {
    NoGrad pause;
    NDArray values = w.detach();
    values[{0, 0}] += change;
    const NDArray g = grad(f)(x);
    const float result = sum(g * g).item<float>();
    values[{0, 0}] -= change;
    return result;
  };
  EXPECT_NEAR((penalty(step) - penalty(-step)) / (2 * step), was, 1e-3);
}

TEST(Surface, TwoDevicesTrainTheirOwnCopies) {
  const auto train = [](nn::Sequential& net, Context device) {
    const auto [images, labels] = clouds(device);
    for (int i = 0; i < 5; ++i) {
      net.zero_grad();
      nn::cross_entropy(net(images), labels).backward();
      const NoGrad pause;
      for (NDArray w : net.parameters()) w -= 0.1 * w.grad();
    }
  };
  nn::Sequential first{nn::Linear{8, 16}, nn::ReLU{}, Block{16}, nn::Linear{16, 2}};
  nn::Sequential second = first.clone(), third = first.clone();
  second.to(virt(0));
  third.to(virt(1));
  train(first, cpu());
  train(second, virt(0));
  train(third, virt(1));
  for (size_t i = 0; i < first.parameters().size(); ++i) {
    const std::vector<float> expected = first.parameters()[i].to_vector<float>();
    EXPECT_EQ(expected, second.parameters()[i].to_vector<float>());
    EXPECT_EQ(expected, third.parameters()[i].to_vector<float>());
  }
}

// Designated initialisers in the order of the arguments in PyTorch's documentation.
TEST(Surface, OptionsHaveTheOrderOfPyTorch) {
  const nn::Linear linear(2, 3, {.bias = false, .context = cpu(), .dtype = f64});
  EXPECT_EQ(f64, linear.weight.dtype());
  const NDArray scores = zeros({2, 3}), labels = zeros({2}, i64);
  const ClassLossOptions loss{
      .weight = ones({3}), .ignore_index = -1, .reduction = "sum", .label_smoothing = 0.1};
  EXPECT_NEAR(2 * std::log(3.0), nn::cross_entropy(scores, labels, loss).item<float>(), 1e-5);
  const nn::TripletOptions triplet{.margin = 1, .p = 2, .eps = 1e-6, .swap = false, .reduction = "mean"};
  EXPECT_EQ(1, nn::triplet_margin_loss(scores, scores, scores, triplet).item<float>());
  nn::init::kaiming_uniform_(zeros({2, 2}), {.a = 0, .mode = "fan_in", .nonlinearity = "leaky_relu"});

  optim::SGD optimizer(linear.parameters(),
                       {.lr = 1, .momentum = 0.9, .weight_decay = 1e-4, .nesterov = true});
  optim::StepLR(optimizer, {.step_size = 2, .gamma = 0.5});
  optim::MultiStepLR(optimizer, {.milestones = {1, 2}, .gamma = 0.5});
  optim::CosineLR(optimizer, {.steps = 10, .min_lr = 0});
  optim::PolyLR(optimizer, {.steps = 10, .power = 1});
  optim::ReduceOnPlateau(optimizer, {.maximize = true,
                                     .factor = 0.1,
                                     .patience = 10,
                                     .threshold = 1e-4,
                                     .absolute = false,
                                     .cooldown = 0,
                                     .min_lr = 0,
                                     .min_change = 1e-8});
  optim::LossScale({.scale = 65536, .growth = 2, .backoff = 0.5, .interval = 2000});
  data::Loader loader(data::ArrayDataset({scores}),
                      {.batch_size = 1, .shuffle = true, .drop_last = false, .seed = 1, .prefetch = 2});
  EXPECT_EQ(2, loader.batches());
  EXPECT_NEAR(1.0, optimizer.learning_rate(), 1e-12);
}

}  // namespace
