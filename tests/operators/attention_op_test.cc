// Attention: a plain loop in float64, masks, sizes. Gradients: tests/executor/attention_gradient_test.cc.
#include "operators/attention.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <optional>
#include <random>
#include <vector>

#include "operators/operators.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::kInfinity;
using test::kNan;
using test::Values;

struct AttentionResult {
  Values y, sums;
};

/// One row of scores after the other, in float64. `mask` gives what is added to a score.
AttentionResult plain_attention(const NDArray& q, const NDArray& k, const NDArray& v,
                                const std::optional<NDArray>& mask, const AttentionOptions& options) {
  const Shape &n = q.shape(), &m = v.shape();
  const int64_t heads = n[1], rows = n[2], width = n[3], groups = m[1], keys = m[2], value_width = m[3];
  const double scale = options.scale != 0 ? options.scale : 1 / std::sqrt(static_cast<double>(width));
  const Values a = test::values(q), b = test::values(k), c = test::values(v);
  Values added(static_cast<size_t>(n[0] * heads * rows * keys), 0.0);
  if (mask && mask->dtype() == bool_)
    added = test::values(where(mask->broadcast_to({n[0], heads, rows, keys}), 0.0, -kInfinity).to(f64));
  else if (mask)
    added = test::values(mask->broadcast_to({n[0], heads, rows, keys}));
  AttentionResult result;
  for (int64_t row = 0; row < n[0] * heads * rows; ++row) {
    const int64_t i = row % rows, head = row / rows;
    const int64_t group = head / heads * groups + head % heads / (heads / groups);
    Values scores(static_cast<size_t>(keys));
    double top = -kInfinity, sum = 0;
    for (int64_t j = 0; j < keys; ++j) {
      double dot = 0;
      for (int64_t e = 0; e < width; ++e)
        dot +=
            a[static_cast<size_t>(row * width + e)] * b[static_cast<size_t>((group * keys + j) * width + e)];
      double& score = scores[static_cast<size_t>(j)];
      score = dot * scale + added[static_cast<size_t>(row * keys + j)];
      if (options.causal && j > i + options.causal_offset) score = -kInfinity;
      top = std::max(top, score);
    }
    Values y(static_cast<size_t>(value_width), 0.0);
    for (int64_t j = 0; j < keys && top > -kInfinity; ++j) {
      const double weight = std::exp(scores[static_cast<size_t>(j)] - top);
      sum += weight;
      for (int64_t f = 0; f < value_width; ++f)
        y[static_cast<size_t>(f)] += weight * c[static_cast<size_t>((group * keys + j) * value_width + f)];
    }
    for (double& e : y) result.y.push_back(sum > 0 ? e / sum : 0);
    result.sums.push_back(sum > 0 ? top + std::log(sum) : -kInfinity);
  }
  return result;
}

TEST(AttentionOp, AgreesWithAPlainLoopForAllSamplesAndTypes) {
  const Operator& op = *find_operator("attention");
  for (const DType type : {f32, f64, f16, bf16})
    for (const Sample& sample : samples_of(op)) {
      std::vector<NDArray> in = sample.inputs;
      for (NDArray& x : in)
        if (x.dtype() != bool_) x = x.to(type);
      const std::optional<NDArray> mask = in.size() > 3 ? std::optional(in[3]) : std::nullopt;
      const AttentionResult want =
          plain_attention(in[0], in[1], in[2], mask, sample.attrs.get<AttentionAttrs>());
      const std::vector<NDArray> got = call(op, sample.attrs, in);
      test::expect_values(want.y, got[0], sample.label);
      test::expect_values(want.sums, got[1], sample.label, 4);
    }
}

// Sizes beside and beyond the blocks of the kernel.
TEST(AttentionOp, AgreesWithAPlainLoopForAllSizes) {
  for (const int64_t rows : {1, 5, 63, 64, 65, 130})
    for (const int64_t keys : {1, 127, 128, 129, 300})
      for (const bool causal : {false, true}) {
        const NDArray q = test::numbers({2, 4, rows, 9}, f64, 1), k = test::numbers({2, 2, keys, 9}, f64, 2),
                      v = test::numbers({2, 2, keys, 5}, f64, 3);
        const AttentionOptions options{.causal = causal, .causal_offset = 3};
        const AttentionResult want = plain_attention(q, k, v, {}, options);
        test::expect_values(want.y, scaled_dot_product_attention(q, k, v, {}, options),
                            std::to_string(rows) + " rows, " + std::to_string(keys) + " keys", 10);
      }
}

/// An array of this shape with gaps between its elements, or with its dimensions in another order.
NDArray laid_out(const NDArray& x, uint32_t layout) {
  if (layout == 0) return x;
  if (layout == 1) return x.swap_axes(1, 2).clone().swap_axes(1, 2);
  if (layout == 2) return x.swap_axes(2, 3).clone().swap_axes(2, 3);
  return stack({x, x}, -1).select(-1, 1);
}

TEST(AttentionOp, AgreesWithAPlainLoopForRandomShapesMasksAndLayouts) {
  std::mt19937 random(7);
  const auto below = [&](uint32_t n) { return static_cast<int64_t>(random() % n); };
  const int64_t lengths[] = {1, 2, 63, 64, 65, 127, 128, 129, 190, 256, 257};
  for (int round = 0; round < 120; ++round) {
    SCOPED_TRACE(round);
    const DType type = std::array{f32, f64, f16, bf16}[static_cast<size_t>(below(4))];
    const int64_t groups = 1 + below(2), heads = groups * (1 + below(3)), batch = 1 + below(2);
    const int64_t rows = lengths[below(11)], keys = lengths[below(11)], width = 1 + below(40),
                  values = 1 + below(40);
    const auto operand = [&](const Shape& shape, uint64_t seed) {
      return laid_out(test::numbers(shape, type, seed), static_cast<uint32_t>(below(4)));
    };
    const NDArray q = operand({batch, heads, rows, width}, 1), k = operand({batch, groups, keys, width}, 2),
                  v = operand({batch, groups, keys, values}, 3);
    NDArray mask;
    if (const int64_t kind = below(3); kind > 0) {
      const auto size = [&](int64_t n) { return below(2) == 0 ? n : 1; };
      const Shape shape{size(batch), size(heads), size(rows), size(keys)};
      const NDArray numbers = test::numbers(shape, type, 4);
      mask = kind == 1 ? less(numbers, 0.7) : numbers;
    }
    const AttentionOptions options{
        .scale = below(2) == 0 ? 0 : 0.3, .causal = below(2) == 0, .causal_offset = below(200) - 70};
    const AttentionResult want =
        plain_attention(q, k, v, mask.defined() ? std::optional(mask) : std::nullopt, options);
    test::expect_values(want.y, scaled_dot_product_attention(q, k, v, mask, options), "y", 20);
  }
}

TEST(AttentionOp, OffsetsBeyondTheKeysAreThoseAtTheEnds) {
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
  const NDArray q = test::numbers({1, 1, 5, 4}, f32, 1), k = test::numbers({1, 1, 7, 4}, f32, 2);
  const auto causal = [&](int64_t offset) {
    return test::values(scaled_dot_product_attention(q, k, k, {}, {.causal = true, .causal_offset = offset}));
  };
  const Values all = test::values(scaled_dot_product_attention(q, k, k));
  for (const int64_t offset : {int64_t{7}, kMost / 2, kMost - 3, kMost})
    EXPECT_EQ(all, causal(offset)) << offset;
  for (const int64_t offset : {int64_t{-5}, -kMost / 2, -kMost, -kMost - 1})
    EXPECT_EQ(Values(20, 0.0), causal(offset)) << offset;
}

TEST(AttentionOp, ViewsAndOneHead) {
  const NDArray all = test::numbers({2, 7, 3, 2, 8}, f32);  // batch, length, q k v, heads, width
  const auto part = [&](int64_t i) { return all.select(2, i).swap_axes(1, 2); };
  const NDArray y = scaled_dot_product_attention(part(0), part(1), part(2));
  const NDArray copied = scaled_dot_product_attention(part(0).clone(), part(1).clone(), part(2).clone());
  EXPECT_EQ(test::values(copied), test::values(y));
  const NDArray one =
      scaled_dot_product_attention(part(0).select(1, 1), part(1).select(1, 1), part(2).select(1, 1));
  EXPECT_EQ(one.shape(), (Shape{2, 7, 8}));
  EXPECT_EQ(test::values(y.select(1, 1)), test::values(one));
}

TEST(AttentionOp, ALaterTokenLeavesEarlierOutputsAsTheyWere) {
  NDArray q = test::numbers({1, 2, 200, 16}, f32, 1), k = test::numbers({1, 2, 200, 16}, f32, 2),
          v = test::numbers({1, 2, 200, 16}, f32, 3);
  const AttentionOptions causal{.causal = true};
  const Values before = test::values(scaled_dot_product_attention(q, k, v, {}, causal).slice(2, {0, 150}));
  for (NDArray* x : {&q, &k, &v}) x->slice(2, {150, 200}).fill_(7.25);
  EXPECT_EQ(before, test::values(scaled_dot_product_attention(q, k, v, {}, causal).slice(2, {0, 150})));
}

TEST(AttentionOp, NanReachesTheRowsThatSeeIt) {
  NDArray q = test::numbers({1, 1, 4, 8}, f32, 1);
  const NDArray k = test::numbers({1, 1, 6, 8}, f32, 2), v = test::numbers({1, 1, 6, 3}, f32, 3);
  q.select(2, 2).fill_(kNan);
  const Values y = test::values(scaled_dot_product_attention(q, k, v));
  for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i / 3 == 2) << i;
}

TEST(AttentionOp, TheExampleOfTheDocuments) {
  NDArray q = randn({2, 8, 100, 64}), k = randn({2, 2, 100, 64}), v = randn({2, 2, 100, 64});
  NDArray y = scaled_dot_product_attention(q, k, v, {}, {.causal = true});
  EXPECT_EQ(y.shape(), (Shape{2, 8, 100, 64}));
}

TEST(AttentionOp, WrongOperandsAreNamed) {
  const NDArray q = ones({2, 4, 3, 8}), k = ones({2, 4, 5, 8}), v = ones({2, 4, 5, 6});
  const auto refused = [&](const NDArray& a, const NDArray& b, const NDArray& c, const NDArray& mask = {}) {
    return error_of<InvalidArgument>([&] { scaled_dot_product_attention(a, b, c, mask); });
  };
  EXPECT_TRUE(contains(refused(q, k.slice(3, {0, 7}), v), "expected q (B, H, L, E), k (B, G, S, E)"));
  EXPECT_TRUE(contains(refused(q, k.slice(1, {0, 3}), v.slice(1, {0, 3})), "a multiple of that of k and v"));
  EXPECT_TRUE(contains(refused(q, k.to(f64), v), "of one floating-point type"));
  for (const Shape& shape : {Shape{3, 4}, Shape{2, 3, 5}, Shape{1, 2, 4, 3, 5}})
    EXPECT_TRUE(
        contains(refused(q, k, v, ones(shape)),
                 "[attention] expected a mask that broadcasts to the shape of the scores, (2, 4, 3, 5), got"))
        << shape;
  EXPECT_TRUE(contains(refused(q, k, v, ones({3, 5}, i32)), "a mask of bool or of the type of q"));
  EXPECT_TRUE(contains(refused(q[0][0], k[0][0], v[0][0]), "expected q (B, H, L, E)"));
}

}  // namespace
}  // namespace mx
