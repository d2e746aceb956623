// Optimisers with gradients from the backward pass.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "executor/autograd/autograd.h"
#include "operators/operators.h"
#include "optim/optimizers.h"
#include "optim/schedule.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

/// Rows of (x, 1) with x from -1 to 1, and targets 3 x - 2.
struct Line {
  NDArray x, target;
  explicit Line(DType type = f32, Context context = cpu()) {
    const NDArray points = linspace(-1, 1, 64, type).reshape({64, 1});
    x = points.to(context);
    target = (points * 3 - 2).to(context);
  }
  NDArray loss(const NDArray& w, const NDArray& b) const {
    const NDArray d = matmul(x, w) + b - target;
    return mean(d * d);
  }
};

TEST(Training, GradientsBecomeStepsAsWrittenByHand) {
  const Line line(f64);
  NDArray w = zeros({1, 1}, f64).requires_grad_(), b = zeros({1}, f64).requires_grad_();
  NDArray v = zeros({1, 1}, f64).requires_grad_(), c = zeros({1}, f64).requires_grad_();
  optim::SGD opt({w, b}, {.lr = 0.3});
  optim::CosineLR schedule(opt, {.steps = 20});
  for (int64_t t = 0; t < 20; ++t) {
    opt.zero_grad(t % 2 == 0);
    line.loss(w, b).backward();
    opt.step();

    const double rate = schedule.rate_at(t);
    const std::vector<NDArray> g = gradients({line.loss(v, c)}, {v, c});
    {
      const NoGrad pause;
      v -= g[0] * rate;
      c -= g[1] * rate;
    }
    schedule.step();
    ASSERT_NEAR(v.item<double>(), w.item<double>(), 1e-12) << t;
    ASSERT_NEAR(c.item<double>(), b.item<double>(), 1e-12) << t;
  }
}

template <class Made, class Options>
void expect_learns(const Options& options, DType type, Context context, double tolerance) {
  const Line line(type, context);
  NDArray w = zeros({1, 1}, type, context).requires_grad_(), b = zeros({1}, type, context).requires_grad_();
  Made opt({{"w", w}, {"b", b}}, options);
  optim::CosineLR schedule(opt, {.steps = 300, .warmup = 10});
  for (int t = 0; t < 300; ++t) {
    opt.zero_grad();
    line.loss(w, b).backward();
    opt.step();
    schedule.step();
  }
  const NoGrad pause;
  EXPECT_NEAR(3, w.to(cpu()).to(f64).item<double>(), tolerance) << opt.name() << ' ' << type;
  EXPECT_NEAR(-2, b.to(cpu()).to(f64).item<double>(), tolerance) << opt.name() << ' ' << type;
}

TEST(Training, AllOptimisersFindTheLine) {
  for (const Context context : {cpu(), virt(0)}) {
    expect_learns<optim::SGD>(optim::SGDOptions{.lr = 0.3, .momentum = 0.5}, f32, context, 1e-4);
    expect_learns<optim::Adam>(optim::AdamOptions{.lr = 0.2}, f32, context, 1e-2);
    expect_learns<optim::AdamW>(optim::AdamWOptions{.lr = 0.2, .weight_decay = 1e-5}, f64, context, 1e-2);
  }
  expect_learns<optim::Adam>(optim::AdamOptions{.lr = 0.2}, bf16, cpu(), 0.1);
}

// Gradients of 2^-26 underflow to zero in f16; with a loss scale they do not.
TEST(Training, ALossScaleSavesSmallGradients) {
  const auto train = [](bool scaled) {
    NDArray w = ones({4}, f16).requires_grad_();
    optim::SGD opt({w}, {.lr = std::ldexp(1, 24)});
    optim::LossScale scale({.scale = 65536});
    if (scaled) opt.set_loss_scale(scale);
    const NDArray loss = sum(w.to(f32)) * std::ldexp(1, -26);
    (scaled ? scale(loss) : loss).backward();
    opt.step();
    const NoGrad pause;
    return w.to_vector<float>();
  };
  EXPECT_EQ(std::vector<float>(4, 1), train(false));
  EXPECT_EQ(std::vector<float>(4, 0.75), train(true));
}

TEST(Training, TheTapeSeesThatAStepHasChangedAParameter) {
  NDArray w = ones({3}).requires_grad_();
  optim::SGD opt({w}, {.lr = 1});
  const NDArray loss = sum(w * w);
  sum(w).backward();
  opt.step();
  EXPECT_TRUE(contains(error_of<InvalidState>([&] { loss.backward(); }), "changed"));
  EXPECT_TRUE(w.requires_grad());
}

TEST(Training, ResultsAreNoParameters) {
  NDArray w = ones({3}).requires_grad_();
  const NDArray result = w * 2;
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { optim::SGD opt({w, result}); }), "'1'"));
}

// With create_graph, gradients are recorded themselves. A step uses only their values.
TEST(Training, GradientsThatAreRecordedAreTakenAsTheyAre) {
  NDArray w = full({2}, 3).requires_grad_();
  optim::SGD opt({w}, {.lr = 0.125, .momentum = 0.5});
  for (int t = 0; t < 2; ++t) {
    opt.zero_grad(t == 1);
    sum(w * w).backward(BackwardOptions{.create_graph = true});
    opt.step();
  }
  opt.zero_grad();  // breaks a cycle: the gradient's graph holds w, and w holds its gradient
  // u = 6, w = 2.25; u = 3 + 4.5, w = 1.3125
  EXPECT_EQ(std::vector<float>(2, 1.3125f), w.to_vector<float>());
}

}  // namespace
}  // namespace mx
