// Schedules compared with closed formulas, over all their steps and beyond the last one.
#include "optim/schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "optim/optimizers.h"
#include "optim/plateau.h"
#include "tests/support/errors.h"

namespace mx::optim {
namespace {

using test::contains;
using test::error_of;

/// The expected rate of a step, from the base rate and the step's number.
using Formula = std::function<double(double base, int64_t step)>;

template <class Made, class Options>
void check_schedule(const Options& options, int64_t steps, const Formula& after_warmup) {
  const auto expected = [&](double base, int64_t step) {
    const int64_t w = options.warmup;
    if (step >= w) return after_warmup(base, step - w);
    const double done = static_cast<double>(step) / static_cast<double>(w);
    return base * (options.warmup_start * (1 - done) + done);
  };
  SGD opt({ones({2})}, {.lr = 0.8});
  opt.add_group({ones({2})}, {.lr = 0.1}, {.lr = 5});
  const NDArray late = zeros({});
  Made schedule(opt, options);
  for (int64_t step = 0; step < steps; ++step) {
    ASSERT_EQ(step, schedule.steps_done());
    ASSERT_NEAR(expected(0.8, step), opt.learning_rate(0), 1e-14) << step;
    ASSERT_NEAR(expected(0.1, step), schedule.learning_rate(1), 1e-14) << step;
    ASSERT_EQ(schedule.rate_at(step, 1), opt.learning_rate(1)) << step;
    if (step == 13) opt.add_group({late}, {.lr = 0.3});
    if (step > 13) {
      ASSERT_NEAR(expected(0.3, step), opt.learning_rate(2), 1e-14) << step;
    }
    schedule.step();
  }
  // A new schedule continues from the dictionary.
  SGD other({ones({2})}, {.lr = 7});
  other.add_group({ones({2})}, {.lr = 8});
  other.add_group({ones({2})}, {.lr = 9});
  Made resumed(other, options);
  resumed.load_state_dict(schedule.state_dict());
  for (int k = 0; k < 3; ++k) {
    for (size_t g = 0; g < 3; ++g) EXPECT_EQ(opt.learning_rate(g), other.learning_rate(g));
    schedule.step();
    resumed.step();
  }
}

/// Checks the schedule without a warm-up, with one from 0, and with one from another rate.
template <class Made, class Options>
void check_with_warmups(Options options, int64_t steps, const Formula& formula,
                        const std::function<Formula(int64_t warmup)>& shorter = nullptr) {
  for (const int64_t warmup : {0, 10, 25}) {
    options.warmup = warmup;
    options.warmup_start = warmup == 25 ? 0.25 : 0;
    check_schedule<Made>(options, steps, shorter ? shorter(warmup) : formula);
  }
}

TEST(Schedules, StepLRFollowsItsFormula) {
  check_with_warmups<StepLR>(StepLROptions{.step_size = 7, .gamma = 0.5}, 120, [](double base, int64_t t) {
    for (int64_t k = 7; k <= t; k += 7) base *= 0.5;
    return base;
  });
  check_with_warmups<StepLR>(StepLROptions{.step_size = 1, .gamma = 0.9, .min_lr = 0.2}, 120,
                             [](double base, int64_t t) {
                               const double lower = base * std::pow(0.9, t);
                               return base < 0.2 ? base : std::max(0.2, lower);
                             });
}

TEST(Schedules, MultiStepLRFollowsItsFormula) {
  check_with_warmups<MultiStepLR>(
      MultiStepLROptions{.milestones = {0, 30, 30, 80}, .gamma = 0.3}, 150,
      [](double base, int64_t t) { return base * 0.3 * (t >= 30 ? 0.09 : 1) * (t >= 80 ? 0.3 : 1); });
  check_with_warmups<MultiStepLR>(MultiStepLROptions{}, 20, [](double base, int64_t) { return base; });
}

TEST(Schedules, ExponentialLRFollowsItsFormula) {
  check_with_warmups<ExponentialLR>(
      ExponentialLROptions{.gamma = 0.97, .min_lr = 1e-3}, 300, [](double base, int64_t t) {
        return std::max(base * std::exp(static_cast<double>(t) * std::log(0.97)), 1e-3);
      });
}

TEST(Schedules, CosineLRFollowsItsFormula) {
  check_with_warmups<CosineLR>(
      CosineLROptions{.steps = 100, .min_lr = 0.05}, 150, nullptr, [](int64_t warmup) {
        return [warmup](double base, int64_t t) {
          const double share = std::min(1.0, static_cast<double>(t) / static_cast<double>(100 - warmup));
          return 0.05 + 0.5 * (base - 0.05) * (1 + std::cos(std::acos(-1.0) * share));
        };
      });
}

TEST(Schedules, PolyLRFollowsItsFormula) {
  for (double power : {0.5, 1.0, 2.5})
    check_with_warmups<PolyLR>(PolyLROptions{.steps = 100, .power = power, .min_lr = 0.01}, 150, nullptr,
                               [power](int64_t warmup) {
                                 return [=](double base, int64_t t) {
                                   const double all = static_cast<double>(100 - warmup);
                                   const double left = std::max(0.0, all - static_cast<double>(t)) / all;
                                   return 0.01 + (base - 0.01) * std::pow(left, power);
                                 };
                               });
}

// Values from torch 2: SequentialLR([LinearLR(start_factor=0.1, total_iters=5), X], milestones=[5]) with a
// rate of 1.
TEST(Schedules, AgreeWithTorch) {
  const auto rates = [](auto&& make) {
    SGD opt({ones({2})}, {.lr = 1});
    auto schedule = make(opt);
    std::vector<double> all;
    for (int k = 0; k < 10; ++k) {
      all.push_back(opt.learning_rate());
      schedule->step();
    }
    return all;
  };
  const auto expect = [](const std::vector<double>& want, const std::vector<double>& got) {
    ASSERT_EQ(want.size(), got.size());
    for (size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(want[i], got[i], 1e-12) << i;
  };
  expect({0.1, 0.28, 0.46, 0.64, 0.82, 1, 0.904508497187474, 0.654508497187474, 0.345491502812526,
          0.0954915028125263},
         rates([](Optimizer& opt) {
           return std::make_unique<CosineLR>(opt,
                                             CosineLROptions{.steps = 10, .warmup = 5, .warmup_start = 0.1});
         }));
  expect({0.1, 0.28, 0.46, 0.64, 0.82, 1, 1, 0.5, 0.5, 0.25}, rates([](Optimizer& opt) {
           return std::make_unique<StepLR>(
               opt, StepLROptions{.step_size = 2, .gamma = 0.5, .warmup = 5, .warmup_start = 0.1});
         }));
}

TEST(Schedules, ARateThatSomebodyElseSetsLastsUntilTheNextStep) {
  SGD opt({ones({2})}, {.lr = 1});
  ExponentialLR schedule(opt, {.gamma = 0.5});
  opt.set_learning_rate(100);
  EXPECT_EQ(100.0, schedule.learning_rate());
  schedule.step();
  EXPECT_EQ(0.5, opt.learning_rate());
}

TEST(Schedules, ChangeWhatTheNextStepTakes) {
  const NDArray w = zeros({1});
  SGD opt({w}, {.lr = 1});
  PolyLR schedule(opt, {.steps = 4});
  double expected = 0;
  for (double rate : {1.0, 0.75, 0.5, 0.25, 0.0}) {
    opt.step({ones({1})});
    schedule.step();
    expected -= rate;
  }
  EXPECT_EQ(expected, w.item<float>());
}

TEST(Schedules, OptionsThatCannotBeAreListed) {
  SGD opt({ones({2})}, {.lr = 1});
  const double nan = std::nan("");
  const auto refused = [](auto&& make, std::vector<const char*> parts) {
    const std::string message = error_of<InvalidArgument>(make);
    for (const char* part : parts) EXPECT_TRUE(contains(message, part)) << part << " in " << message;
  };
  refused([&] { StepLR(opt, {.step_size = 0, .gamma = -1, .min_lr = nan, .warmup = -2, .warmup_start = 2}); },
          {"[StepLR]", "step_size", "gamma", "min_lr", "warmup of at least 0 steps, got -2", "warmup_start",
           "schedule_test.cc"});
  refused([&] { MultiStepLR(opt, {.milestones = {5, 3}, .gamma = nan}); }, {"[5, 3]", "gamma"});
  refused([&] { MultiStepLR(opt, {.milestones = {-1}}); }, {"[-1]"});
  refused([&] { ExponentialLR(opt, {.gamma = std::numeric_limits<double>::infinity()}); }, {"gamma"});
  refused([&] { CosineLR(opt, {}); }, {"steps above 0"});
  refused([&] { CosineLR(opt, {.steps = 10, .min_lr = -1, .warmup = 10}); },
          {"the warmup of 10, got 10", "min_lr"});
  refused([&] { PolyLR(opt, {.steps = -1, .power = 0}); }, {"steps", "-1", "power"});
  refused(
      [&] {
        ReduceOnPlateau(opt, {.factor = 1,
                              .patience = -1,
                              .threshold = nan,
                              .cooldown = -1,
                              .min_lr = -1,
                              .min_change = -1,
                              .warmup = -1,
                              .warmup_start = -1});
      },
      {"[ReduceOnPlateau]", "factor", "patience", "threshold", "cooldown", "min_lr", "min_change", "warmup",
       "warmup_start"});
  EXPECT_EQ(1.0, opt.learning_rate());
  StepLR schedule(opt, {});
  refused([&] { (void)schedule.rate_at(-1, 3); }, {"-1", "group below 1, got 3"});
}

/// Returns the rates after each of these values.
std::vector<double> plateau_rates(const ReduceOnPlateauOptions& options, const std::vector<double>& values,
                                  double start = 1) {
  SGD opt({ones({2})}, {.lr = start});
  ReduceOnPlateau schedule(opt, options);
  std::vector<double> rates;
  for (double value : values) {
    schedule.step(value);
    rates.push_back(opt.learning_rate());
  }
  return rates;
}

TEST(ReduceOnPlateau, LowersRatesAfterBadSteps) {
  using Rates = std::vector<double>;
  // The second bad step in a row exceeds the patience; then the count restarts.
  EXPECT_EQ((Rates{1, 1, 0.5, 0.5, 0.25, 0.25, 0.25}),
            plateau_rates({.factor = 0.5, .patience = 1}, {5, 5, 5, 6, 7, 4, 4}));
  // Only a change greater than the threshold counts.
  EXPECT_EQ((Rates{1, 0.5, 0.5, 0.25}),
            plateau_rates({.factor = 0.5, .patience = 0, .threshold = 0.1}, {10, 9.5, 8.9, 8.1}));
  EXPECT_EQ(
      (Rates{1, 0.5, 0.5}),
      plateau_rates({.factor = 0.5, .patience = 0, .threshold = 1, .absolute = true}, {-10, -10.5, -11.5}));
  EXPECT_EQ((Rates{1, 1, 0.5, 0.25}),
            plateau_rates({.maximize = true, .factor = 0.5, .patience = 0}, {1, 2, 2, std::nan("")}));
  // After a reduction, bad steps do not count during the cooldown.
  EXPECT_EQ((Rates{1, 0.5, 0.5, 0.5, 0.25}),
            plateau_rates({.factor = 0.5, .patience = 0, .cooldown = 2}, {1, 1, 1, 1, 1}));
  EXPECT_EQ((Rates{1, 0.5, 0.4, 0.4}),
            plateau_rates({.factor = 0.5, .patience = 0, .min_lr = 0.4}, {1, 1, 1, 1}));
  EXPECT_EQ((Rates{0.1, 0.1}), plateau_rates({.patience = 0, .min_lr = 0.4}, {1, 1}, 0.1));
  EXPECT_EQ((Rates{1, 0.5, 0.5}),
            plateau_rates({.factor = 0.5, .patience = 0, .min_change = 0.25}, {1, 1, 1}));
  // No reduction happens before the warm-up has ended.
  EXPECT_EQ(
      (Rates{0.625, 0.75, 0.875, 1, 1, 0.5}),
      plateau_rates({.factor = 0.5, .patience = 0, .warmup = 4, .warmup_start = 0.5}, {1, 2, 3, 4, 5, 6}));
}

TEST(ReduceOnPlateau, GoesOnFromItsDictionary) {
  const ReduceOnPlateauOptions options{.factor = 0.5, .patience = 1, .cooldown = 2, .warmup = 3};
  const std::vector<double> values = {9, 8, 8, 8, 8, 8, 8, 7.99999, 8, 8, 7, 8, 8, 8, 8, 8, 8, 8};
  for (size_t middle = 0; middle < values.size(); ++middle) {
    SGD a({ones({2})}, {.lr = 1}), b({ones({2})}, {.lr = 3});
    a.add_group({ones({2})}, {.lr = 0.25});
    b.add_group({ones({2})}, {.lr = 2});
    ReduceOnPlateau first(a, options), second(b, options);
    for (size_t i = 0; i < middle; ++i) first.step(array({values[i]}));
    second.step(1);
    second.load_state_dict(first.state_dict());
    for (size_t i = middle; i < values.size(); ++i) {
      EXPECT_EQ(a.learning_rate(), b.learning_rate());
      EXPECT_EQ(a.learning_rate(1), b.learning_rate(1));
      first.step(values[i]);
      second.step(values[i]);
    }
    EXPECT_EQ(first.best(), second.best());
    EXPECT_EQ(7, first.best());
    EXPECT_GT(0.3, a.learning_rate());
  }
}

TEST(ReduceOnPlateau, TakesOneNumber) {
  SGD opt({ones({2})});
  ReduceOnPlateau schedule(opt);
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { schedule.step(ones({2})); }), "f32 (2,)"));
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { schedule.step(arange(1)); }), "i64"));
  EXPECT_EQ(0, schedule.steps_done());
}

}  // namespace
}  // namespace mx::optim
