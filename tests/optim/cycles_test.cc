// Schedules of cycles.h compared with those of torch (tests/optim/golden/make_torch_schedules.py).
#include "optim/cycles.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <sstream>
#include <string>
#include <vector>

#include "optim/optimizers.h"
#include "tests/support/errors.h"

namespace mx::optim {
namespace {

using test::contains;
using test::error_of;

const char kTorchSchedules[] =
#include <golden_torch_schedules.inc>
    ;

std::unique_ptr<Schedule> made_schedule(const std::string& name, Optimizer& opt) {
  if (name == "onecycle")
    return std::make_unique<OneCycleLR>(opt, OneCycleLROptions{.max_lr = 0.5, .steps = 100});
  if (name == "onecycle_linear")
    return std::make_unique<OneCycleLR>(opt, OneCycleLROptions{.max_lr = 0.5,
                                                               .steps = 60,
                                                               .pct_start = 0.4,
                                                               .linear = true,
                                                               .div_factor = 10,
                                                               .final_div_factor = 100});
  if (name == "onecycle_three")
    return std::make_unique<OneCycleLR>(opt,
                                        OneCycleLROptions{.max_lr = 0.5, .steps = 80, .three_phase = true});
  CyclicLROptions cyclic{.max_lr = 2, .step_size_up = 6};
  if (name == "cyclic") {
    cyclic.step_size_up = 7;
    cyclic.step_size_down = 5;
  }
  if (name == "cyclic2") cyclic.mode = "triangular2";
  if (name == "cyclic_exp") {
    cyclic.mode = "exp_range";
    cyclic.gamma = 0.97;
  }
  if (name.starts_with("cyclic")) return std::make_unique<CyclicLR>(opt, cyclic);
  if (name == "restarts")
    return std::make_unique<CosineRestartsLR>(opt,
                                              CosineRestartsLROptions{.t_0 = 5, .t_mult = 2, .min_lr = 0.1});
  if (name == "sequential")
    return std::make_unique<SequentialLR>(
        opt,
        std::vector<SchedulePart>{part<ExponentialLR>(ExponentialLROptions{.gamma = 0.9}),
                                  part<StepLR>(StepLROptions{.step_size = 4, .gamma = 0.5}),
                                  part<ExponentialLR>(ExponentialLROptions{.gamma = 0.8})},
        std::vector<int64_t>{10, 25});
  if (name == "chained")
    return std::make_unique<ChainedLR>(
        opt, std::vector<SchedulePart>{part<ExponentialLR>(ExponentialLROptions{.gamma = 0.95}),
                                       part<StepLR>(StepLROptions{.step_size = 8, .gamma = 0.5})});
  if (name == "lambda")
    return std::make_unique<LambdaLR>(opt, [](int64_t t) { return 1 / (1 + static_cast<double>(t)); });
  return nullptr;
}

TEST(Cycles, FollowTorchInEveryStep) {
  std::istringstream lines(kTorchSchedules);
  int count = 0;
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    std::string name, colon;
    if (!(words >> name >> colon)) continue;
    ++count;
    SGD opt({ones({2})}, {.lr = 0.8});
    const auto schedule = made_schedule(name, opt);
    ASSERT_NE(nullptr, schedule) << name;
    int64_t step = 0;
    for (double rate = 0; words >> rate; ++step) {
      ASSERT_NEAR(rate, opt.learning_rate(), 1e-12) << name << " step " << step;
      ASSERT_EQ(opt.learning_rate(), schedule->rate_at(step)) << name;
      schedule->step();
    }
    EXPECT_GE(step, 30);
    // Resumed in the middle.
    SGD other({ones({2})}, {.lr = 3});
    const auto resumed = made_schedule(name, other);
    resumed->load_state_dict(schedule->state_dict());
    EXPECT_EQ(opt.learning_rate(), other.learning_rate()) << name;
  }
  EXPECT_EQ(10, count);
}

TEST(Cycles, PartsSeeTheGroupsBaseRates) {
  SGD opt({ones({2})}, {.lr = 1});
  SequentialLR schedule(opt,
                        {part<PolyLR>(PolyLROptions{.steps = 10, .warmup = 4}),
                         part<CosineRestartsLR>(CosineRestartsLROptions{.t_0 = 5})},
                        {10});
  EXPECT_EQ(0.0, opt.learning_rate());  // of the warm-up; the second part must not take it as its base rate
  EXPECT_EQ(1.0, schedule.rate_at(10));
  opt.add_group({ones({3})}, {.lr = 4});
  schedule.step();
  EXPECT_EQ(1.0, opt.learning_rate(1));  // a quarter of the warm-up
  EXPECT_EQ(4.0, schedule.rate_at(10, 1));
}

TEST(Cycles, OneCycleEndsWithItsLastRate) {
  SGD opt({ones({2})}, {.lr = 0.5});
  const OneCycleLR schedule(opt, {.steps = 50});
  double top = 0;
  for (int64_t t = 0; t < 50; ++t) top = std::max(top, schedule.rate_at(t));
  EXPECT_NEAR(0.5, top, 1e-12);
  EXPECT_NEAR(0.5 / 25 / 1e4, schedule.rate_at(49), 1e-15);
  EXPECT_EQ(schedule.rate_at(49), schedule.rate_at(1000));
}

TEST(Cycles, AStepWithoutRatesIsNotCounted) {
  SGD opt({ones({2})}, {.lr = 1});
  opt.add_group({ones({2})}, {.lr = 2});
  int calls = 0;
  LambdaLR schedule(opt, [&](int64_t t) {
    if (t == 2 && ++calls == 2) throw std::runtime_error("no rate");  // for the second group
    return t == 3 ? -1.0 : 1.0 / static_cast<double>(t + 1);
  });
  schedule.step();
  EXPECT_THROW(schedule.step(), std::runtime_error);
  EXPECT_EQ(1, schedule.state_dict()[0].second.item<int64_t>());
  EXPECT_EQ(0.5, opt.learning_rate(0));
  EXPECT_EQ(1, opt.learning_rate(1));
  schedule.step();
  EXPECT_EQ(2.0 / 3, opt.learning_rate(1));
  error_of<InvalidArgument>([&] { schedule.step(); });
  EXPECT_EQ(2, schedule.state_dict()[0].second.item<int64_t>());
}

TEST(Cycles, OptionsThatCannotBeAreListed) {
  SGD opt({ones({2})}, {.lr = 1});
  const auto refused = [](auto&& make, std::vector<const char*> parts) {
    const std::string message = error_of<InvalidArgument>(make);
    for (const char* text : parts) EXPECT_TRUE(contains(message, text)) << text << " in " << message;
  };
  refused([&] { OneCycleLR(opt, {.steps = 1, .pct_start = 2, .div_factor = 0}); },
          {"[OneCycleLR]", "steps of at least 2, got 1", "pct_start", "div_factor", "cycles_test.cc"});
  refused([&] { CyclicLR(opt, {.step_size_up = 0, .mode = "square"}); }, {"step_size_up", "'square'"});
  refused([&] { CosineRestartsLR(opt, {}); }, {"t_0", "got 0 and 1"});
  refused([&] { LambdaLR(opt, nullptr); }, {"function of the step"});
  const SchedulePart one = part<StepLR>(StepLROptions{});
  refused([&] { SequentialLR(opt, {one, one}, {}); }, {"one milestone less than the 2 parts"});
  refused([&] { SequentialLR(opt, {one, one, one}, {5, 5}); }, {"[5, 5]"});
  refused([&] { ChainedLR(opt, {}); }, {"one part or more"});
  refused([&] { ChainedLR(opt, {part<StepLR>(StepLROptions{.step_size = 0})}); }, {"[StepLR]"});
  EXPECT_EQ(1.0, opt.learning_rate());
}

}  // namespace
}  // namespace mx::optim
