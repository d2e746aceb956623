// Gradients of attention: masked rows, the fused kernel against operators, memory.
#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "engine/device/registry.h"
#include "engine/engine.h"
#include "executor/autograd/autograd.h"
#include "operators/attention.h"
#include "operators/operators.h"
#include "tests/operators/values.h"

namespace mx {
namespace {

TEST(AttentionGradient, ARowWithoutKeysGivesZerosAndHasNoGradient) {
  const NDArray q = test::numbers({1, 1, 3, 4}, f64, 1).requires_grad_(),
                k = test::numbers({1, 1, 5, 4}, f64, 2).requires_grad_(),
                v = test::numbers({1, 1, 5, 4}, f64, 3).requires_grad_();
  NDArray mask = full({3, 5}, true, bool_);
  mask[1].fill_(false);
  const NDArray y = scaled_dot_product_attention(q, k, v, mask);
  EXPECT_EQ(test::values(y.select(2, 1)), test::Values(4, 0.0));
  sum(y * y).backward();
  EXPECT_EQ(test::values(q.grad().select(2, 1)), test::Values(4, 0.0));
  for (const NDArray& x : {q, k, v})
    for (const double g : test::values(x.grad())) EXPECT_TRUE(std::isfinite(g));
  EXPECT_EQ(test::values(scaled_dot_product_attention(q, k.slice(2, {0, 0}), v.slice(2, {0, 0}))),
            test::Values(12, 0.0));
}

TEST(AttentionGradient, TheFusedGradientIsThatOfTheOperators) {
  for (const int64_t groups : {1, 2, 4})
    for (const bool causal : {false, true})
      for (const int64_t keys : {70, 1100}) {
        const NDArray q = test::numbers({1, 4, 90, 6}, f64, 1),
                      k = test::numbers({1, groups, keys, 6}, f64, 2),
                      v = test::numbers({1, groups, keys, 3}, f64, 3),
                      dy = test::numbers({1, 4, 90, 3}, f64, 4);
        const AttentionOptions options{.causal = causal, .causal_offset = keys - 90};
        const auto gradients_of = [&](bool create_graph) {
          std::vector<NDArray> leaves;
          for (const NDArray& x : {q, k, v}) leaves.push_back(x.clone().requires_grad_());
          const NDArray y = scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], {}, options);
          return gradients({y}, leaves, {.heads = {dy}, .create_graph = create_graph});
        };
        const std::vector<NDArray> fused = gradients_of(false), plain = gradients_of(true);
        for (size_t i = 0; i < 3; ++i) test::expect_values(test::values(plain[i]), fused[i], "gradient", 100);
      }
}

// Scores of this size have an error of several hundredths in 16 bits.
TEST(AttentionGradient, ShortTypesAreComputedInF32WithGradientsOfMasksToo) {
  for (const DType type : {f16, bf16}) {
    const NDArray q = (test::numbers({1, 1, 6, 8}, f32, 1) * 4).to(type),
                  k = (test::numbers({1, 1, 9, 8}, f32, 2) * 4).to(type),
                  v = test::numbers({1, 1, 9, 3}, f32, 3).to(type), mask = zeros({6, 9}, type);
    const auto gradients_of = [&](DType computed) {
      std::vector<NDArray> leaves;
      for (const NDArray& x : {q, k, v, mask}) leaves.push_back(x.to(computed).clone().requires_grad_());
      const NDArray y = scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], leaves[3]);
      return gradients({sum(y)}, leaves);
    };
    const std::vector<NDArray> got = gradients_of(type), want = gradients_of(f64);
    for (size_t i = 0; i < got.size(); ++i)
      test::expect_values(test::values(want[i]), got[i], "gradient " + std::to_string(i), 8);
  }
}

TEST(AttentionGradient, NoMatrixOfScoresIsStored) {
  constexpr int64_t kLength = 4096;
  const NDArray x = test::numbers({1, 1, kLength, 16}, f32), q = x.clone().requires_grad_();
  current_engine().wait_all();
  Device& device = get_device(cpu());
  device.reset_peak_memory();
  const size_t before = device.memory_stats().in_use_bytes;
  sum(scaled_dot_product_attention(q, x, x)).backward();
  q.grad().wait();
  EXPECT_LT(device.memory_stats().peak_in_use_bytes - before, size_t{kLength} * kLength * sizeof(float) / 8);
}

}  // namespace
}  // namespace mx
