// Attention with a dropout of its weights: the choices of dropout() on stored weights, gradients, memory.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

#include "engine/device/registry.h"
#include "executor/autograd/autograd.h"
#include "operators/attention.h"
#include "operators/operators.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"
#include "tests/support/thread_limit.h"

namespace mx {
namespace {

using test::Values;

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

struct DropoutCase {
  int64_t batch, heads, groups, rows, keys, width, value_width;
  double p;
  bool causal = false;
  DType type = f64;

  AttentionOptions options() const { return {.causal = causal, .causal_offset = keys - rows}; }
};

std::vector<NDArray> dropout_operands(const DropoutCase& c) {
  return {test::numbers({c.batch, c.heads, c.rows, c.width}, f64, 1).to(c.type),
          test::numbers({c.batch, c.groups, c.keys, c.width}, f64, 2).to(c.type),
          test::numbers({c.batch, c.groups, c.keys, c.value_width}, f64, 3).to(c.type)};
}

/// Operators that store the weights.
NDArray stored_attention(const DropoutCase& c, const std::vector<NDArray>& in, Generator& generator) {
  const int64_t shared = c.heads / c.groups;
  const NDArray k = repeat(in[1], shared, 1), v = repeat(in[2], shared, 1);
  NDArray scores = matmul(in[0], k.swap_axes(-1, -2)) / std::sqrt(static_cast<double>(c.width));
  if (c.causal) {
    const NDArray i = arange(0, c.rows, i64).reshape({c.rows, 1}), j = arange(0, c.keys, i64);
    scores = where(less_equal(j, i + (c.keys - c.rows)), scores, kMinusInfinity);
  }
  return matmul(dropout(softmax(scores, -1), c.p, true, &generator), v);
}

const DropoutCase kDropoutCases[] = {
    {1, 1, 1, 3, 5, 4, 2, 0.5},          {2, 4, 2, 70, 150, 6, 3, 0.3}, {2, 2, 1, 130, 130, 8, 8, 0.1, true},
    {1, 2, 2, 65, 1100, 4, 5, 0.7},      {1, 1, 1, 4, 9, 4, 4, 1},      {1, 3, 1, 9, 20, 4, 4, 0},
    {1, 1, 1, 64, 4096, 2, 2, 0.5, true}};

TEST(AttentionDropout, MakesTheChoicesOfADropoutOfStoredWeights) {
  for (const DropoutCase& c : kDropoutCases) {
    const std::vector<NDArray> in = dropout_operands(c);
    Generator one(7), two(7);
    const NDArray want = stored_attention(c, in, one),
                  got = attention_with_dropout(in[0], in[1], in[2], c.p, {}, c.options(), &two);
    test::expect_values(test::values(want), got, "y", 1000);
    // Both have taken as many numbers.
    EXPECT_EQ(one.state().to_vector<int64_t>(), two.state().to_vector<int64_t>());
  }
}

TEST(AttentionDropout, HasTheGradientsOfADropoutOfStoredWeights) {
  for (const DropoutCase& c : kDropoutCases) {
    const std::vector<NDArray> in = dropout_operands(c);
    const NDArray dy = test::numbers({c.batch, c.heads, c.rows, c.value_width}, f64, 4);
    const auto gradients_of = [&](bool stored, bool create_graph) {
      std::vector<NDArray> leaves;
      for (const NDArray& x : in) leaves.push_back(x.clone().requires_grad_());
      Generator generator(11);
      const NDArray y =
          stored ? stored_attention(c, leaves, generator)
                 : attention_with_dropout(leaves[0], leaves[1], leaves[2], c.p, {}, c.options(), &generator);
      return gradients({y}, leaves, {.heads = {dy}, .create_graph = create_graph});
    };
    const std::vector<NDArray> want = gradients_of(true, false), got = gradients_of(false, false),
                               plain = gradients_of(false, true);
    for (size_t i = 0; i < 3; ++i) {
      const Values all = test::values(want[i]);
      double largest = 0;
      for (const double x : all) largest = std::max(largest, std::abs(x));
      for (const NDArray& other : {got[i], plain[i]}) {
        const Values values = test::values(other);
        for (size_t e = 0; e < all.size(); ++e) ASSERT_NEAR(all[e], values[e], 1e-12 * (1 + largest)) << i;
      }
    }
  }
}

TEST(AttentionDropout, TakesMasksAndShortTypes) {
  for (const DType type : {f32, f16, bf16}) {
    DropoutCase c{2, 2, 1, 20, 140, 8, 4, 0.4};
    c.type = type;
    const std::vector<NDArray> in = dropout_operands(c);
    NDArray mask = test::numbers({20, 140}, f64, 9) > 0;
    mask[3].fill_(false);
    Generator one(3), two(3);
    const NDArray got = attention_with_dropout(in[0], in[1], in[2], c.p, mask, {}, &one);
    EXPECT_EQ(test::values(got.select(2, 3)), Values(2 * 2 * 4, 0.0));
    const NDArray added = where(mask, 0.0, kMinusInfinity).to(type),
                  same = attention_with_dropout(in[0], in[1], in[2], c.p, added, {}, &two);
    EXPECT_EQ(test::values(got), test::values(same));
  }
}

TEST(AttentionDropout, HasTheSameBitsAtAnyNumberOfThreads) {
  const DropoutCase c{2, 4, 2, 150, 700, 8, 8, 0.2, false, f32};
  const std::vector<NDArray> in = dropout_operands(c);
  const auto all = [&] {
    std::vector<NDArray> leaves;
    for (const NDArray& x : in) leaves.push_back(x.clone().requires_grad_());
    Generator generator(1);
    const NDArray y = attention_with_dropout(leaves[0], leaves[1], leaves[2], c.p, {}, {}, &generator);
    std::vector<Values> result{test::values(y)};
    for (const NDArray& g : gradients({sum(y * y)}, leaves)) result.push_back(test::values(g));
    return result;
  };
  std::vector<Values> one, four;
  test::with_threads(1, [&] { one = all(); });
  test::with_threads(4, [&] { four = all(); });
  EXPECT_EQ(one, four);
}

TEST(AttentionDropout, NoMatrixOfScoresOrChoicesIsStored) {
  constexpr int64_t kLength = 4096;
  const NDArray x = test::numbers({1, 1, kLength, 16}, f32), q = x.clone().requires_grad_();
  for (const NDArray& array : {x, q}) array.wait();
  Device& device = get_device(cpu());
  device.reset_peak_memory();
  const size_t before = device.memory_stats().in_use_bytes;
  sum(attention_with_dropout(q, x, x, 0.1)).backward();
  q.grad().wait();
  // The choices alone, of a byte each, would be 16 MiB.
  EXPECT_LT(device.memory_stats().peak_in_use_bytes - before, size_t{kLength} * kLength / 2);
}

TEST(AttentionDropout, WrongOperandsAreNamed) {
  const NDArray x = ones({1, 2, 3, 4});
  const auto message = [](const std::function<void()>& f) { return test::error_of<InvalidArgument>(f); };
  EXPECT_TRUE(test::contains(message([&] { attention_with_dropout(x, x, x, 1.5); }),
                             "[attention_with_dropout] expected a probability from 0 to 1, got 1.5"));
  EXPECT_TRUE(test::contains(message([&] { attention_with_dropout(x, x, ones({3}), 0.5); }),
                             "[attention_dropout] expected q (B, H, L, E)"));
  EXPECT_TRUE(test::contains(message([&] { attention_with_dropout(ones({3}), x, x, 0.5); }),
                             "[attention_dropout] expected q (B, H, L, E)"));
  const NDArray one = ones({2, 3, 4});
  EXPECT_EQ(attention_with_dropout(one, one, one, 0.5).shape(), one.shape());
}

}  // namespace
}  // namespace mx
