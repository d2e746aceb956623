// Hooks that run when the gradient of a leaf has been updated.
#include "executor/autograd/post_accumulate.h"

#include <gtest/gtest.h>

#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "executor/autograd/autograd.h"
#include "executor/autograd/checkpoint.h"
#include "ndarray/grad_mode.h"
#include "operators/operators.h"
#include "optim/optimizers.h"
#include "tests/support/errors.h"
#include "tests/support/live_memory.h"
#include "tests/support/numeric_gradient.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::expect_error;

TEST(PostAccumulate, RunsOnceForEachPassWithTheWholeGradient) {
  const NDArray w = test::some({3}, 1).requires_grad_(), x = test::some({3}, 2).requires_grad_();
  std::vector<std::vector<double>> seen;
  HookHandle handle = add_post_accumulate_hook(w, [&](const NDArray& leaf) {
    EXPECT_TRUE(leaf.shares_memory(w));
    EXPECT_TRUE(leaf.requires_grad());
    EXPECT_EQ(w.grad().to_vector<double>(), leaf.grad().to_vector<double>());
    seen.push_back(leaf.grad().to_vector<double>());
  });
  const NDArray loss =
      sum(w * w * x + w[0] * 3) + sum(checkpoint([&](const NDArray& a) { return a * w; }, x));
  loss.backward({}, {.retain_graph = true});
  ASSERT_EQ(1u, seen.size());
  EXPECT_EQ(w.grad().to_vector<double>(), seen[0]);
  loss.backward({}, {.retain_graph = true});
  ASSERT_EQ(2u, seen.size()) << "and the gradient of the second pass was added";
  EXPECT_EQ((array(seen[0]) * 2).to_vector<double>(), seen[1]);
  gradients({loss}, {w}, {.retain_graph = true});
  sum(x * 2).backward();
  EXPECT_EQ(2u, seen.size());
  handle.remove();
  loss.backward();
  EXPECT_EQ(2u, seen.size());
}

TEST(PostAccumulate, MayUpdateTheLeafAndFreeTheGradient) {
  const auto train = [](bool in_backward) {
    std::vector<NDArray> weights;
    for (uint64_t i = 0; i < 3; ++i) weights.push_back(test::some({4, 4}, i).requires_grad_());
    std::vector<std::unique_ptr<optim::Adam>> optimizers;
    for (const NDArray& w : weights)
      optimizers.push_back(std::make_unique<optim::Adam>(Parameters{{w}}, optim::AdamOptions{.lr = 0.1}));
    std::vector<HookHandle> handles;
    for (size_t i = 0; i < 3 && in_backward; ++i)
      handles.push_back(add_post_accumulate_hook(weights[i], [&, i](const NDArray& leaf) {
        optimizers[i]->step();
        leaf.set_grad({});
      }));
    for (int step = 0; step < 4; ++step) {
      NDArray h = test::some({2, 4}, 9);
      for (const NDArray& w : weights) h = tanh(matmul(h, w));
      sum(h * h).backward();
      for (size_t i = 0; i < 3 && !in_backward; ++i) {
        optimizers[i]->step();
        optimizers[i]->zero_grad();
      }
    }
    std::vector<double> values;
    for (const NDArray& w : weights) {
      EXPECT_FALSE(w.grad().defined());
      for (double v : w.to_vector<double>()) values.push_back(v);
    }
    return values;
  };
  EXPECT_EQ(train(false), train(true));
}

// The last layer's hook runs before the gradient of the first layer is computed.
TEST(PostAccumulate, RunsAsSoonAsNoOperationIsLeftThatUsesTheLeaf) {
  const NDArray first = test::some({3}, 1).requires_grad_(), last = test::some({3}, 2).requires_grad_();
  std::vector<std::string> order;
  NDArray h = first * 2;
  h.add_grad_hook([&](const NDArray&) {
    order.push_back("activation");
    return NDArray();
  });
  add_post_accumulate_hook(first, [&](const NDArray&) { order.push_back("first"); });
  add_post_accumulate_hook(last, [&](const NDArray&) { order.push_back("last"); });
  sum(exp(h) * last * last).backward();
  EXPECT_EQ((std::vector<std::string>{"last", "activation", "first"}), order);
  order.clear();
  sum(exp(h = first * last) * last).backward();  // used by the first operation, too
  EXPECT_EQ(2u, order.size());
}

TEST(PostAccumulate, GradientsOfAModelAreNeverAllInMemory) {
  constexpr int kLayers = 16;
  constexpr int64_t kWidth = 128;
  const auto peak = [&](bool frees) {
    std::vector<NDArray> weights;
    size_t most = 0;
    std::vector<HookHandle> handles;
    for (int i = 0; i < kLayers; ++i)
      weights.push_back((test::some({kWidth, kWidth}, 1) * 0.01).requires_grad_());
    const size_t before = test::settled_bytes();
    for (const NDArray& w : weights)
      handles.push_back(add_post_accumulate_hook(w, [&, frees](const NDArray& leaf) {
        leaf.grad().wait();
        most = std::max(most, test::live_bytes() - before);
        if (frees) leaf.set_grad({});
      }));
    NDArray h = test::some({1, kWidth}, 2);
    for (const NDArray& w : weights) h = matmul(h, w);
    sum(h).backward();
    return most;
  };
  const size_t one = kWidth * kWidth * sizeof(double);
  EXPECT_GT(peak(false), kLayers * one);
  EXPECT_LT(peak(true), kLayers / 2 * one);
}

TEST(PostAccumulate, AnErrorNamesTheLineThatAddedTheHook) {
  const NDArray w = test::some({3}, 1).requires_grad_();
  bool fails = true;
  const auto line = std::to_string(__LINE__ + 1);
  const HookHandle handle = add_post_accumulate_hook(w, [&](const NDArray&) {
    if (fails) throw InvalidState("no such optimiser");
  });
  const NDArray loss = sum(exp(w));
  const std::string message = error_of<InvalidState>([&] { loss.backward({}, {.retain_graph = true}); });
  EXPECT_TRUE(contains(message, "no such optimiser")) << message;
  EXPECT_TRUE(contains(message, "post_accumulate_test.cc:" + line)) << message;
  EXPECT_EQ(exp(w).to_vector<double>(), w.grad().to_vector<double>());
  fails = false;
  loss.backward();
  EXPECT_EQ((exp(w) * 2).to_vector<double>(), w.grad().to_vector<double>());
}

TEST(PostAccumulate, TakesLeavesOnly) {
  const NDArray w = test::some({3}, 1).requires_grad_();
  const auto nothing = [](const NDArray&) {};
  expect_error<InvalidState>("the result of an operation", [&] { add_post_accumulate_hook(w * 2, nothing); });
  expect_error<InvalidState>("one without", [&] { add_post_accumulate_hook(ones({2}), nothing); });
  expect_error<InvalidArgument>("post_accumulate_test.cc", [&] { add_post_accumulate_hook(w, {}); });
}

TEST(PostAccumulate, AHookDoesNotKeepItsArrayAlive) {
  const size_t before = test::settled_bytes();
  {
    const NDArray w = test::some({1000}, 1).requires_grad_();
    add_post_accumulate_hook(w, [](const NDArray& leaf) { leaf.set_grad({}); });
    sum(w * w).backward();
  }
  EXPECT_TRUE(test::comes_down_to(before));
}

// The pass updates the gradient of such a leaf before its end.
TEST(PostAccumulate, AGradientMayBeAHeadOfItsPass) {
  const NDArray b = ones({2}, f64).requires_grad_(), c = b * 3;
  const NDArray x = ones({2}, f64).requires_grad_(), y = x * 2;
  x.set_grad(array({1.0, 10.0}));
  add_post_accumulate_hook(x, [](const NDArray&) {});
  mx::backward({y, c}, {x.grad(), x.grad()});
  EXPECT_EQ((std::vector<double>{3, 30}), x.grad().to_vector<double>());
  EXPECT_EQ((std::vector<double>{3, 30}), b.grad().to_vector<double>());
}

}  // namespace
}  // namespace mx
