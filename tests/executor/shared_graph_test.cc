// Several threads that run a backward pass through one retained graph, or that record on the same arrays.
#include <gtest/gtest.h>

#include <atomic>
#include <latch>
#include <thread>
#include <vector>

#include "executor/autograd/autograd.h"
#include "operators/operators.h"
#include "tests/support/numeric_gradient.h"

namespace mx {
namespace {

// Two backward passes, A and B, both add two contributions to the node of `shared`. The hooks fix the order:
//
//   A: first contribution | waits ............. | second, visits and releases the node, ends
//   B:                      first contribution  | waits until A has ended ................. | second
//
// B started while A was using the node, and must continue with its own gradient state.
TEST(SharedGraph, APassKeepsItsGradientWhenAnotherOneReleasesTheNodeMeanwhile) {
  thread_local bool is_first = false;
  const NDArray x = array({1.0}).requires_grad_();
  const NDArray shared = x * 2;
  const NDArray late = shared * 1, early = shared * 5;  // the backward pass visits the latest node first
  const NDArray y = late + early;
  std::latch first_contributed(1), second_contributed(1), first_ended(1);
  std::atomic<int> visits{0};
  late.add_grad_hook([&](const NDArray&) -> NDArray {
    if (is_first) {
      first_contributed.count_down();
      second_contributed.wait();
    } else {
      second_contributed.count_down();
      first_ended.wait();
    }
    return {};
  });
  shared.add_grad_hook([&](const NDArray&) -> NDArray {
    ++visits;
    return {};
  });
  NDArray of_first, of_second;
  std::thread first([&] {
    is_first = true;
    of_first = gradients({y}, {x}, {.retain_graph = true})[0];
    first_ended.count_down();
  });
  std::thread second([&] {
    first_contributed.wait();
    of_second = gradients({y}, {x}, {.retain_graph = true})[0];
  });
  first.join();
  second.join();
  EXPECT_EQ(12, of_first.item<double>());
  EXPECT_EQ(12, of_second.item<double>());
  EXPECT_EQ(2, visits) << "once per pass";
}

TEST(SharedGraph, ManyPassesThroughOneGraphAllGetTheWholeGradient) {
  const NDArray x = test::some({4}).requires_grad_();
  const NDArray base = x * 1.0;
  NDArray y = base;
  for (int i = 0; i < 20; ++i) y = tanh(y + base * 0.5) + y[{Slice{{}, {}, -1}}] * base;
  const NDArray loss = sum(y);
  const std::vector<double> expected = gradients({loss}, {x}, {.retain_graph = true})[0].to_vector<double>();
  constexpr int kThreads = 4, kRounds = 50;
  std::latch start(kThreads);
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t)
    threads.emplace_back([&] {
      start.arrive_and_wait();
      for (int i = 0; i < kRounds; ++i) {
        const NDArray g = gradients({loss}, {x}, {.retain_graph = true})[0];
        EXPECT_EQ(expected, g.to_vector<double>());
      }
    });
  for (std::thread& thread : threads) thread.join();
}

// The view's graph node is created at the first use of the view, here by several threads at once.
TEST(SharedGraph, SeveralThreadsMayUseAViewForTheFirstTime) {
  constexpr int kThreads = 4;
  for (int round = 0; round < 200; ++round) {
    const NDArray x = array({1.0, 2.0, 3.0}).requires_grad_();
    NDArray y = x * 2;
    const NDArray view = y.slice(0, {1, {}});
    y *= 3.0;
    std::latch start(kThreads);
    std::vector<std::thread> threads;
    std::vector<NDArray> found(kThreads);
    for (size_t t = 0; t < kThreads; ++t)
      threads.emplace_back([&, t] {
        start.arrive_and_wait();
        found[t] = gradients({sum(view * 5.0)}, {x}, {.retain_graph = true})[0];
      });
    for (std::thread& thread : threads) thread.join();
    for (const NDArray& g : found) ASSERT_EQ((std::vector<double>{0, 30, 30}), g.to_vector<double>());
  }
}

}  // namespace
}  // namespace mx
