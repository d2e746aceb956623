// Attention over long sequences equals its naive form: the matrix of scores, softmax, a product.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "executor/autograd/autograd.h"
#include "operators/attention.h"
#include "operators/operators.h"
#include "tests/operators/values.h"

namespace mx {
namespace {

#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
// Longer sequences take the sanitizers minutes, and run no other code.
constexpr int64_t kLongest = 1024, kLongestOfGradients = 1024;
#else
constexpr int64_t kLongest = 4096, kLongestOfGradients = 2048;
#endif

/// Rows `first` to `last` of the result, with all their scores in memory.
NDArray naive_rows(const NDArray& q, const NDArray& k, const NDArray& v, int64_t first, int64_t last,
                   bool causal) {
  NDArray scores =
      matmul(q.slice(2, {first, last}), k.swap_axes(2, 3)) / std::sqrt(static_cast<double>(q.size(3)));
  if (causal) {
    const NDArray later = arange(k.size(2)).expand_dims(0) > arange(first, last).expand_dims(1);
    scores = where(later, -HUGE_VAL, scores);
  }
  return matmul(softmax(scores, -1), v);
}

std::vector<NDArray> operands(int64_t length, DType type) {
  return {test::numbers({1, 2, length, 16}, type, 1), test::numbers({1, 2, length, 16}, type, 2),
          test::numbers({1, 2, length, 8}, type, 3)};
}

TEST(AttentionLength, ValuesAreThoseOfTheNaiveForm) {
  for (const int64_t length : {1, 7, 128, 1000, 1024, 2048, 4096})
    for (const bool causal : {false, true}) {
      if (length > kLongest) continue;
      const std::vector<NDArray> x = operands(length, f32);
      const NDArray q = x[0].to(f64), k = x[1].to(f64), v = x[2].to(f64);
      const NDArray y = scaled_dot_product_attention(x[0], x[1], x[2], {}, {.causal = causal});
      const NDArray z = scaled_dot_product_attention(q, k, v, {}, {.causal = causal});
      for (int64_t first = 0; first < length; first += 512) {
        const int64_t last = std::min(first + 512, length);
        const test::Values want = test::values(naive_rows(q, k, v, first, last, causal));
        const std::string where = std::to_string(length) + (causal ? " causal, row " : ", row ");
        test::expect_values(want, z.slice(2, {first, last}), where + std::to_string(first), 100);
        test::expect_values(want, y.slice(2, {first, last}), where + std::to_string(first), 100);
      }
    }
}

TEST(AttentionLength, GradientsAreThoseOfTheNaiveForm) {
  for (const int64_t length : {1024, 2048})
    for (const bool causal : {false, true}) {
      if (length > kLongestOfGradients) continue;
      const std::vector<NDArray> x = operands(length, f64);
      const NDArray dy = test::numbers({1, 2, length, 8}, f64, 4);
      const auto gradients_of = [&](bool naive) {
        std::vector<NDArray> leaves;
        for (const NDArray& each : x) leaves.push_back(each.clone().requires_grad_());
        const NDArray y =
            naive ? naive_rows(leaves[0], leaves[1], leaves[2], 0, length, causal)
                  : scaled_dot_product_attention(leaves[0], leaves[1], leaves[2], {}, {.causal = causal});
        return gradients({y}, leaves, {.heads = {dy}});
      };
      const std::vector<NDArray> want = gradients_of(true), got = gradients_of(false);
      for (size_t i = 0; i < want.size(); ++i)
        test::expect_values(test::values(want[i]), got[i],
                            std::to_string(length) + ", gradient " + std::to_string(i), 1000);
    }
}

}  // namespace
}  // namespace mx
