// backward(), grad() of chosen arrays, modes and hooks.
#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "engine/base/error.h"
#include "executor/autograd/autograd.h"
#include "operators/operators.h"
#include "tests/support/errors.h"
#include "tests/support/numeric_gradient.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

std::vector<double> grad_of(const NDArray& x) { return x.grad().to_vector<double>(); }

TEST(Backward, DefineByRunWithHostControlFlow) {
  for (float start : {1.f, -1.f}) {
    NDArray v1 = array({start}).requires_grad_();
    NDArray v2 = exp(v1), v4 = v2 * (v2 + 1);
    NDArray v5 = v4.item<float>() > 0.6f ? v4 * 2 : v4;
    v5.backward();
    const double e = std::exp(static_cast<double>(start));
    const double once = 2 * e * e + e;
    EXPECT_NEAR(start > 0 ? 2 * once : once, v1.grad().item<float>(), 1e-4);
  }
}

TEST(Backward, SumsOverAllWaysAnArrayWasUsed) {
  test::expect_gradients(
      [](const std::vector<NDArray>& a) {
        const NDArray y = a[0] * a[1] + exp(a[0]);
        const NDArray z = matmul(y, a[2]) + y * y;
        return sum(tanh(z) * y + a[0]);
      },
      {test::some({3, 3}, 1), test::some({3, 3}, 2), test::some({3, 3}, 3)});
}

TEST(Backward, BroadcastOperandsGetTheirOwnShape) {
  test::expect_gradients(
      [](const std::vector<NDArray>& a) { return sum((a[0] + a[1]) * a[2] * a[3]); },
      {test::some({2, 3, 4}, 1), test::some({3, 1}, 2), test::some({1, 1, 4}, 3), test::some({}, 4)});
}

TEST(Backward, HeadGradientsWeighTheOutputs) {
  NDArray x = test::some({4}).requires_grad_();
  const NDArray head = array({1.0, -2.0, 0.5, 3.0});
  exp(x).backward(head);
  test::expect_close((exp(x.detach()) * head).to_vector<double>(), grad_of(x), 1e-12, "head");
  error_of<InvalidArgument>([&] { exp(x).backward(); });
  const std::string message = error_of<InvalidArgument>([&] { exp(x).backward(array({1.0, 2.0})); });
  EXPECT_TRUE(contains(message, "(4,)") && contains(message, "(2,)")) << message;
}

TEST(Backward, SeveralOutputsAtOnce) {
  NDArray x = test::some({3}).requires_grad_();
  backward({sum(x * x), sum(exp(x))});
  test::expect_close((x.detach() * 2 + exp(x.detach())).to_vector<double>(), grad_of(x), 1e-12,
                     "two outputs");
}

TEST(Backward, GradientsAddUpOrAreWrittenOrLeft) {
  NDArray add = test::some({3}).requires_grad_(), write = add.clone().detach().requires_grad_(GradReq::write),
          null = add.clone().detach().requires_grad_(GradReq::null);
  for (int i = 0; i < 3; ++i) sum(add * 2 + write * 3 + null * 4).backward();
  EXPECT_EQ((std::vector<double>{6, 6, 6}), grad_of(add));
  EXPECT_EQ((std::vector<double>{3, 3, 3}), grad_of(write));
  EXPECT_FALSE(null.grad().defined());
  const NDArray handle = add.grad();
  sum(add).backward();
  EXPECT_EQ((std::vector<double>{7, 7, 7}), handle.to_vector<double>())
      << "the same array, added to in place";
  add.set_grad({});
  EXPECT_FALSE(add.grad().defined());
}

TEST(Backward, LeavesDoNotShareAGradient) {
  NDArray x = test::some({3}, 1).requires_grad_(), y = test::some({3}, 2).requires_grad_();
  const NDArray head = ones({3}, f64);
  (x + y).backward(head);
  NDArray own = x.grad();
  own *= 5;
  EXPECT_EQ((std::vector<double>{1, 1, 1}), grad_of(y));
  EXPECT_EQ((std::vector<double>{1, 1, 1}), head.to_vector<double>());
}

TEST(Backward, ChosenGradientsShareNothing) {
  const NDArray x = test::some({3}, 1).requires_grad_(), y = test::some({3}, 2).requires_grad_();
  const NDArray head = ones({3}, f64), z = x + y;
  for (const bool create_graph : {false, true}) {
    std::vector<NDArray> g =
        gradients({z}, {x, y, x, z}, {.heads = {head}, .retain_graph = true, .create_graph = create_graph});
    for (NDArray& own : g) own *= 5;
    for (const NDArray& own : g) EXPECT_EQ((std::vector<double>{5, 5, 5}), own.to_vector<double>());
    EXPECT_EQ((std::vector<double>{1, 1, 1}), head.to_vector<double>());
  }
}

TEST(Backward, ChosenGradientsMayBeChangedInPlace) {
  const NDArray x = test::some({3}).requires_grad_();
  NDArray g = gradients({sum(x)}, {x})[0];
  EXPECT_TRUE(g.contiguous());
  g[1] = 5;
  EXPECT_EQ((std::vector<double>{1, 5, 1}), g.to_vector<double>());
}

TEST(Backward, ASecondTimeNeedsRetain) {
  NDArray x = test::some({3}).requires_grad_();
  const NDArray y = sum(exp(x));
  y.backward({.retain_graph = true});
  y.backward();
  test::expect_close((exp(x.detach()) * 2).to_vector<double>(), grad_of(x), 1e-12, "twice");
  const std::string message = error_of<InvalidState>([&] { y.backward(); });
  EXPECT_TRUE(contains(message, "retain_graph") && contains(message, "exp")) << message;
}

TEST(Backward, WhatKeepsNoValuesCanBeGoneThroughAgain) {
  NDArray x = test::some({3}).requires_grad_();
  const NDArray y = sum(x + 1);
  y.backward();
  y.backward();
  EXPECT_EQ((std::vector<double>{2, 2, 2}), grad_of(x));
}

TEST(Backward, GradientsOfGradients) {
  NDArray x = test::some({3}).requires_grad_();
  const NDArray first = gradients({sum(x * x * x)}, {x}, {.create_graph = true})[0];
  const NDArray second = gradients({sum(first)}, {x}, {.create_graph = true})[0];
  const NDArray third = gradients({sum(second)}, {x})[0];
  test::expect_close((x.detach() * x.detach() * 3).to_vector<double>(), first.to_vector<double>(), 1e-12,
                     "first");
  test::expect_close((x.detach() * 6).to_vector<double>(), second.to_vector<double>(), 1e-12, "second");
  test::expect_close({6, 6, 6}, third.to_vector<double>(), 1e-12, "third");
  EXPECT_FALSE(x.grad().defined()) << "gradients() leaves it alone";
}

TEST(Backward, CreateGraphLeavesARecordedGradient) {
  NDArray x = test::some({3}).requires_grad_();
  sum(x * x * x).backward({.create_graph = true});
  const NDArray g = x.grad();
  EXPECT_TRUE(g.requires_grad());
  x.set_grad({});
  sum(g).backward();
  test::expect_close((x.detach() * 6).to_vector<double>(), grad_of(x), 1e-12, "second");
}

TEST(Backward, ChosenArraysMayBeResults) {
  NDArray x = test::some({3}).requires_grad_();
  const NDArray y = exp(x), z = sum(y * y), other = test::some({2}).requires_grad_();
  const std::vector<NDArray> g = gradients({z}, {y, x, other}, {.allow_unused = true});
  test::expect_close((y.detach() * 2).to_vector<double>(), g[0].to_vector<double>(), 1e-12, "result");
  test::expect_close((y.detach() * y.detach() * 2).to_vector<double>(), g[1].to_vector<double>(), 1e-12,
                     "leaf");
  EXPECT_FALSE(g[2].defined());
  const NDArray again = sum(exp(x));
  const std::string message = error_of<InvalidState>([&] { gradients({again}, {other}); });
  EXPECT_TRUE(contains(message, "allow_unused")) << message;
  error_of<InvalidState>([&] { gradients({again}, {ones({2})}); });
}

TEST(Backward, OnlyWhatLeadsToTheChosenIsGoneThrough) {
  NDArray x = test::some({3}).requires_grad_(), w = test::some({3}).requires_grad_();
  int seen = 0;
  const NDArray y = exp(w);
  y.add_grad_hook([&](const NDArray&) { return ++seen, NDArray(); });
  const NDArray inner = exp(y);
  gradients({sum(x * inner)}, {x});
  EXPECT_EQ(0, seen);
}

TEST(Backward, DetachAndNoGradRecordNothing) {
  NDArray x = test::some({3}).requires_grad_();
  EXPECT_FALSE(x.detach().requires_grad());
  EXPECT_TRUE(x.detach().shares_memory(x));
  {
    NoGrad pause;
    EXPECT_FALSE(grad_enabled());
    EXPECT_FALSE(exp(x).requires_grad());
    EXPECT_FALSE(x[0].requires_grad());
    EXPECT_FALSE(x.clone().requires_grad());
    {
      EnableGrad on;
      EXPECT_TRUE(exp(x).requires_grad());
    }
  }
  EXPECT_TRUE(exp(x).requires_grad());
  sum(exp(x).detach() * x).backward();
  test::expect_close(exp(x.detach()).to_vector<double>(), grad_of(x), 1e-12, "a constant");
  error_of<InvalidState>([&] { sum(x.detach()).backward(); });
}

TEST(Backward, IntegersAreNotDifferentiated) {
  NDArray i = array<int64_t>({1, 2});
  const std::string message = error_of<InvalidArgument>([&] { i.requires_grad_(); });
  EXPECT_TRUE(contains(message, "i64")) << message;
  NDArray x = test::some({2}).requires_grad_();
  EXPECT_FALSE(argmax(x).requires_grad());
  EXPECT_FALSE((x > 1).requires_grad());
  EXPECT_FALSE(x.to(i32).requires_grad());
}

TEST(Backward, RequiresGradCanBeTakenBackFromALeaf) {
  NDArray x = test::some({2}).requires_grad_();
  NDArray y = exp(x);
  error_of<InvalidState>([&] { y.requires_grad_(false); });
  x.requires_grad_(false);
  EXPECT_FALSE(x.requires_grad());
  EXPECT_FALSE(exp(x).requires_grad());
}

TEST(Backward, CopiesToOtherTypesAndDevicesAreRecorded) {
  NDArray x = test::some({2, 3}).requires_grad_();
  NDArray y = x.to(f32).to(virt(0)) * 2;
  sum(y).backward();
  EXPECT_EQ(f64, x.grad().dtype());
  EXPECT_EQ(cpu(), x.grad().context());
  EXPECT_EQ(std::vector<double>(6, 2), grad_of(x));
}

TEST(Hooks, SeeAndChangeGradientsInOrder) {
  NDArray x = test::some({2}).requires_grad_();
  const NDArray y = x * 3;
  std::vector<int> order;
  y.add_grad_hook([&](const NDArray& g) {
    order.push_back(1);
    return g * 10;
  });
  y.add_grad_hook([&](const NDArray& g) {
    order.push_back(2);
    EXPECT_EQ((std::vector<double>{10, 10}), g.to_vector<double>());
    return NDArray();
  });
  x.add_grad_hook([&](const NDArray&) {
    order.push_back(3);
    return NDArray();
  });
  sum(y).backward();
  EXPECT_EQ((std::vector<int>{1, 2, 3}), order);
  EXPECT_EQ((std::vector<double>{30, 30}), grad_of(x));
}

TEST(Hooks, AreTakenAwayByTheirHandles) {
  NDArray x = test::some({2}).requires_grad_();
  const NDArray y = x * 3;
  const auto counter = [](int& count) { return [&count](const NDArray&) { return ++count, NDArray(); }; };
  int of_x = 0, first = 0, second = 0;
  HookHandle x_hook = x.add_grad_hook(counter(of_x));
  HookHandle first_hook = y.add_grad_hook(counter(first));
  const HookHandle second_hook = y.add_grad_hook(counter(second));
  sum(y).backward({.retain_graph = true});
  x_hook.remove();
  HookHandle copy = first_hook;
  first_hook.remove();
  copy.remove();        // a copy of the handle removes the same hook
  first_hook.remove();  // a second removal does nothing
  sum(y).backward({.retain_graph = true});
  EXPECT_EQ(1, of_x);
  EXPECT_EQ(1, first);
  EXPECT_EQ(2, second);
  HookHandle().remove();
}

TEST(Hooks, MayTakeThemselvesAway) {
  NDArray x = test::some({2}).requires_grad_();
  int calls = 0;
  HookHandle handle;
  handle = x.add_grad_hook([&](const NDArray&) {
    ++calls;
    handle.remove();
    return NDArray();
  });
  for (int i = 0; i < 3; ++i) sum(x * 2).backward();
  EXPECT_EQ(1, calls);
}

TEST(Hooks, AHandleKeepsNothingAlive) {
  auto held = std::make_shared<int>(1);
  const std::weak_ptr<int> watch = held;
  HookHandle handle;
  {
    NDArray x = test::some({2}).requires_grad_();
    const NDArray y = x * 3;
    handle = y.add_grad_hook([held = std::exchange(held, nullptr)](const NDArray&) { return NDArray(); });
    EXPECT_FALSE(watch.expired());
  }
  EXPECT_TRUE(watch.expired());
  handle.remove();
}

TEST(Hooks, RetainedGradientsOfResults) {
  NDArray x = test::some({2}).requires_grad_();
  const NDArray y = exp(x), z = sum(y * y);
  EXPECT_FALSE(y.grad().defined());
  y.retain_grad();
  z.backward();
  test::expect_close((y.detach() * 2).to_vector<double>(), grad_of(y), 1e-12, "result");
}

TEST(Hooks, AnExceptionEndsTheGoingBackAndLeavesTheGraphUsable) {
  NDArray x = test::some({2}).requires_grad_();
  const NDArray y = x * 3;
  bool fail = true;
  y.add_grad_hook([&](const NDArray&) -> NDArray {
    if (fail) throw std::runtime_error("from a hook");
    return {};
  });
  const NDArray z = sum(y);
  EXPECT_THROW(z.backward({.retain_graph = true}), std::runtime_error);
  fail = false;
  z.backward();
  EXPECT_EQ((std::vector<double>{3, 3}), grad_of(x));
}

TEST(Backward, AnErrorOfAGradientNamesTheLineOfTheForwardCall) {
  struct Checked {
    Checked() { set_check_numerics(true); }
    ~Checked() { set_check_numerics(false); }
  } checked;
  const auto named = [](const std::string& text, int line) {
    EXPECT_TRUE(contains(text, "backward_test.cc:" + std::to_string(line) + ")")) << text;
    EXPECT_FALSE(contains(text, "operators/")) << text;
  };
  for (const int64_t size : {2, 100'000}) {  // directly, and pushed
    NDArray x = zeros({size}).requires_grad_();
    const NDArray root = pow(x, 0.5);
    const int line = __LINE__ - 1;
    sum(root).backward();
    named(error_of<NumericError>([&] { x.grad().wait(); }), line);
    EXPECT_THROW(current_engine().wait_all(), NumericError);
  }
  // The operator that has no second derivative is called by the gradient of ctc_loss.
  NDArray logits = randn({4, 1, 3}, f64).requires_grad_();
  const NDArray loss = ctc_loss(log_softmax(logits, 2), array<int64_t>({1, 2}, {1, 2}), array<int64_t>({4}),
                                array<int64_t>({2}));
  const int line = __LINE__ - 2;
  const NDArray first = gradients({loss}, {logits}, {.create_graph = true})[0];
  const std::string text = error_of<InvalidArgument>([&] { sum(first).backward(); });
  EXPECT_TRUE(contains(text, "backward_test.cc:" + std::to_string(line))) << text;
  EXPECT_FALSE(contains(text, "ctc.cc")) << text;
}

TEST(Modes, TrainAndPredictAreScopesOfAThread) {
  EXPECT_EQ(std::nullopt, mode_override());
  {
    PredictMode predict;
    EXPECT_EQ(false, mode_override());
    {
      TrainMode train;
      EXPECT_EQ(true, mode_override());
    }
    EXPECT_EQ(false, mode_override());
    std::thread([] { EXPECT_EQ(std::nullopt, mode_override()); }).join();
  }
  EXPECT_EQ(std::nullopt, mode_override());
}

TEST(Backward, SeveralThreadsThroughOneGraph) {
  NDArray x = test::some({8}).requires_grad_();
  const NDArray shared = exp(x);
  const NDArray one = sum(shared * 2), two = sum(shared * 3);
  constexpr int kRounds = 50;
  std::thread other([&] {
    for (int i = 0; i < kRounds; ++i) one.backward({.retain_graph = true});
  });
  for (int i = 0; i < kRounds; ++i) two.backward({.retain_graph = true});
  other.join();
  test::expect_close((exp(x.detach()) * (5.0 * kRounds)).to_vector<double>(), grad_of(x), 1e-9,
                     "both threads");
}

// The caller owns the gradients, and the graph of a gradient has saved others: here the head, which is the
// gradient of the bias too.
TEST(Backward, ChangesOfGradientsInPlaceDoNotReachTheirGraph) {
  const auto second = [](bool at_leaves, bool change) {
    NDArray bias = test::some({2}, 1).requires_grad_(), w = test::some({2, 3}, 2).requires_grad_(),
            x = test::some({3}, 3).requires_grad_();
    const NDArray loss = sum(linear(x, w, bias) * 3);
    std::vector<NDArray> found;
    if (at_leaves) {
      loss.backward({}, {.create_graph = true});
      found = {bias.grad(), x.grad()};
    } else {
      found = gradients({loss}, {bias, x}, {.create_graph = true});
    }
    if (change) {
      const NoGrad pause;
      found[0] *= 0.1;
    }
    return gradients({sum(found[1] * found[1])}, {w})[0].to_vector<double>();
  };
  for (const bool at_leaves : {false, true}) EXPECT_EQ(second(at_leaves, false), second(at_leaves, true));
}

// grad() of a leaf, or of a result with retain_grad(), may come into a pass that adds to it in place. Other
// arrays whose gradients the pass computes from it must get the values that it had before.
class GradientsInAPass : public ::testing::Test {
 protected:
  using List = std::vector<NDArray>;
  static NDArray leaf() { return ones({2}, f64).requires_grad_(); }

  const NDArray x = leaf(), b = leaf();
  const List given{array({1.0, 10.0})};
  GradientsInAPass() { x.set_grad(given[0]); }
  void expect(const std::vector<double>& of_x, const std::vector<double>& of_b) const {
    EXPECT_EQ(of_x, grad_of(x));
    EXPECT_EQ(of_b, grad_of(b));
  }
};

TEST_F(GradientsInAPass, AsHeadsOfSeveralOutputs) {
  mx::backward({x, b}, {x.grad(), x.grad()});
  expect({2, 20}, {1, 10});
}

TEST_F(GradientsInAPass, AsHeadsThatAreViews) {
  mx::backward({x, b}, {x.grad()[Slice{0, 2}], x.grad()[Slice{0, 2}]});
  expect({2, 20}, {1, 10});
}

TEST_F(GradientsInAPass, AsResultsOfHooks) {
  const NDArray c = b + zeros({2}, f64);
  c.add_grad_hook([this](const NDArray&) { return x.grad(); });
  sum(x * 2 + c).backward();
  expect({3, 12}, {1, 10});
}

TEST_F(GradientsInAPass, AsResultsOfFunctions) {
  const NDArray c = apply(
      {b}, [](std::span<const NDArray> in) { return List{in[0] * 1}; },
      [this](std::span<const NDArray>) { return List{x.grad()}; })[0];
  sum(x * 2 + c).backward();
  expect({3, 12}, {1, 10});
}

TEST_F(GradientsInAPass, OfResultsThatRetainThem) {
  const NDArray y = x * 2, z = y * 1, c = b * 3;
  y.retain_grad();
  sum(z).backward({}, {.retain_graph = true});
  mx::backward({y, c}, {y.grad(), y.grad()}, {.retain_graph = true});
  EXPECT_EQ((std::vector<double>{2, 2}), grad_of(y));
  expect({5, 14}, {3, 3});
  y.add_grad_hook([&](const NDArray&) { return y.grad(); });
  sum(z).backward();
  EXPECT_EQ((std::vector<double>{4, 4}), grad_of(y));
  expect({9, 18}, {3, 3});
}

TEST_F(GradientsInAPass, RowSparse) {
  for (const bool read : {false, true}) {
    const NDArray table = ones({8, 2}, f64).requires_grad_(), other = ones({8, 2}, f64).requires_grad_();
    sum(embedding(table, array<int64_t>({1}), -1, true)).backward();
    ASSERT_TRUE(row_sparse(table.grad()).has_value());
    if (read) table.grad().impl();  // makes it dense
    mx::backward({table, other}, {ones({8, 2}, f64), table.grad()});
    std::vector<double> row(16);
    row[2] = row[3] = 1;
    EXPECT_EQ(row, grad_of(other));
    for (double& e : row) e += 1;
    EXPECT_EQ(row, grad_of(table)) << read;
  }
}

}  // namespace
}  // namespace mx
