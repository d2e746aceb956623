// Gradients of recurrent layers: the fused kernels against operators, over sizes beside the blocks.
#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "executor/autograd/autograd.h"
#include "ndarray/grad_mode.h"
#include "operators/autocast.h"
#include "operators/operators.h"
#include "operators/recurrent.h"
#include "tests/operators/values.h"

namespace mx {
namespace {

struct GradientCase {
  std::string name;
  bool reverse;
  std::vector<int64_t> sizes;  // empty: 4 steps of `batch`
  int64_t batch, hidden;
};

std::vector<NDArray> gradients_of_case(const GradientCase& c, bool create_graph) {
  const int64_t gates = c.name == "lstm" ? 4 : c.name == "gru" ? 3 : 1;
  int64_t rows = 0;
  for (const int64_t size : c.sizes) rows += size;
  const Shape leading = c.sizes.empty() ? Shape{4, c.batch} : Shape{rows};
  const auto with = [&](int64_t width) {
    Shape shape = leading;
    shape.push_back(width);
    return shape;
  };
  std::vector<NDArray> leaves = {
      test::numbers(with(gates * c.hidden), f64, 1),
      (test::numbers({gates * c.hidden, c.hidden}, f64, 2) / std::sqrt(static_cast<double>(c.hidden))),
      test::numbers({c.batch, c.hidden}, f64, 3)};
  if (c.name == "lstm") leaves.push_back(test::numbers({c.batch, c.hidden}, f64, 4));
  if (c.name == "gru") leaves.push_back(test::numbers({3 * c.hidden}, f64, 5));
  for (NDArray& leaf : leaves) leaf = leaf.clone().requires_grad_();
  Attrs attrs = RecurrentAttrs{.reverse = c.reverse, .batch_sizes = c.sizes};
  const bool plain = c.name == "tanh" || c.name == "relu";
  if (plain) attrs = RnnAttrs{.nonlinearity = c.name, .reverse = c.reverse, .batch_sizes = c.sizes};
  const std::vector<NDArray> y = call(*find_operator(plain ? "rnn" : c.name), attrs, leaves);
  std::vector<NDArray> outputs = {y[0]}, heads = {test::numbers(with(c.hidden), f64, 6)};
  if (c.name == "lstm") {
    outputs.push_back(y[1]);
    heads.push_back(test::numbers(with(c.hidden), f64, 7));
  }
  return gradients(outputs, leaves, {.heads = heads, .create_graph = create_graph});
}

TEST(RecurrentGradient, TheFusedGradientIsThatOfTheOperators) {
  for (const char* name : {"tanh", "relu", "lstm", "gru"})
    for (const bool reverse : {false, true})
      for (const GradientCase& c :
           {GradientCase{name, reverse, {}, 37, 18}, GradientCase{name, reverse, {9, 6, 6, 2}, 9, 33},
            GradientCase{name, reverse, {}, 2, 140}}) {
        const std::vector<NDArray> fused = gradients_of_case(c, false), plain = gradients_of_case(c, true);
        ASSERT_EQ(fused.size(), plain.size());
        for (size_t i = 0; i < fused.size(); ++i)
          test::expect_values(test::values(plain[i]), fused[i],
                              c.name + " gradient " + std::to_string(i) + (reverse ? " reverse" : ""), 100);
      }
}

TEST(RecurrentGradient, CutSequencesHaveTheGradientOfWholeOnes) {
  const NDArray x = test::numbers({6, 3, 20}, f64, 1).requires_grad_(),
                w = (test::numbers({20, 5}, f64, 2) / 3).requires_grad_();
  const auto loss = [&](bool cut) {
    NDArray h = zeros({3, 5}, f64), c = h, total = zeros({}, f64);
    for (int64_t t = 0; t < 6; t += cut ? 2 : 6) {
      const std::vector<NDArray> inputs{x.slice(0, {t, t + (cut ? 2 : 6)}), w, h, c};
      const std::vector<NDArray> out = call(*find_operator("lstm"), RecurrentAttrs{}, inputs);
      h = out[0][out[0].shape()[0] - 1];
      c = out[1][out[1].shape()[0] - 1];
      total = total + sum(out[0] * out[0]);
    }
    return total + sum(c * h);
  };
  const std::vector<NDArray> whole = gradients({loss(false)}, {x, w}), cut = gradients({loss(true)}, {x, w});
  for (size_t i = 0; i < 2; ++i) test::expect_values(test::values(whole[i]), cut[i], "gradient", 100);
}

// A pass that stores what the backward pass needs, and one that stores nothing.
TEST(RecurrentGradient, APassThatIsRecordedHasTheBitsOfOneThatIsNot) {
  const NDArray x = test::numbers({50, 6, 3}, f32, 1), h0 = test::numbers({6, 40}, f32, 2),
                c0 = test::numbers({6, 40}, f32, 3);
  for (const std::string name : {"rnn", "lstm", "gru"}) {
    const int64_t width = name == "lstm" ? 160 : name == "gru" ? 120 : 40;
    RecurrentWeights w{test::numbers({width, 3}, f32, 4), test::numbers({width, 40}, f32, 5) / 7,
                       test::numbers({width}, f32, 6), test::numbers({width}, f32, 7)};
    w.w_ih.requires_grad_();
    const auto run = [&] {
      return name == "rnn" ? rnn(x, w, h0) : name == "gru" ? gru(x, w, h0) : lstm(x, w, h0, c0);
    };
    const RecurrentResult recorded = run();
    EXPECT_TRUE(recorded.y.requires_grad());
    RecurrentResult plain;
    {
      const NoGrad scope;
      plain = run();
    }
    EXPECT_EQ(test::values(recorded.y), test::values(plain.y)) << name;
    EXPECT_EQ(test::values(recorded.h_n), test::values(plain.h_n)) << name;
    if (name == "lstm") {
      EXPECT_EQ(test::values(recorded.c_n), test::values(plain.c_n));
    }
    // One operand that requires a gradient is enough for a recorded pass.
    w.w_ih.requires_grad_(false);
    w.b_hh.requires_grad_();
    EXPECT_TRUE(run().y.requires_grad()) << name;
  }
}

// The same in a scope of mixed precision, and with inputs of another type than the weights.
TEST(RecurrentGradient, APassThatIsNotRecordedConvertsItsOperandsAsOneThatIs) {
  const NDArray x = test::numbers({20, 3, 5}, f32, 1), h0 = test::numbers({3, 12}, f32, 2),
                c0 = test::numbers({3, 12}, f32, 3);
  for (const bool mixed : {false, true}) {
    const DType type = mixed ? f32 : f64;
    RecurrentWeights w{test::numbers({48, 5}, type, 4), test::numbers({48, 12}, type, 5) / 7,
                       test::numbers({48}, type, 6), test::numbers({48}, type, 7)};
    w.w_hh = w.w_hh.clone().requires_grad_();
    std::optional<Autocast> scope;
    if (mixed) scope.emplace(bf16);
    const NDArray h = h0.to(type), c = c0.to(type);
    const RecurrentResult recorded = lstm(x, w, h, c);
    const NoGrad no_gradients;
    const RecurrentResult plain = lstm(x, w, h, c);
    EXPECT_EQ(recorded.y.dtype(), plain.y.dtype());
    EXPECT_EQ(recorded.c_n.dtype(), plain.c_n.dtype());
    EXPECT_EQ(test::values(recorded.y), test::values(plain.y));
    EXPECT_EQ(test::values(recorded.c_n), test::values(plain.c_n));
  }
}

}  // namespace
}  // namespace mx
