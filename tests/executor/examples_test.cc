// The code samples of docs/autograd.md. A test of the documents compares the two.
#include <gtest/gtest.h>

#include <any>
#include <cmath>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/base/error.h"
#include "executor/autograd/autograd.h"
#include "executor/autograd/checkpoint.h"
#include "executor/autograd/functional.h"
#include "executor/autograd/gradcheck.h"
#include "executor/autograd/post_accumulate.h"
#include "executor/autograd/saved_value_hooks.h"
#include "operators/operators.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using Values = std::vector<float>;

Values values(const NDArray& x) { return x.to_vector<float>(); }

TEST(AutogradExamples, ALossGoesBack) {
  NDArray w = array({1.f, 2.f, 3.f}).requires_grad_();
  const NDArray x = array({4.f, 5.f, 6.f});
  NDArray loss = sum(w * w * x);
  loss.backward();
  const NDArray g = w.grad();  // 2 w x
  EXPECT_EQ((Values{8, 20, 36}), values(g));
}

TEST(AutogradExamples, AnUpdatePausesRecording) {
  NDArray w = array({1.f, 2.f}).requires_grad_();
  sum(w * w).backward();
  {
    NoGrad pause;
    w -= 0.5f * w.grad();
  }
  w.set_grad({});
  EXPECT_EQ((Values{0, 0}), values(w));
  EXPECT_TRUE(w.requires_grad());
}

TEST(AutogradExamples, HeadsWeighOutputs) {
  NDArray x = array({1.f, 2.f}).requires_grad_();
  NDArray y = x * x;
  y.backward(array({10.f, 1.f}));
  EXPECT_EQ((Values{20, 4}), values(x.grad()));
}

TEST(AutogradExamples, GradientsOfGradients) {
  NDArray x = array({1.f, 2.f}).requires_grad_();
  NDArray first = gradients({sum(x * x * x)}, {x}, {.create_graph = true})[0];  // 3 x^2
  NDArray second = gradients({sum(first)}, {x})[0];                             // 6 x
  EXPECT_EQ((Values{3, 12}), values(first));
  EXPECT_EQ((Values{6, 12}), values(second));
  EXPECT_FALSE(x.grad().defined());
}

TEST(AutogradExamples, HooksSeeGradients) {
  NDArray x = array({1.f, 2.f}).requires_grad_();
  NDArray y = x * 3;
  y.retain_grad();
  y.add_grad_hook([](const NDArray& g) { return clamp(g, -1, 1); });
  sum(y * 100).backward();
  EXPECT_EQ((Values{1, 1}), values(y.grad()));
  EXPECT_EQ((Values{3, 3}), values(x.grad()));
}

TEST(AutogradExamples, ResultsMayBeChangedInPlace) {
  NDArray x = array({1.f, 2.f, 3.f}).requires_grad_(), v = array({5.f}).requires_grad_();
  NDArray y = x * 2;
  y[0] = v[0];  // x[0] has no part in y any more
  y *= y.clone();
  sum(y).backward();
  EXPECT_EQ((Values{0, 16, 24}), values(x.grad()));
  EXPECT_EQ((Values{10}), values(v.grad()));
}

struct Exp : Function {
  std::vector<NDArray> forward(std::span<const NDArray> in) override {
    NDArray y = exp(in[0]);
    save({y});
    return {y};
  }
  std::vector<NDArray> backward(std::span<const NDArray> heads) override { return {heads[0] * saved(0)}; }
};

TEST(AutogradExamples, FunctionsHaveAWayBackOfTheirOwn) {
  NDArray x = array({0.f, 0.f}).requires_grad_();
  NDArray z = mx::apply<Exp>({x})[0];
  NDArray rounded = mx::apply(
      {x}, [](std::span<const NDArray> in) { return std::vector<NDArray>{floor(in[0])}; },
      [](std::span<const NDArray> heads) { return std::vector<NDArray>{heads[0]}; })[0];
  sum(z + rounded).backward();
  EXPECT_EQ((Values{2, 2}), values(x.grad()));
}

// Returns the second derivative of sum(f(x)) at x = (1, 2), one element at a time.
Values second_derivative(const std::function<NDArray(const NDArray&)>& f) {
  const NDArray x = array({1.f, 2.f}).requires_grad_();
  const NDArray first = gradients({sum(f(x))}, {x}, {.create_graph = true})[0];
  const NDArray second = gradients({sum(first) + sum(x * 0)}, {x})[0];
  return values(second);
}

TEST(AutogradExamples, AllHaveSecondDerivatives) {
  const NDArray factor = array({4.f, 5.f});
  EXPECT_EQ((Values{8, 10}), second_derivative([&](const NDArray& w) { return w * w * factor; }));
  EXPECT_EQ((Values{6, 12}), second_derivative([](const NDArray& x) { return x * x * x; }));
  EXPECT_EQ((Values{2, 0}), second_derivative([](const NDArray& x) {
              NDArray y = x * 3;  // a hook that clamps the gradient
              y.add_grad_hook([](const NDArray& g) { return clamp(g, -1, 1); });
              return y * y / 9;
            }));
  EXPECT_EQ((Values{0, 8}), second_derivative([](const NDArray& x) {
              NDArray y = x * 2;  // an assignment, and a product in place
              y[0] = 3;
              y *= y.clone();
              return y;
            }));
  const auto e = [](float x) { return std::exp(x); };
  const Values of_exp = second_derivative([](const NDArray& x) { return apply<Exp>({x})[0]; });
  EXPECT_NEAR(e(1), of_exp[0], 1e-5);
  EXPECT_NEAR(e(2), of_exp[1], 1e-5);
  EXPECT_EQ((Values{2, 2}), second_derivative([](const NDArray& x) {
              const NDArray rounded = mx::apply(
                  {x}, [](std::span<const NDArray> in) { return std::vector<NDArray>{floor(in[0])}; },
                  [](std::span<const NDArray> heads) { return std::vector<NDArray>{heads[0]}; })[0];
              return rounded * rounded;
            }));
  EXPECT_EQ((Values{6, 12}), values(grad([](const NDArray& x) {
              return sum(grad([](const NDArray& y) { return sum(y * y * y); })(x));
            })(array({1.f, 2.f}))));
}

TEST(AutogradExamples, FunctionsOfFunctions) {
  const auto f = [](const NDArray& w, const NDArray& x) { return sum(w * w * x); };
  const NDArray w = array({1.f, 2.f}), x = array({3.f, 4.f});
  NDArray gw = grad(f)(w, x);                     // 2 w x
  auto [value, gx] = value_and_grad(f, 1)(w, x);  // f, w^2
  NDArray h = jacobian(grad(f))(w, x);            // (2, 2)
  EXPECT_EQ((Values{6, 16}), values(gw));
  EXPECT_EQ(19, value.item<float>());
  EXPECT_EQ((Values{1, 4}), values(gx));
  EXPECT_EQ((Values{6, 0, 0, 8}), values(h));
}

TEST(AutogradExamples, DifferencesCheckGradients) {
  const NDArray w = randn({3, 4}, f64), x = randn({2, 4}, f64);
  gradcheck([](const NDArray& a, const NDArray& b) { return tanh(matmul(b, a.T())); }, {w, x});
}

TEST(AutogradExamples, AHookUpdatesALeafInTheBackwardPass) {
  NDArray w = array({2.f, 4.f}).requires_grad_();
  add_post_accumulate_hook(w, [](const NDArray& leaf) {
    const NoGrad pause;
    NDArray weight = leaf;
    weight -= 0.5f * leaf.grad();
    leaf.set_grad({});
  });
  sum(w * w).backward();  // updates w, and leaves no gradient
  EXPECT_EQ((Values{0, 0}), values(w));
  EXPECT_FALSE(w.grad().defined());
}

TEST(AutogradExamples, SavedValuesAreKeptInBf16) {
  const NDArray w = array({1.f, 2.f}).requires_grad_();
  NDArray loss;
  {
    const SavedValueHooks scope([](const NDArray& value) -> std::any { return value.to(bf16); },
                                [](const std::any& kept) { return std::any_cast<NDArray>(kept).to(f32); });
    loss = sum(exp(w * 2));
  }
  loss.backward();  // reads exp(w * 2) in bf16
  EXPECT_EQ(values(exp(w * 2).to(bf16).to(f32) * 2), values(w.grad()));
}

TEST(AutogradExamples, ACheckpointIsComputedAgain) {
  NDArray w = array({{0.5f, -0.25f}, {0.125f, 1.f}}).requires_grad_(), x = ones({3, 2}).requires_grad_();
  const NDArray h = checkpoint([&](const NDArray& a) { return tanh(matmul(a, w)); }, x);
  sum(h * h).backward();  // computes tanh(matmul(x, w)) again
  const NDArray direct = tanh(matmul(x, w));
  const std::vector<NDArray> expected = gradients({sum(direct * direct)}, {w, x});
  EXPECT_EQ(values(expected[0]), values(w.grad()));
  EXPECT_EQ(values(expected[1]), values(x.grad()));
}

// A view that was taken of a plain array reflects changes that are recorded in its base later.
TEST(AutogradExamples, AViewTakenBeforeSeesWhatIsRecordedInItsBase) {
  NDArray x = array({2.f}).requires_grad_();
  NDArray all = zeros({3});
  const NDArray last = all[2];
  EXPECT_FALSE(last.requires_grad());
  all[2] = x[0] * 5;
  EXPECT_TRUE(last.requires_grad());
  (last * last).backward();
  EXPECT_EQ((Values{100}), values(x.grad()));
}

}  // namespace
}  // namespace mx
