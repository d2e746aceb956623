// Properties that hold for every layer, and the values of each activation.
#include <gtest/gtest.h>

#include <cmath>
#include <concepts>
#include <functional>
#include <string>
#include <vector>

#include "ndarray/grad_mode.h"
#include "tests/nn/layers.h"
#include "tests/nn/second_derivatives.h"
#include "tests/operators/registry_support.h"
#include "tests/operators/values.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::all_values;
using test::contains;
using test::content_of;
using test::error_of;
using test::inputs;
using test::LayerCase;
using test::names;
using test::Values;

class EveryLayer : public ::testing::TestWithParam<LayerCase> {
 protected:
  EveryLayer() { manual_seed(5); }
  nn::AnyModule layer_ = GetParam().make();
  NDArray x_ = inputs(GetParam().input);
};
INSTANTIATE_TEST_SUITE_P(All, EveryLayer, ::testing::ValuesIn(test::layer_cases()),
                         [](const ::testing::TestParamInfo<LayerCase>& test) {
                           std::string name;
                           for (char c : test.param.name) name += c == ' ' ? '_' : c;
                           return name;
                         });

TEST_P(EveryLayer, GivesTheSameBitsAgainAfterSeeding) {
  manual_seed(7);
  const NDArray y = layer_(x_);
  manual_seed(7);
  EXPECT_EQ(content_of(y), content_of(layer_(x_)));
}

TEST_P(EveryLayer, TravelsThroughItsState) {
  const nn::AnyModule other = GetParam().make();
  EXPECT_EQ(names(layer_->state_dict()), names(other->state_dict()));
  other->load_state_dict(layer_->state_dict());
  EXPECT_EQ(all_values(layer_->state_dict()), all_values(other->state_dict()));
  manual_seed(7);
  const NDArray y = layer_(x_);
  manual_seed(7);
  EXPECT_EQ(content_of(y), content_of(other(x_)));
}

TEST_P(EveryLayer, HasClonesOfItsOwn) {
  const nn::AnyModule copy = layer_.clone();
  const bool training = layer_->training();
  manual_seed(7);
  const NDArray y = layer_(x_);  // may change running statistics
  const std::vector<double> before = all_values(layer_->state_dict());
  manual_seed(7);
  EXPECT_EQ(content_of(y), content_of(copy(x_)));
  const NoGrad pause;
  for (NDArray parameter : copy->parameters()) parameter += 1;
  copy->train(!training);
  EXPECT_EQ(before, all_values(layer_->state_dict()));
  EXPECT_EQ(training, layer_->training());
  manual_seed(7);
  EXPECT_EQ(content_of(y), content_of(layer_(x_)));
}

TEST_P(EveryLayer, GivesTheBitsOfTheCpuOnDevices) {
  manual_seed(7);
  const NDArray y = layer_(x_);
  for (const Context context : {virt(0), virt(1)}) {
    const nn::AnyModule there = layer_.clone();
    there->to(context);
    manual_seed(7);
    const NDArray z = there(x_.to(context));
    EXPECT_EQ(context, z.context());
    EXPECT_EQ(content_of(y), content_of(z));
  }
}

TEST_P(EveryLayer, ComputesInDouble) {
  layer_->eval();
  const NDArray y = layer_(x_);
  layer_->to(f64);
  const NDArray z = layer_(x_.to(f64));
  EXPECT_EQ(f64, z.dtype());
  test::expect_values(test::values(z), y, GetParam().name, 10);
}

TEST_P(EveryLayer, TakesAnEmptyBatch) {
  if (GetParam().name == "Softmax of the first") return;  // its dimension would be empty
  Shape none = GetParam().input, shape = layer_(x_).shape();
  none[0] = 0;
  shape[0] = 0;
  EXPECT_EQ(shape, layer_(inputs(none)).shape());
}

// Compares the gradients of sum(w y) with respect to the input and every parameter: by a backward pass, and
// by finite differences.
TEST_P(EveryLayer, GradientsAgreeWithDifferences) {
  layer_->to(f64);
  NDArray x = inputs(GetParam().input, f64).clone();
  x.requires_grad_();
  const NDArray weights = inputs(layer_(x).shape(), f64) + 0.25;
  const auto loss = [&] {
    manual_seed(7);  // so that dropout drops the same elements again
    return sum(layer_(x) * weights);
  };
  loss().backward();
  std::vector<NDArray> arrays = layer_->parameters();
  arrays.push_back(x);
  for (NDArray& array : arrays) {
    ASSERT_TRUE(array.grad().defined());
    const Values found = test::values(array.grad());
    const NoGrad pause;
    NDArray flat = array.detach().reshape({-1});
    for (int64_t i = 0; i < flat.numel(); ++i) {
      constexpr double kStep = 1e-5;
      NDArray element = flat[i];
      element += kStep;
      const double above = loss().item<double>();
      element -= 2 * kStep;
      const double below = loss().item<double>();
      element += kStep;
      EXPECT_NEAR((above - below) / (2 * kStep), found[static_cast<size_t>(i)], 1e-7) << "element " << i;
    }
  }
}

TEST_P(EveryLayer, SecondDerivativesAgreeWithDifferences) {
  layer_->to(f64);
  NDArray x = inputs(GetParam().input, f64).clone();
  x.requires_grad_();
  const NDArray weights = inputs(layer_(x).shape(), f64) + 0.25;
  std::vector<NDArray> leaves = layer_->parameters();
  leaves.push_back(x);
  test::expect_second_derivatives(leaves, [&] {
    manual_seed(7);  // so that dropout drops the same elements again
    const NDArray y = layer_(x);
    return sum(y * y * weights);
  });
}

TEST(Layers, EveryEngineGivesTheSameBits) {
  const auto all = [] {
    std::vector<test::Content> contents;
    for (const LayerCase& c : test::layer_cases())
      for (const Context context : {cpu(), virt(0), virt(1)}) {
        manual_seed(5);
        const nn::AnyModule layer = c.make();
        layer->to(context);
        const NDArray x = inputs(c.input).to(context).clone().requires_grad_();
        manual_seed(6);
        const NDArray y = layer(x);
        contents.push_back(content_of(y));
        sum(y * y).backward();
        contents.push_back(content_of(x.grad()));
        for (const NDArray& p : layer->parameters())  // an expert without rows has no gradient
          contents.push_back(p.grad().defined() ? content_of(p.grad()) : test::Content{});
      }
    return contents;
  };
  const std::vector<test::Content> expected = all();
  for (const test::EngineCase& c :
       {test::threaded_case(1), test::threaded_case(2), test::mode_case(EngineMode::naive, "naive"),
        test::mode_case(EngineMode::check, "check"), test::mode_case(EngineMode::fuzz, "fuzz", 7)}) {
    Engine engine(c.options);
    const EngineScope scope(engine);
    EXPECT_TRUE(expected == all()) << c.name;
  }
}

struct Formula {
  std::string name;
  nn::AnyModule layer;
  std::function<double(double)> f;
};

double sigma(double x) { return 1 / (1 + std::exp(-x)); }

TEST(Activations, AgreeWithTheirFormulas) {
  const auto elu = [](double x, double alpha) { return x > 0 ? x : alpha * (std::exp(x) - 1); };
  const Formula formulas[] = {
      {"ReLU", nn::ReLU(), [](double x) { return std::max(x, 0.); }},
      {"ReLU6", nn::ReLU6(), [](double x) { return std::min(std::max(x, 0.), 6.); }},
      {"LeakyReLU", nn::LeakyReLU(), [](double x) { return x > 0 ? x : 0.01 * x; }},
      {"PReLU", nn::PReLU(), [](double x) { return x > 0 ? x : 0.25 * x; }},
      {"ELU", nn::ELU(), [&](double x) { return elu(x, 1); }},
      {"ELU of 2", nn::ELU(2), [&](double x) { return elu(x, 2); }},
      {"SELU", nn::SELU(), [&](double x) { return 1.0507009873554804934 * elu(x, 1.6732632423543772848); }},
      {"CELU of 2", nn::CELU(2), [](double x) { return x > 0 ? x : 2 * (std::exp(x / 2) - 1); }},
      {"GELU", nn::GELU(), [](double x) { return x * (1 + std::erf(x / std::sqrt(2.))) / 2; }},
      {"GELU with tanh", nn::GELU("tanh"),
       [](double x) {
         return x / 2 * (1 + std::tanh(std::sqrt(2 / std::acos(-1.)) * (x + 0.044715 * x * x * x)));
       }},
      {"SiLU", nn::SiLU(), [](double x) { return x * sigma(x); }},
      {"Mish", nn::Mish(), [](double x) { return x * std::tanh(std::log1p(std::exp(x))); }},
      {"Sigmoid", nn::Sigmoid(), sigma},
      {"LogSigmoid", nn::LogSigmoid(), [](double x) { return -std::log1p(std::exp(-x)); }},
      {"Hardsigmoid", nn::Hardsigmoid(), [](double x) { return x <= -3  ? 0
                                                               : x >= 3 ? 1
                                                                        : x / 6 + 0.5; }},
      {"Hardswish", nn::Hardswish(), [](double x) { return x <= -3  ? 0
                                                           : x >= 3 ? x
                                                                    : x * (x + 3) / 6; }},
      {"Hardtanh", nn::Hardtanh(), [](double x) { return std::min(std::max(x, -1.), 1.); }},
      {"Tanh", nn::Tanh(), [](double x) { return std::tanh(x); }},
      {"Softplus", nn::Softplus(), [](double x) { return std::log1p(std::exp(x)); }},
      {"Softplus of 3", nn::Softplus(3), [](double x) { return std::log1p(std::exp(3 * x)) / 3; }},
      {"Softsign", nn::Softsign(), [](double x) { return x / (1 + std::abs(x)); }},
  };
  const NDArray x = array<double>({-20, -6.5, -3, -1.25, -0.5, -1e-6, 0, 1e-6, 0.25, 1, 2.5, 3, 5.75, 7, 20});
  for (const Formula& formula : formulas) {
    formula.layer->to(f64);
    Values expected;
    for (double value : test::values(x)) expected.push_back(formula.f(value));
    test::expect_values(expected, formula.layer(x), formula.name);
  }
}

// In a conditional formula neither branch may overflow where the other one is chosen: its gradient would be
// NaN.
TEST(Activations, StayFiniteFarOutWithTheirGradients) {
  for (const LayerCase& c : test::layer_cases()) {
    if (contains(c.name, "oftmax")) continue;  // -infinity is a logarithm there
    NDArray x = inputs(c.input) * 1e4f;
    x.requires_grad_();
    const NDArray y = c.make()(x);
    sum(y * 1e-4f).backward();
    EXPECT_TRUE(bool(all(isfinite(y)))) << c.name;
    EXPECT_TRUE(bool(all(isfinite(x.grad())))) << c.name;
  }
}

TEST(Activations, GradientsAtZeroAreThoseOfTheLeft) {
  const std::pair<nn::AnyModule, double> cases[] = {{nn::LeakyReLU(0.2), 0.2},
                                                    {nn::PReLU(), 0.25},
                                                    {nn::ELU(1.5), 1.5},
                                                    {nn::CELU(1.5), 1},
                                                    {nn::ReLU(), 0}};
  for (const auto& [layer, expected] : cases) {
    NDArray x = zeros({1}).requires_grad_();
    layer(x).backward();
    EXPECT_FLOAT_EQ(static_cast<float>(expected), x.grad().item<float>()) << layer->type_name();
  }
}

TEST(Layers, SoftmaxAndGluWorkAlongTheirAxis) {
  const NDArray x = inputs({2, 4, 3});
  EXPECT_EQ(content_of(softmax(x, 1)), content_of(nn::Softmax(1)(x)));
  EXPECT_EQ(content_of(log_softmax(x, -1)), content_of(nn::LogSoftmax()(x)));
  EXPECT_EQ(content_of(x.slice(1, {0, 2}) * sigmoid(x.slice(1, {2, 4}))), content_of(nn::GLU(1)(x)));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { nn::GLU()(x); }), "[glu] expected an even size"));
}

TEST(Layers, FlattenAndUnflattenAreReshapes) {
  const NDArray x = inputs({2, 3, 4, 5});
  EXPECT_EQ(Shape({2, 60}), nn::Flatten()(x).shape());
  EXPECT_EQ(Shape({120}), nn::Flatten(0)(x).shape());
  EXPECT_EQ(Shape({2, 12, 5}), nn::Flatten(1, 2)(x).shape());
  EXPECT_EQ(Shape({2, 3, 20}), nn::Flatten(-2)(x).shape());
  EXPECT_EQ(Shape({1}), nn::Flatten(0)(ones({})).shape());
  EXPECT_EQ(content_of(x), content_of(nn::Unflatten(1, {3, 4})(nn::Flatten(1, 2)(x))));
  EXPECT_EQ(Shape({2, 3, 2, 2, 5}), nn::Unflatten(-2, {2, -1})(x).shape());
  EXPECT_THROW(nn::Flatten(2, 1)(x), InvalidArgument);
  EXPECT_THROW(nn::Flatten(1)(ones({3})), InvalidArgument);
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { nn::Unflatten(1, {2, -1})(x); }), "got 3 in shape"));
  EXPECT_THROW(nn::Unflatten(1, {-1, -1})(x), InvalidArgument);
}

TEST(Layers, LinearStartsAsPyTorchSays) {
  const nn::Linear layer(100, 400);
  EXPECT_EQ(Shape({400, 100}), layer.weight.shape());
  EXPECT_EQ(Shape({400}), layer.bias.shape());
  for (const nn::Parameter& parameter : {layer.weight, layer.bias}) {
    EXPECT_LE(max(abs(parameter)).item<float>(), 0.1f);
    EXPECT_GT(max(abs(parameter)).item<float>(), 0.099f);
  }
  // A uniform distribution in [-b, b) has variance b^2 / 3.
  EXPECT_NEAR(0.01 / 3, var(layer.weight).item<float>(), 5e-5);
  EXPECT_NEAR(0, mean(layer.weight).item<float>(), 2e-3);
}

TEST(Layers, LinearSizesAndTypes) {
  EXPECT_EQ(Shape({2, 0}), nn::Linear(3, 0)(ones({2, 3})).shape());
  const nn::Linear nothing(0, 2);
  EXPECT_EQ(std::vector<float>(4, 0.f), nothing(ones({2, 0})).to_vector<float>());
  const nn::Linear half(8, 8, {.context = virt(0), .dtype = bf16});
  EXPECT_EQ(bf16, half(ones({1, 8}, bf16, virt(0))).dtype());
  EXPECT_THROW(nn::Linear(-1, 2), InvalidArgument);
  const nn::Linear without(3, 2, false), with(3, 2, true), plain(3, 2, {}), named(3, 2, {.bias = false});
  EXPECT_FALSE(without.bias.defined() || named.bias.defined());
  EXPECT_TRUE(with.bias.defined() && plain.bias.defined());
  EXPECT_EQ(f64, nn::Linear(3, 2, false, cpu(), f64).weight.dtype());
  static_assert(!std::constructible_from<nn::Linear, int, int, int>, "only a bool says whether");
  static_assert(!std::constructible_from<nn::Linear, bool, int>);
  EXPECT_THROW(nn::Linear(1, 2, {.dtype = i32}), InvalidArgument);
}

// A layer gets the same initial numbers on every device.
TEST(Layers, LinearStartsWithTheSameNumbersOnEveryDevice) {
  manual_seed(3);
  const nn::Linear here(5, 7);
  manual_seed(3);
  const nn::Linear there(5, 7, {.context = virt(1)});
  EXPECT_EQ(all_values(here.state_dict()), all_values(there.state_dict()));
  manual_seed(3);
  const nn::Linear half(5, 7, {.dtype = f16});
  EXPECT_EQ(content_of(here.weight.array().to(f16)), content_of(half.weight));
  Generator generator(3);
  nn::Linear again(5, 7);
  again.reset_parameters(&generator);
  EXPECT_EQ(all_values(here.state_dict()), all_values(again.state_dict()));
}

TEST(Layers, DropoutKeepsTheMeanAndDrawsFromItsGenerator) {
  const NDArray x = ones({10000});
  nn::Dropout layer(0.25);
  const std::vector<float> y = layer(x).to_vector<float>();
  int64_t dropped = 0;
  for (float value : y) {
    dropped += value == 0;
    EXPECT_TRUE(value == 0 || value == 1 / 0.75f) << value;
  }
  EXPECT_NEAR(2500, static_cast<double>(dropped), 200);
  EXPECT_EQ(content_of(zeros({3})), content_of(nn::Dropout(1)(ones({3}))));
  EXPECT_EQ(content_of(x), content_of(nn::Dropout(0)(x)));
  const nn::Dropout a(0.5, Generator(9)), b(0.5, Generator(9));
  const NDArray first = a(x);
  EXPECT_EQ(content_of(first), content_of(b(x)));
  EXPECT_NE(content_of(first), content_of(b(x)));
  EXPECT_THROW(nn::Dropout(1.5), InvalidArgument);
  EXPECT_THROW(nn::Dropout(-0.1), InvalidArgument);
}

TEST(Layers, BadOptionsAreErrors) {
  EXPECT_THROW(nn::GELU("exact"), InvalidArgument);
  EXPECT_THROW(nn::Hardtanh(1, 1), InvalidArgument);
  EXPECT_THROW(nn::PReLU(3)(ones({2, 4})), InvalidArgument);
  EXPECT_THROW(nn::CELU(0)(ones({2})), InvalidArgument);
  EXPECT_THROW(nn::Softplus(0)(ones({2})), InvalidArgument);
}

}  // namespace
}  // namespace mx
