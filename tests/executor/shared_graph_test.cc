// Several threads that run a backward pass through one retained graph, or that record on the same arrays.
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <latch>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "executor/autograd/autograd.h"
#include "operators/custom.h"
#include "operators/operators.h"
#include "tests/support/errors.h"
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

// The pass that is inside of a node without having been asked to retain the graph owns what the node has
// saved. `reached`: the first call of a gradient is inside; it goes on when `others_done`.
struct Meeting {
  std::latch reached{1}, others_done{1};
  std::atomic<int> calls{0};
  void visit() {
    if (calls++ > 0) return;
    reached.count_down();
    others_done.wait();
  }
};
Meeting* meeting = nullptr;  // of the test that runs

struct MeetingOperator : CustomOp {
  static Operator record() { return {.kernel = {"meeting"}, .doc = "x * x.", .inputs = {"x"}}; }
  void infer(InferContext& c) const { c.output(c.shape(0), c.dtype(0)); }
  void forward(const KernelArgs& args) const {
    const double* x = args.in[0].as<double>();
    double* y = args.out[0].as<double>();
    for (int64_t i = 0; i < args.in[0].shape.numel(); ++i) y[i] = x[i] * x[i];
  }
  void gradient(GradientContext& g) const {
    meeting->visit();
    g.set(0, g.head() * g.input(0) * 2);
  }
};
struct MeetingFunction : Function {
  std::vector<NDArray> forward(std::span<const NDArray> in) override {
    save({in[0]});
    return {in[0] * in[0]};
  }
  std::vector<NDArray> backward(std::span<const NDArray> heads) override {
    meeting->visit();
    return {heads[0] * saved(0) * 2};
  }
};

// Two passes meet in one node of a graph that the first one frees. The second one, which may want to retain
// the graph, gets an error and changes nothing.
void expect_one_winner(const std::function<NDArray(const NDArray&)>& f, bool second_retains) {
  Meeting here;
  meeting = &here;
  const NDArray x = array({1.0, 3.0}).requires_grad_();
  const NDArray loss = sum(f(x));
  std::thread first([&] { loss.backward(); });
  here.reached.wait();
  const std::string text =
      test::error_of<InvalidState>([&] { loss.backward({}, {.retain_graph = second_retains}); });
  here.others_done.count_down();
  first.join();
  EXPECT_TRUE(test::contains(text, "retain_graph") && test::contains(text, "released")) << text;
  EXPECT_EQ((std::vector<double>{2, 6}), x.grad().to_vector<double>());
  EXPECT_EQ(1, here.calls);
}

TEST(SharedGraph, OfTwoPassesThatMeetInAFreedNodeOneGetsTheGradients) {
  for (const bool second_retains : {false, true}) {
    expect_one_winner([](const NDArray& x) { return custom<MeetingOperator>({x}); }, second_retains);
    expect_one_winner([](const NDArray& x) { return apply<MeetingFunction>({x})[0]; }, second_retains);
  }
}

// The first pass retains the graph, so the second one may free it meanwhile: both get the gradients.
TEST(SharedGraph, APassThatRetainsTheGraphKeepsWhatItHasRead) {
  const std::function<NDArray(const NDArray&)> makers[] = {
      [](const NDArray& x) { return custom<MeetingOperator>({x}); },
      [](const NDArray& x) { return apply<MeetingFunction>({x})[0]; }};
  for (const auto& f : makers) {
    Meeting here;
    meeting = &here;
    const NDArray x = array({1.0, 3.0}).requires_grad_();
    const NDArray loss = sum(f(x));
    std::thread first([&] { loss.backward({}, {.retain_graph = true}); });
    here.reached.wait();
    loss.backward();
    here.others_done.count_down();
    first.join();
    EXPECT_EQ((std::vector<double>{4, 12}), x.grad().to_vector<double>());
    test::error_of<InvalidState>([&] { loss.backward(); });
  }
}

// Many passes start through one graph at once; none of them retains it.
TEST(SharedGraph, OfManyPassesThroughOneGraphExactlyOneGetsTheGradients) {
  constexpr int kThreads = 4, kRounds = 100;
  for (int round = 0; round < kRounds; ++round) {
    const NDArray x = array({0.5, 0.25}).requires_grad_();
    NDArray y = x;
    for (int i = 0; i < 20; ++i) y = tanh(y) * x + y[{Slice{{}, {}, -1}}];
    const NDArray loss = sum(y);
    const std::vector<double> expected =
        gradients({loss}, {x}, {.retain_graph = true})[0].to_vector<double>();
    std::latch start(kThreads);
    std::atomic<int> winners{0}, losers{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t)
      threads.emplace_back([&] {
        start.arrive_and_wait();
        try {
          loss.backward();
          ++winners;
        } catch (const InvalidState& e) {
          EXPECT_TRUE(test::contains(e.what(), "retain_graph")) << e.what();
          ++losers;
        }
      });
    for (std::thread& thread : threads) thread.join();
    ASSERT_EQ(1, winners);
    ASSERT_EQ(kThreads - 1, losers);
    ASSERT_EQ(expected, x.grad().to_vector<double>());
  }
}

// A gradient that throws has used nothing up: the next pass may go through the node again.
TEST(SharedGraph, ANodeWhoseGradientThrowsKeepsItsValues) {
  struct Fails : Function {
    bool fails = true;
    std::vector<NDArray> forward(std::span<const NDArray> in) override {
      save({in[0]});
      return {in[0] * in[0]};
    }
    std::vector<NDArray> backward(std::span<const NDArray> heads) override {
      if (std::exchange(fails, false)) throw std::runtime_error("not now");
      return {heads[0] * saved(0) * 2};
    }
  };
  const NDArray x = array({1.0, 3.0}).requires_grad_();
  const NDArray y = apply<Fails>({x})[0];
  EXPECT_THROW(y.backward(ones_like(y)), std::runtime_error);
  y.backward(ones_like(y));
  EXPECT_EQ((std::vector<double>{2, 6}), x.grad().to_vector<double>());

  NDArray changed = array({2.0, 4.0});
  const NDArray product = sum(x * changed);
  changed += 1.0;
  for (int i = 0; i < 2; ++i)
    EXPECT_TRUE(
        test::contains(test::error_of<InvalidState>([&] { product.backward(); }), "changed in place"));
}

}  // namespace
}  // namespace mx
