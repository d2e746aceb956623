// checkpoint(): values and gradients of a part that is computed twice.
#include "executor/autograd/checkpoint.h"

#include <gtest/gtest.h>

#include <functional>
#include <span>
#include <vector>

#include "executor/autograd/autograd.h"
#include "executor/autograd/functional.h"
#include "operators/operators.h"
#include "tests/support/errors.h"
#include "tests/support/live_memory.h"
#include "tests/support/numeric_gradient.h"

namespace mx {
namespace {

using test::comes_down_to;
using test::live_bytes;
using test::settled_bytes;
using List = std::vector<NDArray>;

std::vector<std::vector<double>> values_of(const List& arrays) {
  std::vector<std::vector<double>> values;
  for (const NDArray& a : arrays)
    values.push_back(a.defined() ? a.to_vector<double>() : std::vector<double>{});
  return values;
}

/// The gradients of sum(f(inputs)) for `wanted`, with the function called directly or through checkpoint().
List gradients_with(bool checkpointed, const CheckpointFunction& f, const List& inputs, const List& wanted) {
  const List out = checkpointed ? checkpoint(f, inputs) : f(inputs);
  NDArray total = sum(out[0] * out[0]) + sum(wanted[0] * 0);
  for (size_t i = 1; i < out.size(); ++i) total = total + sum(sin(out[i]));
  return gradients({total}, wanted, {.retain_graph = true, .allow_unused = true});
}

TEST(Checkpoint, GivesWhatTheDirectCallGives) {
  const NDArray x = test::some({4, 3}, 1).requires_grad_(), w = test::some({3, 5}, 2).requires_grad_(),
                unused = test::some({2}, 3).requires_grad_(), constant = test::some({4, 5}, 4);
  const NDArray turned = w.transpose({1, 0});                 // a view whose node is made late
  const NDArray made = exp(test::some({5}, 5) * w[0].sum());  // recorded before, and reached through w, too
  const std::vector<CheckpointFunction> functions{
      [&](std::span<const NDArray> in) { return List{tanh(matmul(in[0], w)) + constant}; },
      [&](std::span<const NDArray> in) {
        return List{matmul(in[0], w), in[0] * in[0]};
      },
      [&](std::span<const NDArray> in) {
        return List{matmul(in[0], turned.transpose({1, 0})) * made};
      },
      [&](std::span<const NDArray> in) {
        return List{in[0], in[0][0]};
      },
      [&](std::span<const NDArray>) { return List{exp(w)}; },
      [&](std::span<const NDArray> in) {
        return List{checkpoint([&](const NDArray& a) { return tanh(matmul(a, w)); }, in[0] * 2) * made, made};
      },
      [&](std::span<const NDArray> in) {
        NDArray y = in[0] * 1;
        y[0] = sin(in[0][1]);
        y += in[0];
        return List{y, argmax(y, 0).to(f64)};
      },
  };
  for (size_t i = 0; i < functions.size(); ++i) {
    SCOPED_TRACE("function " + std::to_string(i));
    for (const NDArray& input : List{x, test::some({4, 3}, 6), x * 2}) {
      const auto direct = values_of(gradients_with(false, functions[i], {input}, {x, w, unused}));
      const auto twice = values_of(gradients_with(true, functions[i], {input}, {x, w, unused}));
      // Where an array contributes in several ways, the contributions may be added in another order.
      for (size_t k = 0; k < direct.size(); ++k) test::expect_close(direct[k], twice[k], 1e-15, "gradient");
      EXPECT_EQ(values_of(checkpoint(functions[i], {input})), values_of(functions[i](List{input})));
    }
  }
}

TEST(Checkpoint, AddsToTheLeavesAndRunsHooksOnce) {
  NDArray x = test::some({3}, 1).requires_grad_(), w = test::some({3}, 2).requires_grad_();
  int calls = 0;
  const HookHandle hook = w.add_grad_hook([&](const NDArray& g) {
    ++calls;
    return g * 10;
  });
  const NDArray y = checkpoint([&](const NDArray& a) { return a * w * w; }, x);
  sum(y).backward({}, {.retain_graph = true});
  EXPECT_EQ(calls, 1);
  EXPECT_EQ(w.grad().to_vector<double>(), (x * w * 20).to_vector<double>());
  sum(y).backward();
  EXPECT_EQ(x.grad().to_vector<double>(), (w * w * 2).to_vector<double>());
}

// A view that existed before the call has its own place in the graph of the call, like any other array.
TEST(Checkpoint, RunsHooksOfCapturedViewsOnceWithTheWholeGradient) {
  for (const bool used_before : {false, true}) {
    for (const bool hook_before : {false, true}) {
      NDArray w = test::some({2, 2}, 1).requires_grad_();
      const NDArray x = test::some({2, 2}, 2).requires_grad_(), view = (w * 1).T();
      NDArray rest = sum(w * 0);
      if (used_before) rest = rest + sum(view * 0);
      List seen;
      const auto add_hook = [&] {
        view.add_grad_hook([&](const NDArray& g) {
          seen.push_back(g.clone());
          return clamp(g, -1, 1);
        });
      };
      if (hook_before) add_hook();
      const NDArray y = checkpoint([&](const NDArray& a) { return matmul(a, view) * view[0]; }, x);
      if (!hook_before) add_hook();
      const NDArray total = sum(y) + sum(view * 5) + rest;
      total.backward({}, {.retain_graph = true});
      ASSERT_EQ(1U, seen.size());
      EXPECT_EQ(w.grad().to_vector<double>(), clamp(seen[0], -1, 1).T().to_vector<double>());
      const NDArray whole = gradients({total}, {view})[0];
      const NDArray y_direct = matmul(x, view) * view[0];
      EXPECT_EQ(whole.to_vector<double>(),
                gradients({sum(y_direct) + sum(view * 5)}, {view})[0].to_vector<double>());
    }
  }
}

TEST(Checkpoint, MayKeepViewsFromTheFirstRun) {
  const NDArray x = test::some({2, 2}, 1).requires_grad_(), w = test::some({2, 2}, 2).requires_grad_();
  NDArray kept;
  const NDArray y = checkpoint(
      [&](const NDArray& a) {
        if (!kept.defined()) kept = w.T();
        return matmul(a, kept);
      },
      x);
  const List found = gradients({sum(y)}, {x, w});
  const List direct = gradients({sum(matmul(x, w.T()))}, {x, w});
  EXPECT_EQ(values_of(found), values_of(direct));
}

TEST(Checkpoint, HasGradientsOfGradients) {
  const NDArray w = test::some({3}, 2).requires_grad_();
  const auto f = [&](const NDArray& a) { return tanh(a * w) * a; };
  const auto slope = grad([&](const NDArray& a) { return sum(checkpoint(f, a)); });
  test::expect_gradients([&](const List& a) { return sum(slope(a[0]) * a[0]); }, {test::some({3}, 1)});
  // The input leads to w, and so does the function: both ways count once.
  const auto second = [&](bool checkpointed) {
    const NDArray x = w * w;
    const NDArray y = checkpointed ? checkpoint(f, x) : f(x);
    const NDArray g = gradients({sum(y)}, {w}, {.create_graph = true})[0];
    return gradients({sum(g * g)}, {w})[0].to_vector<double>();
  };
  const std::vector<double> direct = second(false), twice = second(true);
  for (size_t i = 0; i < direct.size(); ++i) EXPECT_NEAR(twice[i], direct[i], 1e-12 * std::abs(direct[i]));
}

TEST(Checkpoint, DrawsTheSameRandomNumbersAndLeavesTheStreamWhereItWas) {
  const NDArray x = test::some({1000}, 1).requires_grad_();
  const auto f = [](const NDArray& a) { return dropout(a, 0.5) * dropout(a, 0.25); };
  const auto run = [&](bool checkpointed) {
    manual_seed(7);
    const NDArray y = checkpointed ? checkpoint(f, x) : f(x);
    const NDArray between = rand({3}, f64);
    const NDArray g = gradients({sum(y)}, {x})[0];
    return values_of({y, between, g, rand({3}, f64)});
  };
  EXPECT_EQ(run(true), run(false));
}

TEST(CheckpointMemory, KeepsOnlyTheInputs) {
  const NDArray x = test::some({1 << 16}, 1).requires_grad_();
  const auto chain = [](const NDArray& a) {
    NDArray h = a;
    for (int i = 0; i < 20; ++i) h = sin(h * 1.5);
    return h;
  };
  const size_t bytes = static_cast<size_t>(x.numel()) * sizeof(double), before = settled_bytes();
  {
    const NDArray y = chain(x);
    y.wait();
    EXPECT_GT(live_bytes(), before + 19 * bytes) << "the test would see nothing";
  }
  const NDArray y = checkpoint(chain, x);
  EXPECT_TRUE(comes_down_to(before + bytes + 4096)) << live_bytes() - before;
}

TEST(Checkpoint, WithoutRecordingItIsTheFunction) {
  const NDArray x = test::some({3}, 1).requires_grad_();
  {
    const NoGrad pause;
    EXPECT_FALSE(checkpoint([](const NDArray& a) { return a * 2; }, x).requires_grad());
  }
  EXPECT_FALSE(checkpoint([](const NDArray& a) { return a * 2; }, x.detach()).requires_grad());
  EXPECT_TRUE(checkpoint([](const NDArray& a) { return a * 2; }, x).requires_grad());
}

TEST(Checkpoint, ResultsShareNoMemoryWithAnything) {
  const NDArray x = test::some({2, 2}, 1).requires_grad_(), w = test::some({2, 2}, 2).requires_grad_();
  const std::vector<double> before = x.to_vector<double>();
  const NDArray h = x * 2, plain = test::some({2, 2}, 3);
  const List out = checkpoint(
      [&](std::span<const NDArray> in) {
        const NDArray made = in[0] * 3;
        return List{in[0], in[0][0], made, made[1], w, w[0], made.detach(), plain, plain[0]};
      },
      List{h});
  const auto values = values_of(out);
  for (size_t i = 0; i < out.size(); ++i) {
    NDArray one = out[i];
    one *= 5;
    for (size_t k = i + 1; k < out.size(); ++k)
      EXPECT_EQ(out[k].to_vector<double>(), values[k]) << i << ' ' << k;
  }
  EXPECT_EQ(h.to_vector<double>(), (x * 2).to_vector<double>());
  EXPECT_EQ(x.to_vector<double>(), before);
  EXPECT_EQ(plain.to_vector<double>(), test::some({2, 2}, 3).to_vector<double>());
  const List g = gradients({sum(out[0]) + sum(out[3])}, {x}, {.retain_graph = true});
  EXPECT_EQ(g[0].to_vector<double>(), (std::vector<double>{10, 10, 40, 40}));
  NDArray buffer = zeros({2, 2}, f64);
  NDArray in_buffer = checkpoint(
      [&](const NDArray& a) {
        NDArray b = buffer;
        b.copy_from(a * a);
        return b;
      },
      x);
  in_buffer *= 2;
  EXPECT_EQ(buffer.to_vector<double>(), (x * x).to_vector<double>());
  // Elements of the function's memory that are no part of the result have no gradient.
  const NDArray part = checkpoint([](const NDArray& a) { return (a * 2)[0]; }, x);
  test::error_of<InvalidArgument>([&] { part.as_strided({2}, {1}, 2); });
  test::expect_error<InvalidState>("does not change its inputs in place", [&] {
    checkpoint(
        [](const NDArray& a) {
          NDArray b = a;
          b *= 3;
          return b + 0;
        },
        h);
  });
}

TEST(Checkpoint, NamesWhatWasChanged) {
  NDArray x = test::some({3}, 1) * 1, w = test::some({3}, 2).requires_grad_(), v = test::some({3}, 2) * w;
  const auto f = [&](const NDArray& a) { return a * w * v; };
  NDArray y = checkpoint(f, x);
  x += 1;
  test::expect_error<InvalidState>("input 0 of [checkpoint]", [&] { sum(y).backward(); });
  y = checkpoint(f, x);
  {
    const NoGrad pause;
    w -= 1;
  }
  test::expect_error<InvalidState>("to be unchanged since the call", [&] { sum(y).backward(); });
  y = checkpoint(f, x);
  v = test::some({3}, 5) * w;
  test::expect_error<InvalidState>("the same recorded arrays", [&] { sum(y).backward(); });
  test::expect_error<InvalidArgument>("a function, got an empty one",
                                      [&] { checkpoint(CheckpointFunction(), List{x}); });
  test::expect_error<InvalidArgument>("an empty handle as input 1", [&] {
    checkpoint([](std::span<const NDArray> in) { return List{in[0]}; }, List{x, NDArray()});
  });
}

}  // namespace
}  // namespace mx
