// The CUDA kernels of attention with sizes beside and beyond their tiles, in every combination of masks,
// causal rows, grouped heads and dropout that takes another way.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "operators/attention.h"
#include "operators/cuda/attention_parts.h"
#include "operators/elementwise_binary.h"
#include "operators/elementwise_unary.h"
#include "operators/reduce.h"
#include "operators/select.h"
#include "operators/shape_ops.h"
#include "tests/cuda/executor/kernel_cases.h"

namespace mx::test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct Case {
  int64_t batches = 1, heads = 1, groups = 1, rows = 1, keys = 1, width = 5, values = 5;
  AttentionAttrs attrs{};
  NDArray mask{};
  double dropout = 0;
  DType type = f32;
};

class CudaAttentionSizes : public SizesTest {
 protected:
  /// Compares the attention of these arrays and its gradients with those of the CPU.
  static void expect_attention(const Case& c, const NDArray& q, const NDArray& k, const NDArray& v) {
    std::vector<NDArray> inputs{q, k, v};
    Attrs attrs = c.attrs;
    std::string name = "attention";
    if (c.dropout > 0) {
      inputs.push_back(array({int64_t{5}, int64_t{9}}));
      attrs = AttentionDropoutAttrs{c.dropout, c.attrs.scale, c.attrs.causal, c.attrs.causal_offset};
      name += "_dropout";
    }
    if (c.mask.defined()) inputs.push_back(c.mask);
    expect_same(name.c_str(), attrs, inputs);
    const std::vector<NDArray> y = call(*find_operator(name), attrs, inputs);
    const NDArray dy = Generator(11).normal(0, 1, y[0].shape()).to(c.type);
    // With a gradient of the sums, so that the gradients of a row with one key are not only rounding errors.
    const NDArray delta = sum(dy.to(y[1].dtype()) * y[0].to(y[1].dtype()), -1) - 0.5;
    inputs.insert(inputs.begin(), dy);
    inputs.insert(inputs.begin() + 4, {y[1], delta});
    expect_same((name + "_backward").c_str(), attrs, inputs);
  }
  static void expect_attention(const Case& c) {
    expect_attention(c, numbers({c.batches, c.heads, c.rows, c.width}, c.type),
                     Generator(21).normal(0, 1, {c.batches, c.groups, c.keys, c.width}).to(c.type),
                     Generator(22).normal(0, 1, {c.batches, c.groups, c.keys, c.values}).to(c.type));
  }
  static std::vector<NDArray> results(const char* name, const std::vector<NDArray>& inputs) {
    return call(on_host(*find_operator(name)), AttentionAttrs{}, inputs);
  }
  /// True with a probability of 0.7.
  static NDArray some(const Shape& shape) { return less(Generator(12).uniform(0, 1, shape), 0.7); }
};

TEST_F(CudaAttentionSizes, TilesOfRowsAndKeys) {
  for (const int64_t rows : {1, 8, 9, 63, 64, 65, 130})
    for (const int64_t keys : {1, 63, 64, 65, 130}) {
      expect_attention({.rows = rows, .keys = keys});
      if (kThreadSanitizer) return;
      expect_attention({.rows = rows, .keys = keys, .attrs = {.causal = true, .causal_offset = keys - rows}});
    }
}

TEST_F(CudaAttentionSizes, Widths) {
  if (kThreadSanitizer) GTEST_SKIP() << "too slow under ThreadSanitizer";
  // Rows stay in shared memory up to a width of 256, in the backward pass up to 256 for both widths together.
  for (const int64_t width : {1, 5, 31, 32, 33, 64, 65, 80, 127, 128, 129, 257, 300})
    for (const DType type : {f32, f64}) {
      expect_attention({.rows = 65, .keys = 66, .width = width, .values = width, .type = type});
      expect_attention({.rows = 3, .keys = 70, .width = width, .values = 3, .type = type});
      expect_attention({.rows = 66, .keys = 2, .width = 3, .values = width, .type = type});
    }
}

TEST_F(CudaAttentionSizes, Types) {
  if (kThreadSanitizer) GTEST_SKIP() << "too slow under ThreadSanitizer";
  for (const DType type : {f16, bf16, f64})
    for (const int64_t width : {30, 64})
      expect_attention({.batches = 2,
                        .heads = 2,
                        .groups = 2,
                        .rows = 70,
                        .keys = 67,
                        .width = width,
                        .values = width + 4,
                        .attrs = {.causal = true},
                        .type = type});
}

TEST_F(CudaAttentionSizes, PackedArrays) {
  const auto expect_packed = [](const AttentionPackedAttrs& attrs, int64_t length, int64_t width, DType type,
                                const NDArray& mask = {}) {
    const int64_t heads = attrs.heads + 2 * attrs.key_heads();
    std::vector<NDArray> inputs{
        numbers(attrs.batch_first ? Shape{2, length, heads * width} : Shape{length, 2, heads * width}, type)};
    if (mask.defined()) inputs.push_back(mask);
    expect_same("attention_packed", attrs, inputs);
    const std::vector<NDArray> y = call(*find_operator("attention_packed"), attrs, inputs);
    inputs.insert(inputs.begin(), Generator(11).normal(0, 1, y[0].shape()).to(type));
    inputs.insert(inputs.begin() + 2, y.begin(), y.end());
    expect_same("attention_packed_backward", attrs, inputs);
  };
  for (const int64_t length : {1, 8, 65}) {
    expect_packed({.heads = 2}, length, 5, f32);
    if (kThreadSanitizer) return;
    for (const DType type : {f32, f64, f16, bf16}) {
      if (kSlow && type != f32) break;
      for (const int64_t width : {3, 16, 72})
        expect_packed({.heads = 4, .groups = 2, .batch_first = false, .scale = 0.4, .causal = true}, length,
                      width, type, some({4, 1, length}));
    }
  }
  expect_packed({.heads = 3}, 40, 0, f32);
  expect_packed({.heads = 3}, 0, 4, f32);
  expect_packed({.heads = 2}, 600, 8, f32);
}

TEST_F(CudaAttentionSizes, GroupedHeads) {
  for (const int64_t groups : {1, 2, 6}) {
    expect_attention({.batches = 2, .heads = 6, .groups = groups, .rows = 9, .keys = 65, .values = 6});
    if (kThreadSanitizer) return;
    expect_attention({.batches = 2,
                      .heads = 6,
                      .groups = groups,
                      .rows = 66,
                      .keys = 67,
                      .attrs = {.scale = 0.4, .causal = true, .causal_offset = 2},
                      .mask = some({6, 1, 67}),
                      .dropout = 0.2});
  }
}

TEST_F(CudaAttentionSizes, CausalOffsets) {
  if (kThreadSanitizer) GTEST_SKIP() << "too slow under ThreadSanitizer";
  constexpr int64_t kMost = std::numeric_limits<int64_t>::max() / 2;
  for (const int64_t offset : {int64_t{1}, int64_t{63}, int64_t{64}, int64_t{62}, int64_t{-1}, int64_t{-2},
                               int64_t{-64}, int64_t{-70}, int64_t{-200}, int64_t{200}, kMost, -kMost})
    expect_attention(
        {.rows = 130, .keys = 129, .attrs = {.causal = true, .causal_offset = offset}, .dropout = 0.4});
}

// One tile of rows with many keys: blocks share the keys, and a second kernel joins their parts.
TEST_F(CudaAttentionSizes, FewRowsWithManyKeys) {
  for (const DType type : {f32, f64, f16, bf16})
    for (const int64_t keys : {512, 700, 1024 + 1}) {
      expect_attention({.rows = 1, .keys = keys, .width = 33, .values = 17, .type = type});
      if (kThreadSanitizer) return;
      if (kSlow && type != f32) break;
      expect_attention({.batches = 2, .heads = 4, .groups = 2, .rows = 8, .keys = keys, .type = type});
      expect_attention({.heads = 2, .groups = 2, .rows = 3, .keys = keys, .values = 130, .type = type});
    }
  for (const double dropout : {0., 0.3}) {
    Case c{.heads = 2, .groups = 1, .rows = 5, .keys = 650, .dropout = dropout};
    for (const int64_t offset : {0, 300, 600, 645, 5000}) {
      c.attrs = {.scale = 0.7, .causal = true, .causal_offset = offset};
      expect_attention(c);
    }
    for (const Shape& shape : {Shape{5, 650}, Shape{650}, Shape{2, 1, 1}}) {
      c.mask = Generator(13).normal(0, 1, shape);
      expect_attention(c);
      c.mask = some(shape);
      expect_attention(c);
    }
    // Parts without a key that takes part, and rows without any.
    c.attrs = {};
    c.mask = less(arange(5).reshape({5, 1}), 4) * less(arange(650), 70);
    c.mask = c.mask.to(bool_);
    expect_attention(c);
  }
  expect_attention({.rows = 2, .keys = 600, .width = 0, .values = 3});
  expect_attention({.rows = 2, .keys = 600, .width = 3, .values = 0});
}

TEST_F(CudaAttentionSizes, DividedKeysGiveWhatUndividedOnesGive) {
  if (kThreadSanitizer) GTEST_SKIP() << "too slow under ThreadSanitizer";
  // 130 equal heads are too many to divide the keys, and one is not.
  const NDArray q = numbers({1, 1, 2, 6}), k = numbers({1, 1, 520, 6}), v = numbers({1, 1, 520, 9});
  const int64_t before = executor_launches();
  const std::vector<NDArray> divided = results("attention", {q, k, v});
  EXPECT_EQ(2, executor_launches() - before);
  const std::vector<NDArray> whole = results("attention", {q.broadcast_to({1, 130, 2, 6}), k, v});
  EXPECT_EQ(3, executor_launches() - before);
  for (size_t i = 0; i < 2; ++i) expect_close(whole[i].slice(1, {129, 130}), divided[i], f32);
}

TEST_F(CudaAttentionSizes, NumbersThatAreNotFiniteInDividedKeys) {
  const auto attention_of = [](const std::vector<float>& scores, const std::vector<float>& values) {
    const auto keys = static_cast<int64_t>(scores.size());
    return results("attention", {ones({1, 1, 1, 1}), array(scores).reshape({1, 1, keys, 1}),
                                 array(values).reshape({1, 1, keys, 1})});
  };
  // The key with the highest score is in another part than the infinite value, whose weight it makes 0.
  std::vector<float> scores(700, -300), values(700, 1);
  scores[600] = 300;
  values[3] = kInfinity;
  std::vector<NDArray> y = attention_of(scores, values);
  EXPECT_EQ(1, y[0].item<float>());
  EXPECT_EQ(300, y[1].item<float>());
  for (const float bad : {kInfinity, std::numeric_limits<float>::quiet_NaN()})
    for (const size_t at : {size_t{0}, size_t{699}}) {
      scores.assign(700, 0);
      scores[at] = bad;
      y = attention_of(scores, std::vector<float>(700, 1));
      EXPECT_TRUE(std::isnan(y[0].item<float>()));
      EXPECT_TRUE(std::isnan(y[1].item<float>()));
    }
  // No key takes part.
  y = attention_of(std::vector<float>(700, -kInfinity), std::vector<float>(700, 1));
  EXPECT_EQ(0, y[0].item<float>());
  EXPECT_EQ(-kInfinity, y[1].item<float>());
}

TEST_F(CudaAttentionSizes, KeysAreDividedOnlyIfBlocksAreFewAndKeysMany) {
  const auto launches = [](int64_t batches, int64_t heads, int64_t rows, int64_t keys,
                           const AttentionAttrs& attrs = {}) {
    const int64_t before = executor_launches();
    const NDArray k = zeros({batches, 1, keys, 1});
    const std::vector<NDArray> inputs{zeros({batches, heads, rows, 1}), k, k};
    (void)call(on_host(*find_operator("attention")), attrs, inputs);
    return executor_launches() - before;
  };
  EXPECT_EQ(2, launches(1, 1, 1, 512));
  EXPECT_EQ(1, launches(1, 1, 1, 511)) << "too few keys";
  if (kThreadSanitizer) return;
  EXPECT_EQ(2, launches(1, 1, 8, 512));
  EXPECT_EQ(1, launches(1, 1, 9, 512)) << "too many rows";
  EXPECT_EQ(2, launches(2, 64, 1, 512));
  EXPECT_EQ(1, launches(1, 129, 1, 512)) << "too many heads";
  EXPECT_EQ(1, launches(1, 1, 1, 1000, {.causal = true, .causal_offset = 100})) << "keys that take no part";
}

TEST_F(CudaAttentionSizes, PartsOfKeysCoverThemAll) {
  using cuda::attention_tiles::KeyParts, cuda::attention_tiles::parts_of_keys;
  for (const int64_t blocks : {1, 2, 3, 31, 32, 100, 127, 128, 129, 256, 5000})
    for (const int64_t keys : {0, 1, 511, 512, 513, 4000, 4096, 100'000, 5'000'000}) {
      const KeyParts parts = parts_of_keys(blocks, keys);
      ASSERT_GE(parts.count, 1);
      EXPECT_GE(parts.count * parts.keys, keys);
      if (parts.count == 1) continue;
      EXPECT_LT((parts.count - 1) * parts.keys, keys) << "the last part has a key";
      EXPECT_GE(parts.keys, 256);
      EXPECT_EQ(parts.keys % 64, 0) << "parts begin with a tile";
      EXPECT_LE(parts.count * blocks, 256);
    }
  EXPECT_EQ(8, parts_of_keys(32, 4096).count);
  EXPECT_EQ(256, parts_of_keys(1, 1 << 20).count);
}

TEST_F(CudaAttentionSizes, Masks) {
  if (kThreadSanitizer) GTEST_SKIP() << "too slow under ThreadSanitizer";
  for (const Shape& shape :
       {Shape{65, 130}, Shape{2, 1, 1, 130}, Shape{3, 65, 1}, Shape{2, 3, 65, 130}, Shape{1, 1}}) {
    for (const double dropout : {0., 0.3}) {
      Case c{.batches = 2, .heads = 3, .rows = 65, .keys = 130, .dropout = dropout};
      c.mask = some(shape);
      expect_attention(c);
      c.mask = Generator(13).normal(0, 1, shape);
      expect_attention(c);
      c.mask = where(some(shape), c.mask, full_like(c.mask, -kInfinity));
      c.attrs = {.causal = true, .causal_offset = 40};
      expect_attention(c);
    }
  }
}

TEST_F(CudaAttentionSizes, DropoutOfAllWeights) { expect_attention({.rows = 9, .keys = 65, .dropout = 1}); }

TEST_F(CudaAttentionSizes, Layouts) {
  const Case c{.batches = 2, .heads = 2, .groups = 2, .rows = 65, .keys = 66, .width = 8, .values = 12};
  // (batch, length, head, width), as a projection gives them; columns that are not neighbours; and rows that
  // begin where no vector does.
  const NDArray q = numbers({2, 65, 2, 8}), k = numbers({2, 66, 2, 8}), v = numbers({2, 66, 2, 12});
  expect_attention(c, q.swap_axes(1, 2), k.swap_axes(1, 2), v.swap_axes(1, 2));
  if (kThreadSanitizer) return;
  expect_attention(c, numbers({2, 2, 8, 65}).swap_axes(2, 3), numbers({2, 2, 8, 66}).swap_axes(2, 3),
                   numbers({2, 2, 12, 66}).swap_axes(2, 3));
  for (const int64_t more : {1, 4}) {
    const auto shifted = [more](const Shape& shape) {
      return numbers({shape[0], shape[1], shape[2], shape[3] + more}).slice(3, {1, shape[3] + 1});
    };
    expect_attention(c, shifted({2, 2, 65, 8}), shifted({2, 2, 66, 8}), shifted({2, 2, 66, 12}));
  }
  expect_attention(c, numbers({1, 2, 1, 8}).broadcast_to({2, 2, 65, 8}),
                   numbers({2, 1, 66, 8}).broadcast_to({2, 2, 66, 8}),
                   numbers({2, 2, 66, 1}).broadcast_to({2, 2, 66, 12}));
}

// The products of the CPU multiply infinite values by weights of 0, so it is no oracle here.
TEST_F(CudaAttentionSizes, WeightsOfZeroHideWhatIsNotFinite) {
  const NDArray q = numbers({1, 1, 65, 5}), k = numbers({1, 1, 130, 5}), v = numbers({1, 1, 130, 7});
  const NDArray shown = some({130}), column = shown.reshape({130, 1});
  for (const float bad : {kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    const NDArray bad_k = where(column, k, full_like(k, bad)), bad_v = where(column, v, full_like(v, bad));
    const std::vector<NDArray> y = results("attention", {q, k, v, shown});
    const std::vector<NDArray> bad_y = results("attention", {q, bad_k, bad_v, shown});
    for (size_t i = 0; i < 2; ++i) EXPECT_EQ(content_of(y[i]), content_of(bad_y[i]));
    if (kThreadSanitizer) return;
    const NDArray dy = numbers(y[0].shape()), delta = numbers(y[1].shape());
    const std::vector<NDArray> d = results("attention_backward", {dy, q, k, v, y[1], delta, shown});
    const std::vector<NDArray> bad_d =
        results("attention_backward", {dy, q, bad_k, bad_v, y[1], delta, shown});
    for (size_t i = 0; i < 3; ++i) EXPECT_EQ(content_of(d[i]), content_of(bad_d[i]));
  }
}

TEST_F(CudaAttentionSizes, AWeightThatBecomesZeroHidesWhatIsNotFinite) {
  // The key with the highest score is in a later tile than the infinite value, whose weight it makes 0.
  std::vector<float> scores(130, -300), values(130, 1);
  scores[100] = 300;
  values[3] = kInfinity;
  const NDArray k = array(scores).reshape({1, 1, 130, 1}), v = array(values).reshape({1, 1, 130, 1});
  const std::vector<NDArray> y = results("attention", {ones({1, 1, 2, 1}), k, v});
  EXPECT_EQ((std::vector<float>{1, 1}), y[0].to_vector<float>());
  EXPECT_EQ((std::vector<float>{300, 300}), y[1].to_vector<float>());
}

TEST_F(CudaAttentionSizes, NumbersThatAreNotFiniteReachTheirRowsOnly) {
  // Scores of infinity and NaN make NaN of a row, and of its sum.
  for (const float bad : {kInfinity, std::numeric_limits<float>::quiet_NaN()}) {
    std::vector<float> added(66 * 70, 0);
    added[5 * 70 + 66] = bad;
    const std::vector<NDArray> y =
        results("attention", {numbers({1, 1, 66, 4}), numbers({1, 1, 70, 4}), numbers({1, 1, 70, 2}),
                              array(added).reshape({66, 70})});
    const auto values = y[0].to_vector<float>(), sums = y[1].to_vector<float>();
    for (size_t row = 0; row < 66; ++row) {
      EXPECT_EQ(row == 5, std::isnan(sums[row])) << row;
      EXPECT_EQ(row == 5, std::isnan(values[2 * row])) << row;
      EXPECT_EQ(row == 5, std::isnan(values[2 * row + 1])) << row;
    }
  }
}

TEST_F(CudaAttentionSizes, NoElements) {
  expect_attention({.heads = 2, .groups = 2, .rows = 65, .keys = 130, .width = 0, .values = 5});
  if (kThreadSanitizer) return;
  expect_attention(
      {.rows = 65, .keys = 130, .width = 0, .values = 5, .mask = numbers({65, 130}), .dropout = 0.3});
  expect_attention({.rows = 65, .keys = 130, .width = 5, .values = 0});
  expect_attention({.rows = 65, .keys = 0, .width = 5, .values = 70});
  expect_attention({.rows = 0, .keys = 65, .width = 5, .values = 70});
  expect_attention({.batches = 0, .rows = 3, .keys = 5});
}

}  // namespace
}  // namespace mx::test
