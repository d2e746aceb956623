// Graphs contain no reference cycles: a recorded graph without a backward pass is destroyed with its arrays.
// The memory of programs that record and drop everything must stay constant.
#include <gtest/gtest.h>

#include <functional>
#include <utility>
#include <vector>

#include "executor/autograd/autograd.h"
#include "executor/autograd/functional.h"
#include "operators/operators.h"
#include "tests/support/live_memory.h"
#include "tests/support/numeric_gradient.h"

namespace mx {
namespace {

constexpr int64_t kSide = 64;
constexpr size_t kArrayBytes = kSide * kSide * sizeof(double);

struct Square : Function {
  std::vector<NDArray> forward(std::span<const NDArray> in) override {
    x = in[0];
    return {y = in[0] * in[0]};
  }
  std::vector<NDArray> backward(std::span<const NDArray> heads) override { return {heads[0] * x * 2}; }
  NDArray x, y;
};

const NDArray& weights() {
  static const NDArray w = (test::some({kSide, kSide}, 3) * 0.1).requires_grad_();
  return w;
}
NDArray plain() { return test::some({kSide, kSide}, 5) * 1.0; }

// Programs that each record a computation and drop it.
std::vector<std::pair<const char*, std::function<void()>>> programs() {
  const auto w = [] { return weights(); };
  return {
      {"a sum in place of products with itself",
       [=] {
         NDArray h = w() * 2;
         h += h * w();
       }},
      {"the same from a plain array",
       [=] {
         NDArray h = plain();
         for (int i = 0; i < 3; ++i) h += h * w();
       }},
      {"a plain factor that is recorded later",
       [=] {
         NDArray c = plain();
         const NDArray y = w() * c;
         c.copy_from(y);
       }},
      {"a view of itself",
       [=] {
         NDArray h = w() * 2;
         h[0] += h[1] * w()[0];
       }},
      {"an operand that was a view",
       [=] {
         NDArray h = w() * 2;
         const NDArray t = h.transpose() * w();
         h.copy_from(t);
       }},
      {"an output that is kept",
       [=] {
         NDArray h = exp(w());
         h *= tanh(h);
       }},
      {"an indexed assignment",
       [=] {
         NDArray h = w() * 2;
         const NDArray rows = array<int64_t>({0, 2});
         h[rows] = h[rows] * h[rows];
       }},
      {"a function that keeps its input and its output",
       [=] {
         NDArray h = w() * 2;
         h.copy_from(apply<Square>({h})[0]);
       }},
      {"a retained gradient with a graph",
       [=] {
         const NDArray h = w() * 2;
         h.retain_grad();
         sum(h * h * h).backward({.create_graph = true});
         EXPECT_TRUE(h.grad().requires_grad());
         weights().set_grad({});
       }},
      {"a gradient with a graph",
       [=] {
         NDArray x = plain().requires_grad_();
         sum(x * x * x).backward({.create_graph = true});
         EXPECT_TRUE(x.grad().requires_grad());
       }},
      {"a gradient with a graph that was added to",
       [=] {
         NDArray x = plain().requires_grad_();
         const NDArray loss = sum(x * x * x);
         for (int i = 0; i < 2; ++i) loss.backward({.create_graph = true});
         sum(x.grad() * x).backward({.create_graph = true});
       }},
      {"a hook that is never called",
       [=] {
         NDArray h = w() * 2;
         h.add_grad_hook([](const NDArray& g) { return g * 2; });
         h += h * w();
       }},
      {"functions of functions",
       [=] {
         const auto f = [](const NDArray& x) { return sum(x * x * x); };
         const NDArray g = grad([&](const NDArray& x) { return sum(grad(f)(x) * x); })(w());
       }},
      {"an evaluation without NoGrad",
       [=] {
         NDArray h = plain();
         for (int layer = 0; layer < 4; ++layer) h = tanh(matmul(h, w())) + h;
         h -= mean(h);
         h *= h.clone();
       }},
  };
}

TEST(GraphCycle, WhatIsRecordedAndDroppedLeavesNothingBehind) {
  for (const auto& [what, program] : programs()) {
    program();
    const size_t before = test::settled_bytes();
    constexpr int kTimes = 20;
    for (int i = 0; i < kTimes; ++i) program();
    EXPECT_TRUE(test::comes_down_to(before + kArrayBytes))
        << what << " leaves " << (test::live_bytes() - before) / kTimes << " bytes each time";
  }
}

}  // namespace
}  // namespace mx
