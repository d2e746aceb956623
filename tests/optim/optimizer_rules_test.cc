// Compares a thousand steps of every optimiser with the formulas in float64: two groups with separate options
// and multipliers, changing learning rates, and random gradients, some of them missing.
#include <gtest/gtest.h>

#include <functional>
#include <string>

#include "optim/adaptive.h"
#include "optim/direct.h"
#include "optim/optimizers.h"
#include "tests/optim/plain_other_rules.h"
#include "tests/optim/plain_rules.h"

namespace mx::optim {
namespace {

using test::plain_step;
using test::PlainParameter;
using test::RandomNumbers;

const std::vector<Shape> kShapes = {{}, {3}, {4, 5}, {0}, {2, 3, 3}, {17}};
constexpr size_t kFirstGroup = 3;  // number of parameters in the first group

struct Case {
  std::string name;
  std::function<void(DType, Context, double tolerance)> run;
};

/// Returns true if the parameter has a gradient in this step. In each group one parameter gets its first
/// gradient late, and one gets gradients only now and then.
bool has_gradient(size_t parameter, int64_t step) {
  switch (parameter) {
    case 1:
      return step > 10;
    case 2:
      return step % 7 != 3;
    case 4:
      return step > 500 && step % 3 != 0;
    default:
      return true;
  }
}

template <class Made, class Options>
void run(const Options& first, const Options& second, DType type, Context context, double tolerance) {
  const Multipliers multipliers{.lr = 0.5, .weight_decay = 3};
  RandomNumbers random(7);
  std::vector<NDArray> arrays;
  std::vector<PlainParameter> plain;
  for (const Shape& shape : kShapes) {
    plain.emplace_back(random(shape.numel()));
    arrays.push_back(from_data(plain.back().w.data(), shape).to(type).to(context));
  }
  const auto middle = arrays.begin() + kFirstGroup;
  Made opt(std::vector<NDArray>(arrays.begin(), middle), first);
  opt.add_group(std::vector<NDArray>(middle, arrays.end()), second, multipliers);

  for (int64_t step = 1; step <= 1000; ++step) {
    if (step == 400) opt.set_learning_rate(first.lr / 3);
    if (step == 600) opt.set_learning_rate(second.lr / 7, 1);
    std::vector<std::vector<double>> values;
    std::vector<NDArray> gradients;
    double squares = 0;
    for (size_t p = 0; p < kShapes.size(); ++p) {
      values.push_back(random(kShapes[p].numel()));
      gradients.push_back(has_gradient(p, step) ? from_data(values[p].data(), kShapes[p]).to(type).to(context)
                                                : NDArray());
      if (gradients[p].defined())
        for (double g : values[p]) squares += g * g;
    }
    opt.step(gradients);

    const double scale = first.max_norm > 0 ? std::min(1.0, first.max_norm / (std::sqrt(squares) + 1e-6)) : 1;
    for (size_t p = 0; p < kShapes.size(); ++p) {
      if (!has_gradient(p, step)) continue;
      if (p < kFirstGroup) {
        plain_step(plain[p], first, values[p], step < 400 ? first.lr : first.lr / 3, scale, {});
      } else {
        const double rate = step < 400 ? second.lr : step < 600 ? first.lr / 3 : second.lr / 7;
        plain_step(plain[p], second, values[p], rate, scale, multipliers);
      }
    }
  }
  for (size_t p = 0; p < kShapes.size(); ++p) {
    const std::vector<double> got = arrays[p].to(cpu()).to_vector<double>();
    for (size_t i = 0; i < got.size(); ++i)
      ASSERT_NEAR(plain[p].w[i], got[i], tolerance * (1 + std::fabs(plain[p].w[i])))
          << type << " parameter " << p << " element " << i;
  }
}

template <class Made>
Case make_case(const std::string& name, typename Made::Options first, typename Made::Options second) {
  return {name, [=](DType type, Context context, double tolerance) {
            run<Made>(first, second, type, context, tolerance);
          }};
}

std::vector<Case> cases() {
  return {
      make_case<SGD>("sgd", {.lr = 0.05}, {.lr = 0.02, .weight_decay = 0.01}),
      make_case<SGD>("clipped", {.lr = 0.05, .clip = 0.4}, {.lr = 0.05, .weight_decay = 0.1, .clip = 1}),
      make_case<SGD>("momentum", {.lr = 0.02, .momentum = 0.9},
                     {.lr = 0.01, .momentum = 0.5, .weight_decay = 1e-3}),
      make_case<SGD>("dampening", {.lr = 0.02, .momentum = 0.9, .dampening = 0.3},
                     {.lr = 0.02, .momentum = 0.9, .dampening = 1}),
      make_case<SGD>("nesterov", {.lr = 0.02, .momentum = 0.9, .nesterov = true}, {.lr = 0.02}),
      make_case<SGD>("ema", {.lr = 0.05, .momentum = 0.9, .ema = true},
                     {.lr = 0.05, .momentum = 0.9, .nesterov = true, .ema = true}),
      make_case<SGD>("global_norm", {.lr = 0.05, .momentum = 0.9, .max_norm = 1.5},
                     {.lr = 0.05, .weight_decay = 0.01, .maximize = true, .max_norm = 1.5}),
      make_case<Adam>("adam", {.lr = 0.01}, {.lr = 0.02, .weight_decay = 0.02}),
      make_case<Adam>("adam_as_first_published", {.lr = 0.01, .eps = 1e-4, .bias_correction = false},
                      {.lr = 0.01, .beta1 = 0.5, .beta2 = 0.9, .maximize = true, .clip = 0.7}),
      make_case<Adam>("adam_global_norm", {.lr = 0.01, .max_norm = 0.5}, {.lr = 0.01, .clip = 0.05}),
      make_case<AdamW>("adamw", {.lr = 0.01}, {.lr = 0.01, .weight_decay = 0.2}),
      make_case<AdamW>("adamw_with_all",
                       {.lr = 0.01, .beta1 = 0, .weight_decay = 0, .maximize = true, .max_norm = 2},
                       {.lr = 0.02, .eps = 1e-3, .bias_correction = false, .clip = 0.3}),
      make_case<Adam>("amsgrad", {.lr = 0.01, .amsgrad = true}, {.lr = 0.02, .weight_decay = 0.02}),
      make_case<AdamW>("amsgrad_decoupled", {.lr = 0.01},
                       {.lr = 0.02, .weight_decay = 0.3, .amsgrad = true, .bias_correction = false}),
      make_case<Adagrad>("adagrad", {.lr = 0.1}, {.lr = 0.1, .lr_decay = 0.01, .weight_decay = 0.1}),
      make_case<Adagrad>("adagrad_with_all",
                         {.lr = 0.1, .initial_accumulator_value = 2, .maximize = true, .max_norm = 1},
                         {.lr = 0.1, .eps = 0.1, .clip = 0.3}),
      make_case<Adadelta>("adadelta", {}, {.lr = 0.5, .rho = 0.95, .eps = 1e-3, .weight_decay = 0.1}),
      make_case<RMSprop>("rmsprop", {.lr = 0.01}, {.lr = 0.02, .alpha = 0.9, .weight_decay = 0.1}),
      make_case<RMSprop>("rmsprop_momentum", {.lr = 1e-3, .momentum = 0.9},
                         {.lr = 1e-3, .eps = 0.1, .momentum = 0.5, .maximize = true}),
      make_case<RMSprop>("rmsprop_centered", {.lr = 0.01, .eps = 1e-2, .centered = true},
                         {.lr = 0.01, .eps = 1e-2, .momentum = 0.5, .centered = true, .clip = 0.5}),
      make_case<Adamax>("adamax", {.lr = 0.01}, {.lr = 0.01, .beta2 = 0.9, .weight_decay = 0.1}),
      make_case<NAdam>("nadam", {.lr = 0.01}, {.lr = 0.01, .weight_decay = 0.1, .momentum_decay = 0.1}),
      make_case<NAdam>("nadam_decoupled", {.lr = 0.01, .max_norm = 1},
                       {.lr = 0.01, .weight_decay = 0.1, .decoupled_weight_decay = true, .maximize = true}),
      make_case<RAdam>("radam", {.lr = 0.01}, {.lr = 0.01, .beta2 = 0.9, .weight_decay = 0.1}),
      make_case<RAdam>("radam_decoupled",
                       {.lr = 0.01, .weight_decay = 0.1, .decoupled_weight_decay = true, .maximize = true},
                       {.lr = 0.01, .clip = 0.3}),
      make_case<Ftrl>("ftrl", {}, {.lr = 0.3, .lambda1 = 2, .beta = 0.5, .weight_decay = 0.1}),
      make_case<Ftrl>("ftrl_with_all", {.lambda1 = 0, .maximize = true, .max_norm = 2}, {.clip = 0.3}),
      make_case<Signum>("signum", {.lr = 1e-3}, {.lr = 1e-3, .momentum = 0, .weight_decay = 0.1}),
      make_case<Signum>("signum_decoupled", {.lr = 1e-3, .wd_lh = 0.5},
                        {.lr = 1e-3, .weight_decay = 0.01, .maximize = true}),
      make_case<Rprop>("rprop", {}, {.lr = 0.1, .eta_minus = 0.3, .eta_plus = 1.5, .step_max = 0.2}),
      make_case<ASGD>("asgd", {.lr = 0.05, .t0 = 100}, {.lr = 0.1, .lambd = 0.01, .weight_decay = 0.1}),
      make_case<LARS>("lars", {.lr = 1}, {.lr = 1, .momentum = 0.9, .weight_decay = 0.1, .eta = 0.01}),
      make_case<LARS>("lars_with_all", {.lr = 0.01, .adapt = false},
                      {.momentum = 0.5, .eps = 0.1, .maximize = true, .clip = 0.5}),
      make_case<LAMB>("lamb", {.lr = 0.01}, {.lr = 0.01, .weight_decay = 0.1, .lower_bound = 3}),
      make_case<LAMB>("lamb_with_all",
                      {.lr = 0.01, .upper_bound = 0.5, .bias_correction = false, .max_norm = 1},
                      {.lr = 0.01, .eps = 1e-2, .maximize = true}),
  };
}

class OptimizerRules : public testing::TestWithParam<size_t> {};

TEST_P(OptimizerRules, AThousandStepsAreThoseOfTheFormula) {
  const Case c = cases()[GetParam()];
  SCOPED_TRACE(c.name);
  c.run(f64, cpu(), 1e-11);
  c.run(f32, cpu(), 5e-4);
}
INSTANTIATE_TEST_SUITE_P(All, OptimizerRules, testing::Range<size_t>(0, cases().size()),
                         [](const auto& test) { return cases()[test.param].name; });

TEST(OptimizerDevices, FollowTheFormulaToo) {
  int found = 0;
  for (const Case& c : cases()) {
    if (c.name != "global_norm" && c.name != "adamw_with_all") continue;
    c.run(f64, virt(found++), 1e-11);
  }
  EXPECT_EQ(2, found);
}

}  // namespace
}  // namespace mx::optim
