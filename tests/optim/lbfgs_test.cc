// LBFGS: minima that are known, the conditions of the line search, resuming, and errors.
#include "optim/lbfgs.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "tests/optim/held_gradients.h"
#include "tests/optim/plain_lbfgs.h"
#include "tests/support/errors.h"

namespace mx::optim {
namespace {

using test::contains;
using test::error_of;
using test::HeldGradients;

/// Sets `g` to the gradient and returns the loss.
using Loss = std::function<double(const std::vector<double>& x, std::vector<double>& g)>;

double rosenbrock(const std::vector<double>& x, std::vector<double>& g) {
  double loss = 0;
  for (size_t i = 0; i + 1 < x.size(); ++i) {
    const double gap = x[i + 1] - x[i] * x[i];
    loss += 100 * gap * gap + (1 - x[i]) * (1 - x[i]);
    g[i] += -400 * gap * x[i] - 2 * (1 - x[i]);
    g[i + 1] += 200 * gap;
  }
  return loss;
}

/// Two parameters, whose elements together are the variables of a loss.
struct Problem {
  Loss loss;
  NDArray a, b;
  std::vector<double> losses{};

  Problem(Loss of, const std::vector<double>& first, const std::vector<double>& second, DType type = f64)
      : loss(std::move(of)), a(array(first).to(type)), b(array(second).to(type)) {
    a.requires_grad_();
    b.requires_grad_();
  }
  std::vector<double> values() const {
    std::vector<double> x = a.detach().to(f64).to_vector<double>();
    for (const double v : b.detach().to(f64).to_vector<double>()) x.push_back(v);
    return x;
  }
  NDArray operator()() {
    const std::vector<double> x = values();
    std::vector<double> g(x.size());
    losses.push_back(loss(x, g));
    const auto middle = g.begin() + a.numel();
    a.set_grad(array(std::vector<double>(g.begin(), middle)).to(a.dtype()));
    b.set_grad(array(std::vector<double>(middle, g.end())).to(a.dtype()));
    return scalar_array(losses.back(), f64);
  }
};

TEST(Lbfgs, FindsTheMinimumOfRosenbrocksFunction) {
  const HeldGradients held;
  Problem problem(rosenbrock, {-1.2, 1, -1}, {1.5, -0.3});
  LBFGS opt({problem.a, problem.b}, {.strong_wolfe = true});
  for (int i = 0; i < 5; ++i) opt.step([&] { return problem(); });
  for (const double x : problem.values()) EXPECT_NEAR(1, x, 1e-5);
  EXPECT_LT(opt.evaluations(), 120);
  EXPECT_EQ(static_cast<int64_t>(problem.losses.size()), opt.evaluations());
}

TEST(Lbfgs, F32ReachesItsPrecision) {
  const HeldGradients held;
  Problem problem(rosenbrock, {-1.2}, {1.5}, f32);
  LBFGS opt({problem.a, problem.b}, {.history_size = 5, .strong_wolfe = true});
  for (int i = 0; i < 5; ++i) opt.step([&] { return problem(); });
  for (const double x : problem.values()) EXPECT_NEAR(1, x, 1e-3);
}

// A quadratic function of n variables needs about n iterations with exact line searches, and few more here.
TEST(Lbfgs, AQuadraticFunctionNeedsFewIterations) {
  const HeldGradients held;
  const auto quadratic = [](const std::vector<double>& x, std::vector<double>& g) {
    double loss = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double scale = std::pow(10.0, static_cast<double>(i) / 2);
      loss += scale * x[i] * x[i] / 2;
      g[i] = scale * x[i];
    }
    return loss;
  };
  Problem problem(quadratic, {3, -2, 1}, {4, -5, 2});
  LBFGS opt({problem.a, problem.b}, {.max_iter = 40, .strong_wolfe = true});
  opt.step([&] { return problem(); });
  for (const double x : problem.values()) EXPECT_NEAR(0, x, 1e-5);
  EXPECT_LE(opt.iterations(), 25);
}

// The minimum moves with every step and is not reached: there, differences of rounding decide. The loss is
// not quadratic, and for some rates the first length of a search is far too long or too short.
TEST(Lbfgs, AThousandStepsAreThoseOfTheFormulas) {
  const HeldGradients held;
  int step = 0;
  const auto moving = [&step](const std::vector<double>& x, std::vector<double>& g) {
    double loss = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const auto place = static_cast<double>(i);
      const double gap = x[i] - std::sin(0.7 * (place + 1) + 0.13 * step), next = x[(i + 1) % x.size()];
      loss += (gap * gap / 2 + std::pow(gap, 4) / 8) * (1 + place) + 0.3 * std::sin(x[i]) * next;
      g[i] += (gap + std::pow(gap, 3) / 2) * (1 + place) + 0.3 * std::cos(x[i]) * next;
      g[(i + 1) % x.size()] += 0.3 * std::sin(x[i]);
    }
    return loss;
  };
  for (const bool wolfe : {false, true})
    for (const double rate : {0.05, 0.4, 1.0, 7.0})
      for (const int64_t history : {2, 10}) {
        if (!wolfe && rate >= 1) continue;  // chaotic
        const int most = wolfe ? 2 : 4;
        SCOPED_TRACE(std::to_string(wolfe) + ' ' + std::to_string(rate) + ' ' + std::to_string(history));
        Problem problem(moving, {0.3, -1.2, 0.05}, {2, -0.4});
        LBFGS opt(
            {problem.a, problem.b},
            {.lr = rate, .max_iter = most, .max_eval = 30, .history_size = history, .strong_wolfe = wolfe});
        test::PlainLbfgs plain;
        plain.rate = rate;
        plain.max_iter = most;
        plain.max_eval = 30;
        plain.history = static_cast<size_t>(history);
        plain.strong_wolfe = wolfe;
        plain.x = problem.values();
        for (step = 1; step <= 1000; ++step) {
          opt.step([&] { return problem(); });
          plain.step(moving);
          const std::vector<double> x = problem.values();
          ASSERT_EQ(plain.evaluations, opt.evaluations()) << "step " << step;
          for (size_t i = 0; i < x.size(); ++i) ASSERT_NEAR(plain.x[i], x[i], 1e-9) << "step " << step;
          // Differences of rounding grow from step to step.
          if (step % 5 == 0) plain.resume(x, opt.state_dict());
        }
        EXPECT_EQ(plain.iterations, opt.iterations());
        EXPECT_GT(plain.iterations, 1900);
      }
}

// Along the direction of each iteration the loss decreases by enough, and the slope by enough.
TEST(Lbfgs, EveryStepSatisfiesTheStrongWolfeConditions) {
  const HeldGradients held;
  Problem problem(rosenbrock, {-1.2, 1}, {0.7, 2});
  LBFGS opt({problem.a, problem.b}, {.max_iter = 1, .max_eval = 50, .strong_wolfe = true});
  int checked = 0;
  for (int i = 0; i < 30; ++i) {
    const std::vector<double> before = problem.values();
    opt.step([&] { return problem(); });
    const std::vector<double> after = problem.values();
    std::vector<double> g0(before.size()), g1(before.size());
    const double f0 = rosenbrock(before, g0), f1 = rosenbrock(after, g1);
    double s0 = 0, s1 = 0;
    for (size_t k = 0; k < before.size(); ++k) {
      s0 += g0[k] * (after[k] - before[k]);
      s1 += g1[k] * (after[k] - before[k]);
    }
    if (f0 < 1e-12) break;
    EXPECT_LT(s0, 0);
    EXPECT_LE(f1, f0 + 1e-4 * s0 + 1e-14) << "iteration " << i;
    EXPECT_LE(std::fabs(s1), -0.9 * s0 + 1e-14) << "iteration " << i;
    ++checked;
  }
  EXPECT_GT(checked, 10);
}

// As in PyTorch, a search may try as many further points as evaluations are left, after its first.
TEST(Lbfgs, ASearchEndsAtTheLargestNumberOfEvaluations) {
  const HeldGradients held;
  const auto away = [](const std::vector<double>& x, std::vector<double>& g) {
    double loss = 0;
    for (size_t i = 0; i < x.size(); ++i)
      loss -= std::log1p(std::exp(x[i])), g[i] = -1 / (1 + std::exp(-x[i]));
    return loss;
  };
  for (const int64_t most : {1, 2, 3, 5, 9}) {
    Problem problem(away, {0.3, -1.2}, {2}), kinks(rosenbrock, {-1.2, 1}, {0.7, 2});
    LBFGS a({problem.a, problem.b}, {.lr = 1e-6, .max_eval = most, .strong_wolfe = true});
    a.step([&] { return problem(); });
    EXPECT_LE(a.evaluations(), most + 1);
    EXPECT_GE(a.evaluations(), most);
    LBFGS b({kinks.a, kinks.b}, {.lr = 50, .max_eval = most, .strong_wolfe = true});
    b.step([&] { return kinks(); });
    EXPECT_LE(b.evaluations(), most + 1);
  }
}

TEST(Lbfgs, ALossThatIsNotANumberIsSteppedBackFrom) {
  const HeldGradients held;
  const auto logarithm = [](const std::vector<double>& x, std::vector<double>& g) {
    g = {1 - 1 / x[0], 2 * x[1]};
    return x[0] - std::log(x[0]) + x[1] * x[1];  // not a number for x[0] < 0
  };
  Problem problem(logarithm, {8}, {1});
  LBFGS opt({problem.a, problem.b}, {.lr = 30, .max_iter = 60, .strong_wolfe = true});
  opt.step([&] { return problem(); });
  EXPECT_NEAR(1, problem.values()[0], 1e-4);
}

TEST(Lbfgs, ARunThatIsResumedHasTheSameBits) {
  const HeldGradients held;
  const LBFGSOptions options{.max_iter = 3, .history_size = 3, .strong_wolfe = true};
  Problem whole(rosenbrock, {-1.2, 1}, {0.7, 2}), half = whole;
  half.a = whole.a.detach().clone().requires_grad_();
  half.b = whole.b.detach().clone().requires_grad_();
  LBFGS a({whole.a, whole.b}, options), b({half.a, half.b}, options);
  for (int i = 0; i < 4; ++i) a.step([&] { return whole(); });
  for (int i = 0; i < 2; ++i) b.step([&] { return half(); });
  LBFGS c({half.a, half.b}, options);
  c.load_state_dict(LBFGS({half.a, half.b}, options).state_dict());  // of an optimiser without steps
  EXPECT_EQ(0, c.iterations());
  c.load_state_dict(b.state_dict());
  EXPECT_EQ(b.iterations(), c.iterations());
  for (int i = 0; i < 2; ++i) c.step([&] { return half(); });
  EXPECT_EQ(whole.values(), half.values());
  EXPECT_EQ(a.iterations(), c.iterations());

  NamedArrays bad = a.state_dict();
  bad[4].second = zeros({7}, f64);
  EXPECT_TRUE(contains(error_of<InvalidArgument>([&] { c.load_state_dict(bad); }), "d: expected"));
  EXPECT_EQ(a.iterations(), c.iterations());
}

TEST(Lbfgs, AnErrorInTheClosureLeavesTheParametersOfTheIterationBefore) {
  const HeldGradients held;
  Problem problem(rosenbrock, {-1.2}, {1});
  LBFGS opt({problem.a, problem.b}, {.strong_wolfe = true});
  const std::vector<double> before = problem.values();
  int calls = 0;
  const auto fails = [&] {
    if (++calls == 2) throw InvalidState("no loss today");
    return problem();
  };
  EXPECT_TRUE(contains(error_of<InvalidState>([&] { opt.step(fails); }), "no loss today"));
  EXPECT_EQ(before, problem.values());
}

TEST(Lbfgs, WhatIsWrongIsSaid) {
  const HeldGradients held;
  const NDArray w = ones({2});
  std::string message = error_of<InvalidArgument>([&] {
    LBFGS opt({w, ones({2}, f64), ones({2, 3}).transpose()}, {.lr = 0, .max_iter = 0, .history_size = 0});
  });
  for (const char* part : {"[lbfgs]", "lr above 0, got 0", "max_iter", "history_size", "parameter 1",
                           "parameter 2", "not contiguous", "lbfgs_test.cc"})
    EXPECT_TRUE(contains(message, part)) << part << " in " << message;
  error_of<InvalidArgument>([] { LBFGS opt({}); });
  LBFGS opt({w});
  message = error_of<InvalidArgument>([&] { opt.step([] { return ones({2}); }); });
  EXPECT_TRUE(contains(message, "one floating-point number, got f32 (2,)")) << message;
  error_of<InvalidArgument>([&] { opt.set_learning_rate(-1); });
  message = error_of<InvalidArgument>([&] { opt.set_learning_rate(HUGE_VAL); });
  EXPECT_TRUE(contains(message, "above 0 and finite, got inf")) << message;
  message = error_of<InvalidArgument>([&] { opt.step(nullptr); });
  EXPECT_TRUE(contains(message, "expected a function, got an empty one")) << message;
  EXPECT_TRUE(contains(message, "lbfgs_test.cc")) << message;
}

}  // namespace
}  // namespace mx::optim
