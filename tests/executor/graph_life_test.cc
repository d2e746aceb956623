// The lifetime of graphs, and their maximum length.
#include <gtest/gtest.h>

#include <thread>
#include <vector>

#include "executor/autograd/autograd.h"
#include "operators/operators.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/live_memory.h"
#include "tests/support/numeric_gradient.h"

namespace mx {
namespace {

using test::comes_down_to;
using test::contains;
using test::live_bytes;
using test::settled_bytes;

TEST(GraphLife, AThousandStepsLeaveNothingBehind) {
  NDArray w = test::some({64, 64}).requires_grad_();
  const NDArray x = test::some({64, 64}, 2);
  const auto step = [&] {
    sum(tanh(matmul(x, w)) * w).backward();
    w.set_grad({});
  };
  for (int i = 0; i < 5; ++i) step();
  const size_t before = settled_bytes();
  for (int i = 0; i < 1000; ++i) step();
  EXPECT_TRUE(comes_down_to(before)) << live_bytes() << " bytes instead of " << before;
}

// An array gets a variable when the first operation touches it. The variable is deleted with its array.
TEST(GraphLife, AThousandStepsLeaveNoArraysBehind) {
  Engine engine{test::threaded_case(2).options};
  EngineScope scope(engine);
  NDArray w = test::some({8, 8}).to(virt(0)).requires_grad_();
  const NDArray x = test::some({8, 8}, 2).to(virt(0));
  const auto step = [&](bool again) {
    const NDArray loss = sum(tanh(matmul(x, w)) * w);
    if (again) {
      const NDArray g = gradients({loss}, {w}, {.create_graph = true})[0];
      sum(g * g).backward();
    } else {
      loss.backward();
    }
    w.set_grad({});
  };
  for (const bool again : {false, true}) {
    for (int i = 0; i < 5; ++i) step(again);
    engine.wait_all();
    const uint64_t before = engine.stats().vars;
    EXPECT_GT(before, 0u);
    for (int i = 0; i < 1000; ++i) step(again);
    engine.wait_all();
    for (int i = 0; i < 100'000 && engine.stats().vars > before; ++i) std::this_thread::yield();
    EXPECT_LE(engine.stats().vars, before) << (again ? "with gradients of gradients" : "plain");
  }
}

TEST(GraphLife, AGraphGoesWithItsLastArray) {
  const size_t before = settled_bytes();
  {
    NDArray w = test::some({128, 128}).requires_grad_();
    NDArray y = w;
    for (int i = 0; i < 20; ++i) y = tanh(y);
  }
  EXPECT_TRUE(comes_down_to(before)) << live_bytes() << " bytes instead of " << before;
}

TEST(GraphLife, SavedValuesGoAsBackwardPasses) {
  NDArray w = test::some({128, 128}).requires_grad_();
  NDArray y = w;
  for (int i = 0; i < 20; ++i) y = tanh(y);
  NDArray z = sum(y);
  y = {};
  const size_t with_graph = settled_bytes();
  z.backward();
  EXPECT_TRUE(comes_down_to(with_graph - 18 * 128 * 128 * sizeof(double)))
      << live_bytes() << " bytes after, " << with_graph << " before, though z is still there";
}

TEST(GraphLife, WhatTheGradientDoesNotLookAtIsNotKept) {
  NDArray w = test::some({128, 128}).requires_grad_();
  const size_t before = settled_bytes();
  NDArray y = w;
  for (int i = 0; i < 20; ++i) y = y + 1.0;
  EXPECT_TRUE(comes_down_to(before + 2 * 128 * 128 * sizeof(double))) << live_bytes() - before;
}

// The bias needs a gradient, but that gradient reads no weight.
TEST(GraphLife, AWeightMayChangeIfOnlyTheGradientOfXWouldReadIt) {
  const NDArray x = test::some({2, 3}), image = test::some({1, 3, 2, 2});
  NDArray w = test::some({3, 3}).requires_grad_(), b = test::some({3}).requires_grad_();
  const auto changed = [&](const NDArray& y) {
    {
      const NoGrad pause;
      w.fill_(1);
    }
    return sum(y);
  };
  changed(linear(x, w, b)).backward();
  test::expect_close(sum(x, 0).broadcast_to({3, 3}).to_vector<double>(), w.grad().to_vector<double>(), 1e-12,
                     "w");
  EXPECT_EQ((std::vector<double>{2, 2, 2}), b.grad().to_vector<double>());
  changed(addmm(b, x, w)).backward();
  changed(convolution(image, w.reshape({3, 3, 1, 1}), b)).backward();
  changed(convolution_transpose(image, w.reshape({3, 3, 1, 1}), b)).backward();
  // With a gradient of x, it reads the weight.
  const NDArray moving = x.clone().requires_grad_();
  for (const NDArray& y : {linear(moving, w, b), addmm(b, moving, w)})
    EXPECT_TRUE(contains(test::error_of<InvalidState>([&] { changed(y).backward(); }), "changed in place"));
}

TEST(GraphLife, TheWeightOfANormalisationMayChangeIfOnlyTheGradientOfXWouldReadIt) {
  using Norm = std::function<NDArray(const NDArray& x, const NDArray& weight, const NDArray& bias)>;
  const NDArray mean = zeros({4}, f64), variance = full({4}, 2, f64);
  const std::vector<Norm> norms = {
      [](const NDArray& x, const NDArray& w, const NDArray& b) { return batch_norm(x, w, b).y; },
      [](const NDArray& x, const NDArray& w, const NDArray& b) { return group_norm(x, 2, w, b); },
      [](const NDArray& x, const NDArray& w, const NDArray& b) { return layer_norm(x, {4}, w, b); },
      [](const NDArray& x, const NDArray& w, const NDArray& b) { return rms_norm(x, {4}, w) + b; },
      [&](const NDArray& x, const NDArray& w, const NDArray& b) {
        return batch_norm_inference(x, mean, variance, w, b);
      }};
  const NDArray x = test::some({3, 4}), head = test::some({3, 4}, 2);
  const auto changed = [&](const Norm& norm, const NDArray& input, NDArray& w, NDArray& b, bool change) {
    const NDArray loss = sum(norm(input, w, b) * head);
    const NoGrad pause;
    if (change) w.fill_(1);
    return loss;
  };
  for (size_t i = 0; i < norms.size(); ++i) {
    SCOPED_TRACE(i);
    std::vector<double> gradients[2];
    for (const bool change : {false, true}) {
      NDArray w = test::some({4}, 3).requires_grad_(), b = test::some({4}, 4).requires_grad_();
      changed(norms[i], x, w, b, change).backward();
      gradients[change] = w.grad().to_vector<double>();
      for (const double d : b.grad().to_vector<double>()) gradients[change].push_back(d);
    }
    EXPECT_EQ(gradients[0], gradients[1]);
    NDArray w = test::some({4}, 3).requires_grad_(), b = test::some({4}, 4).requires_grad_();
    EXPECT_TRUE(contains(test::error_of<InvalidState>(
                             [&] { changed(norms[i], x.clone().requires_grad_(), w, b, true).backward(); }),
                         "changed in place"));
  }
}

TEST(GraphLife, AChainOfAHundredThousandNeedsNoDeepStack) {
  NDArray x = test::some({2}).requires_grad_();
  std::thread([&] {  // in a thread with the default stack size
    NDArray y = x;
    for (int i = 0; i < 100'000; ++i) y = y + 1.0;
    sum(y).backward();
    NDArray g = gradients({sum(y * y)}, {x})[0];  // additions save no values
    NDArray unused = y;
    for (int i = 0; i < 100'000; ++i) unused = unused * 1.0;
  })
      .join();
  EXPECT_EQ((std::vector<double>{1, 1}), x.grad().to_vector<double>());
}

TEST(GraphLife, LengthsMayDifferFromStepToStep) {
  NDArray w = test::some({3, 3}).requires_grad_();
  for (int64_t length : {1, 7, 2, 0, 5}) {
    w.set_grad({});
    NDArray h = test::some({1, 3}, 9);
    for (int64_t t = 0; t < length; ++t) h = tanh(matmul(h, w));
    const NDArray loss = sum(h);
    if (length > 0) loss.backward();
    const auto f = [&](const std::vector<NDArray>& a) {
      NDArray g = test::some({1, 3}, 9);
      for (int64_t t = 0; t < length; ++t) g = tanh(matmul(g, a[0]));
      return sum(g);
    };
    const NDArray grad = w.grad().defined() ? w.grad() : zeros({3, 3}, f64);
    test::expect_close(test::numeric_gradient(f, {w.detach()}, 0), grad.to_vector<double>(), 1e-6, "length");
  }
}

TEST(GraphLife, AGradientForAnArrayThatHasGoneIsDropped) {
  NDArray w = test::some({3}, 2).requires_grad_(), y;
  {
    const NDArray x = test::some({3}).requires_grad_(), z = x * w;
    z.retain_grad();
    y = sum(z * z);
  }
  y.backward();
  EXPECT_TRUE(w.grad().defined());
}

TEST(GraphLife, APlainPassReplacesAGradientThatHasAGraph) {
  NDArray x = test::some({3}).requires_grad_(GradReq::write);
  const NDArray loss = sum(x * x * x);
  loss.backward({.create_graph = true});
  EXPECT_TRUE(x.grad().requires_grad());
  loss.backward();
  EXPECT_FALSE(x.grad().requires_grad());
  test::expect_close((x.detach() * x.detach() * 3).to_vector<double>(), x.grad().to_vector<double>(), 1e-12,
                     "gradient");
}

TEST(GraphLife, AGraphMayEndOnAnotherThread) {
  NDArray x = test::some({16}).requires_grad_();
  NDArray y = exp(x);
  for (int i = 0; i < 1000; ++i) y = tanh(y);
  std::thread([z = std::move(y)]() mutable { sum(z).backward(); }).join();
  EXPECT_TRUE(x.grad().defined());
}

}  // namespace
}  // namespace mx
