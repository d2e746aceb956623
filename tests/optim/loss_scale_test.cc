// The loss scale: it cancels out, it skips steps that overflowed, and it grows and shrinks as documented.
#include "optim/loss_scale.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "operators/elementwise_binary.h"
#include "operators/row_sparse.h"
#include "optim/clip.h"
#include "optim/optimizers.h"
#include "tests/optim/plain_rules.h"
#include "tests/support/errors.h"

namespace mx::optim {
namespace {

using test::contains;
using test::error_of;
using test::RandomNumbers;
using test::values_of;

// Scaling by a power of two changes no bit of a gradient that is far from the ends of its range.
TEST(LossScale, Cancels) {
  const auto run = [](double factor, double max_norm, int64_t interval, Context context) {
    const NDArray w = RandomNumbers(1).array({50}, f32, context);
    AdamW opt({w}, {.lr = 0.1, .clip = 0.7, .max_norm = max_norm});
    LossScale scale({.scale = factor, .interval = interval}, context);
    if (factor != 1) opt.set_loss_scale(scale);
    for (uint64_t t = 0; t < 5; ++t) {
      const NDArray g = RandomNumbers(t).array({50});
      const std::vector<double> values = values_of({g});
      std::vector<float> scaled;
      for (double v : values) scaled.push_back(static_cast<float>(v * scale.value().item<double>()));
      opt.step({array(scaled).to(context)});
      if (max_norm > 0) {
        double squares = 0;
        for (double v : values) squares += v * v;
        EXPECT_NEAR(std::sqrt(squares), values_of({opt.gradient_norm()})[0], 1e-5);
      }
      scale.update();
    }
    return values_of({w});
  };
  for (double max_norm : {0.0, 3.0}) {
    const std::vector<double> expected = run(1, max_norm, 0, cpu());
    for (const Context context : {cpu(), virt(0)})
      for (int64_t interval : {0, 1000}) {
        const std::vector<double> got = run(1024, max_norm, interval, context);
        for (size_t i = 0; i < got.size(); ++i)
          EXPECT_NEAR(expected[i], got[i], 1e-6) << max_norm << interval;
      }
    EXPECT_EQ(expected, run(1, max_norm, 0, virt(0)));
  }
}

TEST(LossScale, AnOverflowIsSkippedAndHalvesTheScale) {
  const NDArray a = ones({2}), b = ones({2}, f32, virt(0));
  Adam opt({{"a", a}, {"b", b}}, {.lr = 0.5});
  LossScale scale({.scale = 8, .interval = 2});
  opt.set_loss_scale(scale);
  const auto step = [&](float value) {
    opt.step({full({2}, value), ones({2}, f32, virt(0))});
    scale.update();
    return scale.value().item<double>();
  };
  for (float value : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    const double before = scale.value().item<double>();
    EXPECT_EQ(before / 2, step(value));
    EXPECT_EQ(std::vector<double>(4, 1), values_of({a, b}));
    EXPECT_EQ(0.0, opt.state_dict().at("state.a.step").item<double>());
  }
  EXPECT_EQ(2.0, step(1));
  EXPECT_EQ(4.0, step(1));  // two steps without overflow
  EXPECT_EQ(4.0, step(1));
  EXPECT_EQ(2.0, step(std::nanf("")));
  EXPECT_EQ(2.0, step(1));
  EXPECT_EQ(4.0, step(1));
  EXPECT_EQ(5.0, opt.state_dict().at("state.b.step").item<double>());
  EXPECT_NE(1.f, a[0].item<float>());
}

TEST(LossScale, OneServesSeveralOptimisersAndGrowsNoFurtherThanF32) {
  const NDArray a = ones({2}), b = ones({2});
  SGD first({a}, {.lr = 1}), second({b}, {.lr = 1});
  LossScale scale({.scale = 4, .interval = 1});
  const LossScale same = scale;
  first.set_loss_scale(scale);
  second.set_loss_scale(same);
  first.step({full({2}, std::numeric_limits<float>::infinity())});
  second.step({full({2}, 4)});
  scale.update();
  EXPECT_EQ(2.0, same.value().item<double>());
  EXPECT_EQ(std::vector<double>(2, 1), values_of({a}));
  EXPECT_EQ(std::vector<double>(2, 0), values_of({b}));
  for (int k = 0; k < 200; ++k) scale.update();
  EXPECT_EQ(std::ldexp(1, 127), scale.value().item<double>());
}

TEST(LossScale, ScalesLossesInAtLeastF32) {
  const LossScale scale({.scale = 65536});
  EXPECT_EQ(f32, scale(full({}, 2, f16)).dtype());
  EXPECT_EQ(131072.f, scale(full({}, 2, f16)).item<float>());
  EXPECT_EQ(131072.f, scale(full({}, 2)).item<float>());
  EXPECT_EQ(131072.0, scale(full({}, 2, f64)).item<double>());
  const NDArray far = scale(full({2}, 2, f32, virt(0)));
  EXPECT_EQ(virt(0), far.context());
  EXPECT_EQ(std::vector<double>(2, 131072), values_of({far}));
}

TEST(LossScale, WithoutAnIntervalItStaysAndLooksAtNothing) {
  const NDArray w = ones({2});
  SGD opt({w}, {.lr = 1});
  LossScale scale({.scale = 2, .interval = 0});
  opt.set_loss_scale(scale);
  opt.step({array({2.f, std::numeric_limits<float>::infinity()})});
  scale.update();
  EXPECT_EQ(2.0, scale.value().item<double>());
  EXPECT_EQ((std::vector<double>{0, -std::numeric_limits<double>::infinity()}), values_of({w}));
  EXPECT_FALSE(opt.gradient_norm().defined());
}

TEST(LossScale, OverflowsDoNotMakeItZero) {
  LossScale scale({.scale = 1, .backoff = 1e-30});
  const NDArray w = ones({1});
  SGD opt({w}, {.lr = 1});
  opt.set_loss_scale(scale);
  for (int i = 0; i < 3; ++i) {
    opt.step({full({1}, HUGE_VALF)});
    scale.update();
  }
  EXPECT_EQ(std::numeric_limits<float>::min(), scale.value().item<double>());
  EXPECT_GT(scale(ones({})).item<float>(), 0);
}

TEST(LossScale, OptionsAndStatesThatCannotBeAreListed) {
  std::string message =
      error_of<InvalidArgument>([] { LossScale({.scale = 0, .growth = 0.5, .backoff = 2, .interval = -1}); });
  for (const char* part : {"[LossScale]", "scale in the range of f32", "growth", "backoff", "interval", "-1"})
    EXPECT_TRUE(contains(message, part)) << part << " in " << message;
  // As f32, this would be 0.
  EXPECT_TRUE(contains(error_of<InvalidArgument>([] { LossScale({.scale = 1e-300}); }), "got 1e-300"));
  LossScale scale;
  message = error_of<InvalidArgument>([&] {
    scale.load_state_dict({{"scale", ones({})}, {"growth", ones({})}});
  });
  for (const char* part : {"[LossScale]", "scale: expected f64 (), got f32 ()",
                           "good_steps f64 () is missing", "growth f32 () is unexpected"})
    EXPECT_TRUE(contains(message, part)) << part << " in " << message;
  EXPECT_EQ(65536.0, scale.value().item<double>());
  scale.load_state_dict(scale.state_dict());
  EXPECT_EQ(65536.0, scale.value().item<double>());
}

}  // namespace
}  // namespace mx::optim
