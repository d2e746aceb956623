// MixtureOfExperts against plain loops over the rows.
#include "nn/mixture.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "executor/autograd/autograd.h"
#include "ndarray/grad_mode.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/matmul.h"
#include "operators/reduce.h"
#include "operators/softmax.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::expect_error;
using test::expect_values;
using test::numbers;
using test::Values;
using test::values;

constexpr int64_t kWidth = 4, kExperts = 3, kTokens = 17;

nn::MixtureOfExperts new_mixture(const nn::MixtureOptions& given) {
  nn::MixtureOptions options = given;
  options.experts = kExperts;
  options.dtype = f64;
  return {kWidth, options, [] { return nn::Linear(kWidth, 2, {.dtype = f64}); }};
}

NDArray mixture_rows() { return numbers({kTokens, kWidth}, f64, 11) * 2; }

/// The output of each row, from the probabilities and the outputs of all experts for all rows.
Values by_rows(nn::MixtureOfExperts& layer, int64_t k, bool normalize, int64_t limit) {
  const NDArray x = mixture_rows();
  const Values p = values(softmax(matmul(x, layer.router.weight->transpose()), -1));
  std::vector<Values> y;
  for (int64_t e = 0; e < kExperts; ++e) y.push_back(values(layer.experts[e](x)));
  std::vector<int64_t> taken(kExperts);
  Values out(kTokens * 2);
  for (size_t i = 0; i < kTokens; ++i) {
    std::vector<size_t> order = {0, 1, 2};
    std::stable_sort(order.begin(), order.end(),
                     [&](size_t a, size_t b) { return p[i * kExperts + a] > p[i * kExperts + b]; });
    order.resize(static_cast<size_t>(k));
    double total = 0;
    for (const size_t e : order) total += p[i * kExperts + e];
    for (const size_t e : order) {
      if (taken[e]++ >= limit) continue;
      const double w = p[i * kExperts + e] / (k > 1 && normalize ? total : 1);
      for (size_t j = 0; j < 2; ++j) out[i * 2 + j] += w * y[e][i * 2 + j];
    }
  }
  return out;
}

TEST(MixtureOfExperts, AgreesWithLoopsOverTheRows) {
  for (const int64_t k : {int64_t{1}, int64_t{2}, int64_t{3}})
    for (const bool normalize : {true, false}) {
      nn::MixtureOfExperts layer = new_mixture({.top_k = k, .normalize = normalize});
      expect_values(by_rows(layer, k, normalize, kTokens), layer(mixture_rows()), "output", 10);
    }
}

TEST(MixtureOfExperts, RowsBeyondTheCapacityGetNothing) {
  nn::MixtureOfExperts layer = new_mixture({.top_k = 2, .capacity = 0.5});
  const int64_t limit = 6;  // ceil(0.5 * 17 * 2 / 3)
  expect_values(by_rows(layer, 2, true, limit), layer(mixture_rows()), "output", 10);
}

TEST(MixtureOfExperts, OneExpertIsTheExpert) {
  const nn::Linear expert(kWidth, 3);
  nn::MixtureOfExperts layer(kWidth, {expert}, {});
  const NDArray x = numbers({2, 5, kWidth}, f32);
  EXPECT_EQ(values(expert(x)), values(layer(x)));
  EXPECT_EQ(layer(x).shape(), (Shape{2, 5, 3}));
  EXPECT_FLOAT_EQ(layer.route(x).balance_loss.item<float>(), 1);
}

TEST(MixtureOfExperts, AnExpertComputesOnlyTheRowsThatChoseIt) {
  nn::MixtureOfExperts layer = new_mixture({.top_k = 2});
  std::vector<int64_t> seen(kExperts);
  std::vector<HookHandle> hooks;
  for (size_t e = 0; e < kExperts; ++e)
    hooks.push_back(layer.experts[static_cast<int64_t>(e)]->register_forward_pre_hook(
        [&seen, e](const nn::Module&, std::vector<NDArray>& in) { seen[e] += in[0].shape()[0]; }));
  const nn::MixtureResult r = layer.route(mixture_rows());
  EXPECT_EQ(seen, r.counts.to_vector<int64_t>());
  EXPECT_EQ(seen[0] + seen[1] + seen[2], 2 * kTokens);
  // One row with two choices: the third expert is not called.
  std::fill(seen.begin(), seen.end(), 0);
  layer(numbers({1, kWidth}, f64));
  EXPECT_EQ(std::count(seen.begin(), seen.end(), 0), 1);
}

TEST(MixtureOfExperts, TheBalanceLossReachesTheRouter) {
  nn::MixtureOfExperts layer = new_mixture({.top_k = 1});
  const NDArray x = mixture_rows();
  const nn::MixtureResult r = layer.route(x);
  const Values p = values(softmax(matmul(x, layer.router.weight->transpose()), -1)),
               counts = values(r.counts);
  double want = 0;
  for (size_t e = 0; e < kExperts; ++e) {
    double mean = 0;
    for (size_t i = 0; i < kTokens; ++i) mean += p[i * kExperts + e] / kTokens;
    want += kExperts * counts[e] / kTokens * mean;
  }
  EXPECT_NEAR(want, r.balance_loss.item<double>(), 1e-12);
  const auto g =
      gradients({r.balance_loss, sum(r.output)}, {layer.router.weight, layer.experts[0]->parameter("weight")},
                {.allow_unused = true});
  EXPECT_GT(sum(abs(g[0])).item<double>(), 0);
  EXPECT_TRUE(g[1].defined() || counts[0] == 0);
}

TEST(MixtureOfExperts, TheBalanceLossEvensOutTheChoices) {
  nn::MixtureOfExperts layer = new_mixture({.top_k = 1});
  {
    const NoGrad pause;  // all rows choose expert 1
    layer.router.weight.copy_from(array({{0.0, 0.0, 0.0, 0.0}, {5.0, 0.0, 0.0, 0.0}, {0.0, 0.0, 0.0, 0.0}}));
  }
  const NDArray x = abs(mixture_rows()) + 0.1;
  EXPECT_EQ(layer.route(x).counts.to_vector<int64_t>(), (std::vector<int64_t>{0, kTokens, 0}));
  for (int step = 0; step < 200; ++step) {
    layer.zero_grad();
    layer.route(x).balance_loss.backward();
    const NoGrad pause;
    layer.router.weight -= 0.3 * layer.router.weight.grad();
  }
  const auto counts = layer.route(x).counts.to_vector<int64_t>();
  EXPECT_GT(*std::min_element(counts.begin(), counts.end()), 0);
}

TEST(MixtureOfExperts, ChoicesAreCountedWhileTraining) {
  nn::MixtureOfExperts layer = new_mixture({.top_k = 2});
  layer(mixture_rows());
  layer(mixture_rows());
  EXPECT_EQ(sum(layer.counts.array()).item<int64_t>(), 4 * kTokens);
  layer.eval();
  layer(mixture_rows());
  EXPECT_EQ(sum(layer.counts.array()).item<int64_t>(), 4 * kTokens);
  for (const auto& [name, array] : layer.state_dict()) EXPECT_NE(name, "counts");
}

TEST(MixtureOfExperts, ACallWhoseExpertThrowsIsNotCounted) {
  nn::MixtureOfExperts layer(4, {.experts = 2, .top_k = 1},
                             [] { return nn::Lambda([](const NDArray&) -> NDArray { throw 5; }); });
  EXPECT_THROW(layer(ones({3, 4})), int);
  EXPECT_EQ((std::vector<int64_t>{0, 0}), layer.counts.array().to_vector<int64_t>());
}

TEST(MixtureOfExperts, NoiseIsForTraining) {
  nn::MixtureOfExperts layer = new_mixture({.top_k = 1, .noise = 5});
  const auto choose = [&] { return layer.route(mixture_rows()).counts.to_vector<int64_t>(); };
  layer.eval();
  const auto quiet = choose();
  EXPECT_EQ(quiet, choose());
  layer.train();
  bool differs = false;
  for (int i = 0; i < 20; ++i) differs = differs || choose() != quiet;
  EXPECT_TRUE(differs);
}

TEST(MixtureOfExperts, NoRowsGiveAnEmptyResult) {
  nn::MixtureOfExperts layer = new_mixture({.top_k = 2});
  const nn::MixtureResult r = layer.route(zeros({0, kWidth}, f64));
  EXPECT_EQ(r.output.shape(), (Shape{0, 2}));
  EXPECT_EQ(r.balance_loss.item<double>(), 0);
}

TEST(MixtureOfExperts, BadInputIsNamed) {
  const auto make = [] { return nn::Linear(4, 4); };
  const auto with = [&](const nn::MixtureOptions& options) {
    return [&make, options] { nn::MixtureOfExperts(4, options, make); };
  };
  expect_error<InvalidArgument>("top_k from 1 to the number of experts, 4, got 5", with({.top_k = 5}));
  expect_error<InvalidArgument>("at least one expert, got 0", with({.experts = 0}));
  expect_error<InvalidArgument>("expected a function, got an empty one",
                                [] { nn::MixtureOfExperts(4, {}, nullptr); });
  expect_error<InvalidArgument>("capacity and a noise of 0 or more, got -1", with({.capacity = -1}));
  expect_error<InvalidArgument>("expected an array (.., 4), got shape (2, 3)", [&] {
    nn::MixtureOfExperts(4, {}, make)(ones({2, 3}));
  });
}

}  // namespace
}  // namespace mx
