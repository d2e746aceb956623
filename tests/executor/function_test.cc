// Functions with a custom backward pass, and custom operators under recording.
#include <gtest/gtest.h>

#include <functional>
#include <vector>

#include "executor/autograd/autograd.h"
#include "executor/autograd/functional.h"
#include "operators/custom.h"
#include "operators/operators.h"
#include "operators/parameter.h"
#include "tests/support/errors.h"
#include "tests/support/numeric_gradient.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

struct Exponential : Function {
  NDArray y;
  std::vector<NDArray> forward(std::span<const NDArray> in) override { return {y = exp(in[0])}; }
  std::vector<NDArray> backward(std::span<const NDArray> heads) override { return {heads[0] * y}; }
};

struct Scaled : Function {
  explicit Scaled(double factor) : factor_(factor) {}
  std::vector<NDArray> forward(std::span<const NDArray> in) override {
    return {in[0] * factor_, in[1] + 1, argmax(in[0])};
  }
  std::vector<NDArray> backward(std::span<const NDArray> heads) override {
    return {heads[0].defined() ? heads[0] * factor_ : NDArray(), heads[1]};
  }
  double factor_;
};

TEST(Function, AnswersForItsGradient) {
  test::expect_gradients([](const std::vector<NDArray>& a) { return sum(apply<Exponential>({a[0] * 2})[0]); },
                         {test::some({3})});
}

TEST(Function, SeveralInputsAndOutputsOfWhichSomeAreUnused) {
  NDArray x = test::some({3}, 1).requires_grad_(), y = test::some({3}, 2).requires_grad_();
  const std::vector<NDArray> out = apply<Scaled>({x, y}, 4.0);
  EXPECT_FALSE(out[2].requires_grad()) << "integers";
  sum(out[0]).backward();
  EXPECT_EQ((std::vector<double>{4, 4, 4}), x.grad().to_vector<double>());
  EXPECT_FALSE(y.grad().defined());
}

TEST(Function, RunsWithoutRecordingOfItsOwn) {
  struct Sees : Function {
    std::vector<NDArray> forward(std::span<const NDArray> in) override {
      EXPECT_FALSE(grad_enabled());
      return {in[0]};  // returns the input itself, not a copy
    }
    std::vector<NDArray> backward(std::span<const NDArray> heads) override { return {heads[0] * 2}; }
  };
  NDArray x = test::some({3}).requires_grad_();
  const NDArray y = apply<Sees>({x})[0];
  sum(y).backward();
  EXPECT_EQ((std::vector<double>{2, 2, 2}), x.grad().to_vector<double>());
  EXPECT_FALSE(apply<Sees>({x.detach()})[0].requires_grad());
}

// The functions of the documentation, and others with known derivatives, as gradients of gradients.
struct SavedExp : Function {
  std::vector<NDArray> forward(std::span<const NDArray> in) override {
    NDArray y = exp(in[0]);
    save({y});
    return {y};
  }
  std::vector<NDArray> backward(std::span<const NDArray> heads) override { return {heads[0] * saved(0)}; }
};
struct SavedProduct : Function {  // saves both inputs, one of them as a view
  std::vector<NDArray> forward(std::span<const NDArray> in) override {
    save({in[0], in[1].transpose()});
    return {in[0] * in[1], in[0] + 1};
  }
  std::vector<NDArray> backward(std::span<const NDArray> heads) override {
    const NDArray a = heads[0].defined() ? heads[0] * saved(1).transpose() : zeros_like(saved(0));
    return {heads[1].defined() ? a + heads[1] : a,
            heads[0].defined() ? heads[0] * saved(0) : zeros_like(saved(0))};
  }
};
struct KeptInput : Function {  // keeps the input in a member instead of calling save()
  std::vector<NDArray> forward(std::span<const NDArray> in) override {
    x = in[0];
    row = in[0][0];
    return {in[0] * in[0] * in[0] + row * row};
  }
  std::vector<NDArray> backward(std::span<const NDArray> heads) override {
    NDArray g = heads[0] * x * x * 3;
    g[0] += sum(heads[0], {0}) * row * 2;
    return {g};
  }
  NDArray x, row;
};

// Compares d/dx of a weighted sum of first derivatives with finite differences of the first derivatives.
void expect_second_derivative(const std::function<NDArray(const NDArray&)>& f, const Shape& shape) {
  test::expect_gradients(
      [&](const std::vector<NDArray>& a) {
        NDArray x = a[0];
        if (!x.requires_grad()) x = x.clone().requires_grad_();
        const NDArray y = f(x);
        const NDArray weights = arange(1, static_cast<double>(y.numel()) + 1, 1, f64).reshape(y.shape());
        return sum(gradients({sum(y * weights)}, {x}, {.create_graph = true})[0] * test::some(shape, 9));
      },
      {test::some(shape)});
}

TEST(Function, SavedValuesHaveGradientsOfTheirOwn) {
  expect_second_derivative([](const NDArray& x) { return apply<SavedExp>({x})[0]; }, {3});
  expect_second_derivative([](const NDArray& x) { return apply<SavedProduct>({x, x * x})[0]; }, {2, 3});
  expect_second_derivative(
      [](const NDArray& x) {
        const std::vector<NDArray> out = apply<SavedProduct>({x, exp(x)});
        return out[0] * out[1];
      },
      {2, 3});
  expect_second_derivative([](const NDArray& x) { return apply<KeptInput>({x})[0]; }, {2, 3});
  expect_second_derivative(
      [](const NDArray& x) { return apply<SavedExp>({apply<KeptInput>({x * 0.5})[0]})[0]; }, {2, 3});
}

TEST(Function, ThirdDerivativesOfASavedOutput) {
  const auto f = [](const NDArray& x) { return sum(apply<SavedExp>({x})[0]); };
  const auto first = grad(f);
  const auto second = grad([&](const NDArray& x) { return sum(first(x)); });
  const auto third = grad([&](const NDArray& x) { return sum(second(x)); });
  const NDArray x = test::some({3});
  for (const NDArray& g : {first(x), second(x), third(x)})
    test::expect_close(exp(x).to_vector<double>(), g.to_vector<double>(), 1e-12, "exp");
}

TEST(Function, ASavedValueThatWasChangedInPlaceIsNamed) {
  NDArray x = test::some({3}).requires_grad_();
  NDArray y = apply<SavedExp>({x})[0];
  const NDArray z = sum(y);
  y += 1;
  const std::string message = error_of<InvalidState>([&] { z.backward(); });
  EXPECT_TRUE(contains(message, "value 0 that [SavedExp] saved") && contains(message, "changed in place"))
      << message;
}

TEST(Function, WhatIsNeitherInputNorOutputIsAnErrorWhereItsGradientIsNeeded) {
  struct SavesAnother : Function {
    std::vector<NDArray> forward(std::span<const NDArray> in) override {
      save({in[0] * 2});
      return {in[0] * in[0]};
    }
    std::vector<NDArray> backward(std::span<const NDArray> heads) override { return {heads[0] * saved(0)}; }
  };
  NDArray x = test::some({3}).requires_grad_();
  sum(apply<SavesAnother>({x})[0]).backward();
  test::expect_close((x.detach() * 2).to_vector<double>(), x.grad().to_vector<double>(), 1e-12, "first");
  const std::string message = error_of<InvalidState>(
      [&] { gradients({sum(apply<SavesAnother>({x})[0])}, {x}, {.create_graph = true}); });
  EXPECT_TRUE(contains(message, "value 0") && contains(message, "output")) << message;
}

TEST(Function, ErrorsOfTheBackwardPassNameTheTypeAndTheLine) {
  struct TooFew : Function {
    std::vector<NDArray> forward(std::span<const NDArray> in) override { return {in[0] * 1}; }
    std::vector<NDArray> backward(std::span<const NDArray>) override { return {}; }
  };
  struct OtherShape : TooFew {
    std::vector<NDArray> backward(std::span<const NDArray>) override { return {ones({2})}; }
  };
  const NDArray x = test::some({3}).requires_grad_();
  const auto expect = [&](const NDArray& y, int line, const std::string& text) {
    const std::string message = error_of<InvalidArgument>([&] { sum(y).backward(); });
    EXPECT_TRUE(contains(message, text)) << message;
    EXPECT_TRUE(contains(message, "function_test.cc:" + std::to_string(line))) << message;
  };
  const NDArray few = apply<TooFew>({x})[0];
  expect(few, __LINE__ - 1, "[TooFew] expected 1 gradients from backward(), one per input, got 0");
  const NDArray other = apply<OtherShape>({x})[0];
  expect(other, __LINE__ - 1, "[OtherShape] expected gradient 0 from backward() to have");
  const std::vector<NDArray> inputs = {x};
  const NDArray listed = apply<TooFew>(inputs)[0];
  expect(listed, __LINE__ - 1, "(in the gradient of [TooFew], called at ");
  const auto back = [](std::span<const NDArray>) { return std::vector<NDArray>{}; };
  const NDArray parameter = apply<TooFew>(Parameters{Parameter(x)})[0];
  expect(parameter, __LINE__ - 1, "[TooFew]");
  const auto forward = [](std::span<const NDArray> in) { return std::vector<NDArray>{in[0] * 1}; };
  const NDArray closure = apply({x}, forward, back)[0];
  expect(closure, __LINE__ - 1, "[apply] expected 1 gradients");
}

TEST(Function, SavedIsForBackwardOnly) {
  struct Asks : Function {
    std::vector<NDArray> forward(std::span<const NDArray> in) override {
      save({in[0]});
      error_of<InvalidState>([&] { saved(0); });
      return {in[0] * 1};
    }
    std::vector<NDArray> backward(std::span<const NDArray> heads) override {
      error_of<InvalidArgument>([&] { saved(1); });
      error_of<InvalidArgument>([&] { save({NDArray()}); });
      return {heads[0]};
    }
  };
  NDArray x = test::some({3}).requires_grad_();
  sum(apply<Asks>({x})[0]).backward();
  EXPECT_TRUE(x.grad().defined());
}

TEST(Function, Closures) {
  NDArray x = test::some({3}).requires_grad_();
  const NDArray y = apply(
      {x}, [](std::span<const NDArray> in) { return std::vector<NDArray>{floor(in[0])}; },
      [](std::span<const NDArray> heads) { return std::vector<NDArray>{heads[0]}; })[0];
  sum(y * 3).backward();
  EXPECT_EQ((std::vector<double>{3, 3, 3}), x.grad().to_vector<double>()) << "straight through";
}

using List = std::vector<NDArray>;
using In = std::span<const NDArray>;

// Without copies, a change of one of two arrays of the same memory would change the values of the other, but
// not its graph.
TEST(Function, ResultsShareNoMemoryWithAnything) {
  const NDArray x = test::some({2, 2}, 1).requires_grad_(), w = test::some({2, 2}, 2).requires_grad_();
  const NDArray h = x * 2, plain = test::some({2, 2}, 3), late = plain[array<int64_t>({0, 1})];
  const auto forward = [&](In in) {
    const NDArray made = in[0] * 3;
    return List{in[0], in[0][0], made, made[1], made.detach(), w, w[0], plain, plain[0], late};
  };
  const auto back = [](In heads) {
    NDArray g = zeros({2, 2}, f64);
    if (heads[0].defined()) g += heads[0];
    if (heads[1].defined()) g[0] += heads[1];
    if (heads[2].defined()) g += heads[2] * 3;
    if (heads[3].defined()) g[1] += heads[3] * 3;
    return List{g};
  };
  for (const bool recorded : {true, false}) {
    SCOPED_TRACE(recorded);
    const NDArray input = recorded ? h : h.detach();
    const List out = apply({input}, forward, back);
    std::vector<std::vector<double>> values;
    for (const NDArray& one : out) values.push_back(one.to_vector<double>());
    for (size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(recorded, out[i].requires_grad());
      NDArray one = out[i];
      one *= 5;
      for (size_t k = i + 1; k < out.size(); ++k)
        EXPECT_EQ(out[k].to_vector<double>(), values[k]) << i << ' ' << k;
    }
    EXPECT_EQ(h.to_vector<double>(), (x * 2).to_vector<double>());
    EXPECT_EQ(w.to_vector<double>(), test::some({2, 2}, 2).to_vector<double>());
    EXPECT_EQ(plain.to_vector<double>(), test::some({2, 2}, 3).to_vector<double>());
    EXPECT_EQ(late.to_vector<double>(), test::some({2, 2}, 3).to_vector<double>());
    if (!recorded) continue;
    const List g = gradients({sum(out[0]) + sum(out[3])}, {x}, {.retain_graph = true});
    EXPECT_EQ(g[0].to_vector<double>(), (std::vector<double>{10, 10, 40, 40}));
  }
}

TEST(Function, ResultsOfItsOwnAreNotCopied) {
  const void* made = nullptr;
  const NDArray x = test::some({40}).requires_grad_();
  const auto forward = [&](In in) {
    const NDArray y = in[0] * 2;
    made = y.impl().storage.get();
    return List{y};
  };
  const NDArray y = apply({x}, forward, [](In heads) { return List{heads[0] * 2}; })[0];
  EXPECT_EQ(made, y.impl().storage.get());
}

TEST(Function, RefusesAChangeOfARecordedInput) {
  const auto forward = [](In in) {
    NDArray t = in[0];
    t *= 2;
    return List{t + 0};
  };
  const auto back = [](In heads) { return List{heads[0] * 2}; };
  const NDArray w = test::some({2}).requires_grad_();
  EXPECT_TRUE(contains(error_of<InvalidState>([&] { apply({w * 1}, forward, back); }), "changed input 0"));
  apply({test::some({2})}, forward, back);
}

// An array with a node of its own must have a place in memory for each element.
TEST(Function, ResultsAndInputsWhoseElementsShareMemory) {
  const NDArray w = array({2.0}).requires_grad_();
  const auto spread = [](In in) { return List{in[0].broadcast_to({3})}; };
  const auto total = [](In heads) { return List{sum(heads[0], Axes{0}, true)}; };
  NDArray z = apply({w}, spread, total)[0];
  const NDArray part = z[Slice{0, 2}];
  sum(part * part).backward();
  EXPECT_EQ((std::vector<double>{8}), w.grad().to_vector<double>());
  z *= 2;
  EXPECT_EQ((std::vector<double>{4, 4, 4}), z.to_vector<double>());
  EXPECT_EQ((std::vector<double>{2}), w.to_vector<double>());

  struct SquareOfFirst : Function {
    List forward(In in) override {
      save({in[0][Slice{0, 1}]});
      return {in[0][Slice{0, 1}] * in[0][Slice{0, 1}]};
    }
    List backward(In heads) override { return {concat({heads[0] * saved(0) * 2, zeros({2}, f64)}, 0)}; }
  };
  const NDArray y = apply<SquareOfFirst>({w.broadcast_to({3})})[0];
  const NDArray g = gradients({sum(y)}, {w}, {.create_graph = true})[0];
  EXPECT_EQ((std::vector<double>{4}), g.to_vector<double>());
  EXPECT_EQ((std::vector<double>{2}), gradients({sum(g)}, {w})[0].to_vector<double>());
}

TEST(Function, WrongGradientsAreNamed) {
  NDArray x = test::some({3}).requires_grad_();
  const auto run = [&](std::vector<NDArray> gradients_given) {
    const NDArray y = apply(
        {x}, [](std::span<const NDArray> in) { return std::vector<NDArray>{in[0] * 1}; },
        [=](std::span<const NDArray>) { return gradients_given; })[0];
    return error_of<InvalidArgument>([&] { sum(y).backward(); });
  };
  EXPECT_TRUE(contains(run({}), "got 0"));
  EXPECT_TRUE(contains(run({ones({2}, f64)}), "(2,)"));
}

struct Cube : CustomOp {
  static Operator record() {
    return {.kernel = {"test_cube"}, .doc = "x^3.", .inputs = {"x"}, .gradient_uses = {.inputs = bit_set(0)}};
  }
  void infer(InferContext& c) const { c.output(c.shape(0), c.dtype(0)); }
  void forward(const KernelArgs& args) const {
    for (int64_t i = 0; i < args.in[0].numel(); ++i) {
      const double v = args.in[0].as<double>()[i];
      args.out[0].as<double>()[i] = v * v * v;
    }
  }
  void gradient(GradientContext& g) const { g.set(0, g.head() * g.input(0) * g.input(0) * 3); }
};

TEST(CustomOperator, IsRecordedAndDifferentiatedTwice) {
  test::expect_gradients([](const std::vector<NDArray>& a) { return sum(custom<Cube>({a[0]})); },
                         {test::some({3})});
  NDArray x = test::some({3}).requires_grad_();
  const NDArray first = gradients({sum(custom<Cube>({x}))}, {x}, {.create_graph = true})[0];
  sum(first).backward();
  test::expect_close((x.detach() * 6).to_vector<double>(), x.grad().to_vector<double>(), 1e-12, "second");
}

struct NoWayBack : CustomOp {
  static Operator record() { return {.kernel = {"test_no_way_back"}, .doc = "x.", .inputs = {"x"}}; }
  void infer(InferContext& c) const { c.output(c.shape(0), c.dtype(0)); }
  std::vector<NDArray> compose(std::span<const NDArray> in) const { return {in[0] * 1}; }
};
struct NoGradient : CustomOp {
  static Operator record() { return {.kernel = {"test_no_gradient"}, .doc = "x.", .inputs = {"x"}}; }
  void infer(InferContext& c) const { c.output(c.shape(0), c.dtype(0)); }
  void forward(const KernelArgs& args) const { *args.out[0].as<double>() = *args.in[0].as<double>(); }
};

TEST(CustomOperator, WithoutAGradientSaysSoWhenItIsAskedFor) {
  NDArray x = test::some({1}).requires_grad_();
  const NDArray y = custom<NoGradient>({x});
  const std::string message = error_of<InvalidArgument>([&] { y.backward(); });
  EXPECT_TRUE(contains(message, "test_no_gradient") && contains(message, "function_test.cc")) << message;
  custom<NoWayBack>({x}).backward();
  EXPECT_EQ(1, x.grad().item<double>()) << "what is composed has the gradient of its parts";
}

}  // namespace
}  // namespace mx
