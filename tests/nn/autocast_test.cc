// Layers, training and loss scaling inside of Autocast scopes.
#include "operators/autocast.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "ndarray/grad_mode.h"
#include "nn/trainer.h"
#include "optim/loss_scale.h"
#include "tests/nn/layers.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

/// The largest difference, as a fraction of the largest expected value, or of `least` if that is larger.
double relative_difference(const NDArray& expected, const NDArray& got, double least = 1e-3) {
  if (expected.numel() == 0) return 0;
  const double scale = max(abs(expected.to(f64))).item<double>();
  return max(abs(expected.to(f64) - got.to(f64))).item<double>() / std::max(scale, least);
}

// Every layer computes about the same in bf16 and f16 as in f32, and its parameters get about the same
// gradients, in f32.
TEST(AutocastLayers, AreNearF32WithGradientsInF32) {
  std::set<std::string> lower;
  for (const test::LayerCase& layer_case : test::layer_cases()) {
    SCOPED_TRACE(layer_case.name);
    manual_seed(5);
    const nn::AnyModule layer = layer_case.make();
    const NDArray x = test::inputs(layer_case.input).clone().requires_grad_();
    const auto run = [&](std::vector<NDArray>& gradients) {
      layer->zero_grad();
      x.set_grad({});
      manual_seed(7);
      const NDArray y = layer(x);
      mean(y.to(f32) * test::inputs(y.shape())).backward();
      for (const NDArray& p : layer->parameters()) gradients.push_back(p.grad());
      gradients.push_back(x.grad());
      return y;
    };
    std::vector<NDArray> exact;
    const NDArray y = run(exact);
    for (const DType type : {bf16, f16}) {
      std::vector<NDArray> found;
      NDArray z;
      {
        const Autocast scope(type);
        z = run(found);
      }
      if (z.dtype() == type) lower.insert(layer_case.name);
      // The router of the mixture and the kinks of activations may take another side.
      if (layer_case.name == "MixtureOfExperts") continue;
      const double tolerance = type == bf16 ? 0.1 : 0.02;
      EXPECT_LT(relative_difference(y, z), tolerance) << type;
      ASSERT_EQ(exact.size(), found.size());
      // In the sum that is the gradient of a bias, most of each addend may cancel.
      double largest = 1e-3;
      for (const NDArray& g : exact)
        if (g.defined() && g.numel() > 0) largest = std::max(largest, max(abs(g.to(f64))).item<double>());
      for (size_t i = 0; i < exact.size(); ++i) {
        if (!exact[i].defined()) continue;
        EXPECT_EQ(f32, found[i].dtype()) << "gradient " << i;
        EXPECT_TRUE(bool(all(isfinite(found[i]))));
        EXPECT_LT(relative_difference(exact[i], found[i], largest / 10), tolerance / 2)
            << type << ", gradient " << i;
      }
    }
  }
  for (const char* name :
       {"Linear", "Conv1d", "Conv2d", "Conv3d", "ConvTranspose2d", "RNN", "LSTM stacked", "GRU"})
    EXPECT_TRUE(lower.contains(name)) << name << " does not compute in the lower type";
  for (const char* name : {"LayerNorm", "BatchNorm2d", "Softmax"}) EXPECT_FALSE(lower.contains(name)) << name;
}

/// Trains a small classifier on points of three rings; returns the last loss.
double train_rings(std::optional<DType> type, double scale, const std::string& store, double max_norm) {
  manual_seed(3);
  nn::Sequential net{nn::Linear(2, 32),  nn::ReLU(), nn::LayerNorm(32),
                     nn::Linear(32, 32), nn::GELU(), nn::Linear(32, 3)};
  std::vector<float> points;
  std::vector<int64_t> labels;
  for (int i = 0; i < 96; ++i) {
    const double angle = i * 0.7, radius = 0.5 + i % 3;
    points.push_back(static_cast<float>(radius * std::cos(angle)));
    points.push_back(static_cast<float>(radius * std::sin(angle)));
    labels.push_back(i % 3);
  }
  const NDArray x = array(points).reshape({96, 2}), t = array(labels);
  optim::LossScale loss_scale({.scale = scale, .interval = 20});
  const auto make = [&](const Parameters& all) {
    auto optimizer = std::make_unique<optim::Adam>(all, optim::AdamOptions{.lr = 0.01, .max_norm = max_norm});
    if (scale != 1) optimizer->set_loss_scale(loss_scale);
    return optimizer;
  };
  nn::Trainer trainer(net, make, KVStore::create(store));
  double last = 0;
  for (int step = 0; step < 120; ++step) {
    NDArray loss;
    {
      const Autocast scope(type.value_or(bf16), {.enabled = type.has_value()});
      loss = nn::cross_entropy(net(x), t);
    }
    EXPECT_EQ(f32, loss.dtype());
    trainer.zero_grad();
    (scale != 1 ? loss_scale(loss) : loss).backward();
    trainer.step();
    if (scale != 1) loss_scale.update();
    last = loss.item<float>();
  }
  for (const NDArray& p : net.parameters()) EXPECT_EQ(f32, p.dtype());
  // A scale of 2^40 overflows in f16, so the first steps are skipped, until the scale is small enough.
  if (scale > 1e9) {
    EXPECT_LT(loss_scale.value().item<double>(), scale);
  }
  return last;
}

TEST(AutocastTraining, ReachesTheLossOfF32) {
  const double exact = train_rings({}, 1, "local", 0);
  EXPECT_LT(exact, 0.1) << "the example does not learn";
  EXPECT_NEAR(exact, train_rings(bf16, 1, "local", 0), 0.03);
  EXPECT_NEAR(exact, train_rings(f16, 1024, "device", 0), 0.03);
}

TEST(AutocastTraining, LossScalesWorkWithTheTrainerAndWithClipping) {
  const double exact = train_rings({}, 1, "local", 1.0);
  EXPECT_NEAR(exact, train_rings(f16, 1024, "local", 1.0), 0.05);
  EXPECT_NEAR(exact, train_rings(f16, std::ldexp(1.0, 40), "local", 1.0), 0.15) << "after skipped steps";
}

// The code samples of docs/mixed_precision.md.
TEST(AutocastTraining, RunsAsTheDocumentsSay) {
  manual_seed(3);
  const nn::Sequential net{nn::Linear(4, 16), nn::ReLU(), nn::Linear(16, 2)};
  const NDArray x = test::inputs({16, 4}), labels = (x.select(1, 0) > 0).to(i64);
  optim::Adam optimizer(net.parameters(), {.lr = 0.01});
  for (int step = 0; step < 50; ++step) {
    NDArray loss;
    {
      const Autocast scope(bf16);
      loss = nn::cross_entropy(net(x), labels);
    }
    optimizer.zero_grad();
    loss.backward();
    optimizer.step();
  }
  NDArray loss = nn::cross_entropy(net(x), labels);
  const float before = loss.item<float>();
  EXPECT_LT(before, 0.6f);
  optim::LossScale scale({.scale = 1024});
  optimizer.set_loss_scale(scale);
  {
    const Autocast scope(f16);
    loss = nn::cross_entropy(net(x), labels);
  }
  optimizer.zero_grad();
  scale(loss).backward();
  optimizer.step();
  scale.update();
  EXPECT_LT(nn::cross_entropy(net(x), labels).item<float>(), before);
  EXPECT_EQ(1024.0, scale.value().item<double>());
}

TEST(AutocastTraining, ANetworkMayBeInTheScopeTogetherWithItsBackwardPassAndStep) {
  manual_seed(3);
  nn::Linear layer(4, 1);
  optim::SGD opt(layer.parameters(), {.lr = 0.1});
  const NDArray x = test::inputs({8, 4});
  const Autocast scope(bf16);
  double first = 0, last = 0;
  for (int step = 0; step < 30; ++step) {
    const NDArray loss = nn::mse_loss(layer(x), ones({8, 1}));
    (step == 0 ? first : last) = loss.item<float>();
    opt.zero_grad();
    loss.backward();
    opt.step();  // changes the weight, so that its conversion is made again
  }
  EXPECT_LT(last, first / 2);
}

// Scopes that are members, or are held by pointers, may end in another order than blocks do.
TEST(AutocastScopes, EndingOutOfOrderIsReportedAndHarmless) {
  nn::Linear layer(3, 2);
  const NDArray x = ones({1, 3});
  const auto type = [&] { return layer(x).dtype(); };
  for (const bool enabled : {true, false}) {
    const test::LogCapture log;
    auto first = std::make_unique<Autocast>(bf16);
    auto second = std::make_unique<Autocast>(f16);
    auto third = std::make_unique<Autocast>(bf16, AutocastOptions{.enabled = enabled});
    type();
    second.reset();
    first.reset();
    EXPECT_EQ(enabled ? bf16 : f32, type());
    third.reset();
    EXPECT_FALSE(autocast_dtype().has_value());
    EXPECT_EQ(f32, type());
    EXPECT_EQ(2U, log.count("[Autocast] expected scopes to end on their thread"));
  }
  const Autocast scope(f16);
  EXPECT_EQ(f16, type());
}

}  // namespace
}  // namespace mx
