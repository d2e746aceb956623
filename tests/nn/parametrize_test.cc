// weight_norm and spectral_norm: which parameters a module has, and how they follow the module.
// torch_layers_test.cc compares values and gradients with PyTorch's.
#include "nn/parametrize.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "executor/autograd/gradcheck.h"
#include "nn/containers.h"
#include "nn/linear.h"
#include "nn/recurrent.h"
#include "operators/operators.h"
#include "optim/optimizers.h"
#include "tests/nn/models.h"
#include "tests/support/errors.h"
#include "tests/support/live_memory.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

using Names = std::vector<std::string>;

Names names_of(const Parameters& parameters) {
  Names names;
  for (const NamedParameter& p : parameters) names.push_back(p.name);
  return names;
}

std::vector<double> numbers(const NDArray& a) { return a.detach().to_vector<double>(); }

nn::Linear linear_f64() { return nn::Linear(4, 3, {.dtype = f64}); }

TEST(Parametrize, OriginalsReplaceTheParameter) {
  nn::Linear layer = linear_f64();
  const std::vector<double> before = numbers(layer.weight);
  const nn::Linear same = nn::weight_norm(layer);
  EXPECT_EQ(layer.identity(), same.identity());
  EXPECT_EQ((Names{"bias", "parametrizations.weight.original0", "parametrizations.weight.original1"}),
            names_of(layer.parameters()));
  EXPECT_EQ(3 + 3 + 12, layer.num_parameters());
  EXPECT_EQ((Shape{3, 1}), layer.parameter("parametrizations.weight.original0").shape());
  const std::vector<double> after = numbers(layer.weight);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(before[i], after[i], 1e-14);
  EXPECT_TRUE(contains(nn::to_string(layer), "ParametrizationList"));
}

TEST(Parametrize, TheWeightFollowsItsOriginalsAndSendsThemGradients) {
  nn::Linear layer = nn::weight_norm(linear_f64());
  const Parameter g = layer.parameter("parametrizations.weight.original0");
  const std::vector<double> before = numbers(layer.weight);
  {
    const NoGrad pause;
    g *= 2;
  }
  const std::vector<double> after = numbers(layer.weight);
  for (size_t i = 0; i < before.size(); ++i) EXPECT_NEAR(2 * before[i], after[i], 1e-14);
  sum(layer.weight * layer.weight).backward();  // |weight|^2 = sum(g^2)
  const std::vector<double> slope = numbers(g.grad()), value = numbers(g);
  for (size_t i = 0; i < slope.size(); ++i) EXPECT_NEAR(2 * value[i], slope[i], 1e-12);
}

TEST(Parametrize, AnOptimiserTrainsTheOriginals) {
  nn::Linear layer = nn::weight_norm(linear_f64());
  optim::SGD opt(layer.parameters(), {.lr = 0.1});
  const NDArray x = randn({5, 4}, f64), target = randn({5, 3}, f64);
  const auto loss = [&] { return mean(square(layer(x) - target)); };
  const double first = loss().item<double>();
  for (int step = 0; step < 20; ++step) {
    opt.zero_grad();
    loss().backward();
    opt.step();
  }
  EXPECT_LT(loss().item<double>(), first);
}

TEST(Parametrize, ACloneHasOriginalsOfItsOwn) {
  nn::Sequential net{nn::spectral_norm(linear_f64()), nn::weight_norm(nn::Linear(3, 2, {.dtype = f64}))};
  nn::Sequential copy = net.clone();
  EXPECT_EQ(names_of(net.parameters()), names_of(copy.parameters()));
  EXPECT_EQ(net.state_dict().size(), copy.state_dict().size());
  net.eval();
  copy.eval();
  const NDArray x = randn({2, 4}, f64);
  const std::vector<double> before = numbers(copy(x));
  EXPECT_EQ(numbers(net(x)), before);
  {
    const NoGrad pause;
    for (const auto& [name, p] : net.parameters()) p *= 3;
  }
  EXPECT_EQ(before, numbers(copy(x)));
  EXPECT_NE(before, numbers(net(x)));
}

TEST(Parametrize, TheWeightMovesWithItsOriginals) {
  nn::Linear layer = nn::weight_norm(nn::spectral_norm(nn::Linear(4, 3)), "bias");
  layer.to(f64).to(virt(0));
  EXPECT_EQ(f64, layer.weight.dtype());
  EXPECT_EQ(virt(0), layer.bias.context());
  EXPECT_EQ(virt(0), layer(randn({2, 4}, f64, virt(0))).context());
}

TEST(Parametrize, ALoadedStateChangesTheWeight) {
  nn::Linear from = nn::spectral_norm(linear_f64()), to = nn::spectral_norm(linear_f64());
  to.load_state_dict(from.state_dict());
  EXPECT_EQ(numbers(from.eval().weight), numbers(to.eval().weight));
}

TEST(Parametrize, PowerIterationsRunInTrainingModeOnly) {
  nn::Linear layer = nn::spectral_norm(linear_f64());
  const auto u = [&] { return numbers(layer.buffers().at(0)); };
  EXPECT_EQ((Shape{3}), layer.buffers().at(0).shape());
  const std::vector<double> before = u();
  layer.eval();
  layer(ones({1, 4}, f64));
  EXPECT_EQ(before, u());
  layer.train();
  for (int i = 0; i < 200; ++i) layer(ones({1, 4}, f64));
  EXPECT_NE(before, u());
  // The largest singular value is 1 then.
  layer.eval();
  EXPECT_NEAR(1, max(linalg::svd(layer.weight.detach()).s).item<double>(), 1e-9);
}

TEST(Parametrize, GradientsPassTheCheckOfDifferences) {
  for (const bool spectral : {false, true}) {
    nn::Linear layer = spectral ? nn::spectral_norm(linear_f64()) : nn::weight_norm(linear_f64());
    layer.eval();
    std::vector<NDArray> values;
    for (const auto& [name, p] : layer.parameters()) values.push_back(p.detach());
    gradcheck(
        [&](const std::vector<NDArray>& a) {
          // Puts the arrays of the check into the layer, so that it computes with them.
          nn::Linear copy = layer.clone();
          size_t i = 0;
          for (const auto& [name, p] : copy.parameters()) p.replace(a[i++]);
          return copy(ones({1, 4}, f64));
        },
        values);
  }
}

TEST(Parametrize, RemovingLeavesTheValueAsAParameter) {
  nn::GRU gru =
      nn::weight_norm(nn::weight_norm(nn::GRU(2, 3, {.dtype = f64}), "weight_hh_l0"), "weight_ih_l0");
  const NDArray x = randn({4, 1, 2}, f64);
  const std::vector<double> before = numbers(gru(x).first);
  nn::remove_parametrizations(gru, "weight_hh_l0");
  EXPECT_EQ(before, numbers(gru(x).first));
  EXPECT_TRUE(gru.parameter("weight_hh_l0").requires_grad());
  EXPECT_EQ(1u, gru.children().size());
  nn::remove_parametrizations(gru, "weight_ih_l0");
  EXPECT_EQ(0u, gru.children().size());
  EXPECT_EQ(before, numbers(gru(x).first));
  EXPECT_EQ(4u, gru.parameters().size());
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { nn::remove_parametrizations(gru, "weight_ih_l0"); }),
                       "parametrize_test.cc"));
}

TEST(Parametrize, AFrozenParameterHasFrozenOriginals) {
  nn::Linear layer = linear_f64().requires_grad_(false);
  nn::weight_norm(layer);
  for (const auto& [name, p] : layer.parameters()) EXPECT_FALSE(p.requires_grad()) << name;
  nn::remove_parametrizations(layer);
  EXPECT_FALSE(layer.weight.requires_grad());
}

TEST(Parametrize, SeveralThreadsMayCallOneModule) {
  nn::Sequential net{nn::weight_norm(linear_f64()), nn::spectral_norm(nn::Linear(3, 2, {.dtype = f64}))};
  net.eval();
  const NDArray x = randn({2, 4}, f64);
  const std::vector<double> expected = numbers(net(x));
  std::vector<std::vector<double>> got(4);
  std::vector<std::thread> threads;
  for (auto& result : got)
    threads.emplace_back([&] {
      for (int i = 0; i < 20; ++i) result = numbers(net(x));
    });
  for (std::thread& thread : threads) thread.join();
  for (const auto& result : got) EXPECT_EQ(expected, result);
}

// A thread keeps the last value of a weight, but not of modules that have ended elsewhere.
TEST(Parametrize, AThreadDoesNotKeepWeightsOfModulesThatOtherThreadsHaveEnded) {
  constexpr int64_t kSide = 300;
  const size_t bytes = static_cast<size_t>(kSide * kSide) * sizeof(double);
  std::thread([&] {
    nn::Linear stays = nn::weight_norm(linear_f64());
    numbers(stays.weight);
    const size_t before = test::settled_bytes();
    for (int i = 0; i < 10; ++i) {
      auto made = std::make_unique<nn::Linear>(nn::weight_norm(nn::Linear(kSide, kSide, {.dtype = f64})));
      numbers(made->weight);
      std::thread([&] { made.reset(); }).join();
    }
    nn::Linear last = nn::weight_norm(linear_f64());
    numbers(last.weight);
    EXPECT_TRUE(test::comes_down_to(before + 4 * bytes)) << test::live_bytes() - before;
  }).join();
}

TEST(Parametrize, RefusesOtherNamesAndDimensions) {
  nn::Linear layer = linear_f64();
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { nn::weight_norm(layer, "scale"); }),
                       "weight, bias, got \"scale\" (called at"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { nn::weight_norm(layer, "weight", 2); }), "got 2"));
  error_of<InvalidArgument>([&] { nn::weight_norm(layer, "weight", -2); });
  error_of<InvalidArgument>([&] { nn::spectral_norm(layer, "weight", {.dim = 2}); });
  error_of<InvalidArgument>([&] { nn::spectral_norm(layer, "weight", {.n_power_iterations = 0}); });
  nn::weight_norm(layer);
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { nn::spectral_norm(layer); }), "bias, got"));
}

}  // namespace
}  // namespace mx
