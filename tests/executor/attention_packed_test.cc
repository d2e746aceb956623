// attention_packed against scaled_dot_product_attention() of the three parts: values, gradients, layouts,
// errors.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "executor/autograd/autograd.h"
#include "operators/attention.h"
#include "operators/operators.h"
#include "tests/operators/values.h"
#include "tests/support/errors.h"
#include "tests/support/numeric_gradient.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;

/// The same attention of three arrays, cut from the packed one and moved by operators.
NDArray cut_attention(const NDArray& packed, const AttentionPackedOptions& o, const NDArray& mask = {}) {
  const NDArray x = o.batch_first ? packed : packed.swap_axes(0, 1);
  const Shape& s = x.shape();
  const int64_t groups = o.key_heads(), width = s[2] / (o.heads + 2 * groups);
  const auto part = [&](int64_t first, int64_t heads) {
    return x.slice(2, {first * width, (first + heads) * width})
        .reshape({s[0], s[1], heads, width})
        .swap_axes(1, 2);
  };
  const NDArray y =
      scaled_dot_product_attention(part(0, o.heads), part(o.heads, groups), part(o.heads + groups, groups),
                                   mask, {.scale = o.scale, .causal = o.causal});
  const NDArray joined = y.swap_axes(1, 2).reshape({s[0], s[1], o.heads * width});
  return o.batch_first ? joined : joined.swap_axes(0, 1);
}

std::vector<AttentionPackedOptions> all_options() {
  std::vector<AttentionPackedOptions> list;
  for (const bool batch_first : {true, false})
    for (const bool causal : {false, true})
      for (const int64_t groups : {0, 1, 2})
        list.push_back({.heads = 4, .groups = groups, .batch_first = batch_first, .causal = causal});
  list.push_back({.heads = 1, .scale = 0.3});
  return list;
}

/// An array for these options; `length`: of the sequences.
NDArray packed_for(const AttentionPackedOptions& o, int64_t batch, int64_t length, int64_t width,
                   DType type = f64) {
  const int64_t all = (o.heads + 2 * o.key_heads()) * width;
  return test::numbers(o.batch_first ? Shape{batch, length, all} : Shape{length, batch, all}, type);
}

/// Masks that broadcast to (2, 4, length, length).
std::vector<NDArray> masks_for(const AttentionPackedOptions& o, int64_t length, DType type) {
  return {{},
          less(Generator(3).uniform(0, 1, {length, length}), 0.8),
          test::numbers({2, o.heads, 1, length}, type, 5)};
}

TEST(AttentionPacked, HasTheBitsOfTheThreePartsForAllTypesAndLayouts) {
  for (const DType type : {f32, f64, f16, bf16})
    for (const AttentionPackedOptions& o : all_options())
      for (const int64_t length : {1, 5, 64, 70, 130}) {
        if (length == 130 && type != f32) continue;
        const NDArray x = packed_for(o, 2, length, 6, type);
        for (const NDArray& mask : masks_for(o, length, type))
          EXPECT_EQ(test::values(cut_attention(x, o, mask)), test::values(attention_packed(x, o, mask)))
              << x.shape();
      }
}

TEST(AttentionPacked, HasTheGradientsOfTheThreeParts) {
  for (const DType type : {f64, f32, f16, bf16})
    for (const AttentionPackedOptions& o : all_options())
      for (const int64_t length : {1, 7, 66, 150}) {
        if (type != f64 && length != 66) continue;
        const NDArray x = packed_for(o, 2, length, 5, type);
        for (const NDArray& mask : masks_for(o, length, type)) {
          const auto gradient_of = [&](auto function) {
            const NDArray leaf = x.clone().requires_grad_();
            const NDArray y = function(leaf);
            return gradients({y}, {leaf}, {.heads = {test::numbers(y.shape(), type, 4)}})[0];
          };
          const NDArray want = gradient_of([&](const NDArray& a) { return cut_attention(a, o, mask); });
          const NDArray got = gradient_of([&](const NDArray& a) { return attention_packed(a, o, mask); });
          EXPECT_EQ(got.shape(), x.shape());
          test::expect_values(test::values(want), got, "length " + std::to_string(length), 100);
        }
      }
}

TEST(AttentionPacked, HasSecondDerivativesAndGradientsOfMasksAndSums) {
  for (const bool batch_first : {true, false}) {
    const AttentionPackedOptions o{.heads = 2, .groups = 1, .batch_first = batch_first, .causal = true};
    const NDArray x = packed_for(o, 2, 3, 2), mask = test::numbers({2, 1, 3, 3}, f64, 2);
    test::expect_gradients(
        [&](const std::vector<NDArray>& a) {
          const NDArray y = attention_packed(a[0], o, a[1]);
          return sum(y * y * y);
        },
        {x, mask});
    const auto penalty = [&](const NDArray& a) {
      const NDArray leaf = a.requires_grad() ? a : a.clone().requires_grad_();
      const NDArray y = attention_packed(leaf, o, mask);
      return sum(square(gradients({sum(y * y)}, {leaf}, {.create_graph = true})[0]));
    };
    test::expect_gradients([&](const std::vector<NDArray>& a) { return penalty(a[0]); }, {x});
    // The second output, the logarithms of the sums.
    test::expect_gradients(
        [&](const std::vector<NDArray>& a) {
          const std::vector<NDArray> r = call(*find_operator("attention_packed"), o, a);
          return sum(r[0] * r[0]) + sum(r[1] * r[1]);
        },
        {x});
  }
}

TEST(AttentionPacked, TakesViewsAndEmptyArrays) {
  const AttentionPackedOptions o{.heads = 2};
  const NDArray wide = test::numbers({2, 9, 40}, f32), view = wide[{colon, Slice{1, 8}, Slice{3, 39, 3}}];
  EXPECT_EQ(test::values(attention_packed(view.clone(), o)), test::values(attention_packed(view, o)));
  for (const Shape& shape : {Shape{0, 3, 12}, Shape{2, 0, 12}, Shape{2, 3, 0}}) {
    const NDArray x = zeros(shape, f64).requires_grad_();
    const NDArray y = attention_packed(x, o);
    EXPECT_EQ(y.shape(), (Shape{shape[0], shape[1], shape[2] / 3}));
    sum(y).backward();
    EXPECT_EQ(x.grad().shape(), shape);
  }
}

TEST(AttentionPacked, ARowWithoutKeysGivesZerosAndHasNoGradient) {
  NDArray mask = full({4, 4}, true, bool_);
  mask[1].fill_(false);
  const NDArray x = test::numbers({1, 4, 6}, f64).requires_grad_();
  const NDArray y = attention_packed(x, {}, mask);
  EXPECT_EQ(test::values(y.select(1, 1)), test::Values(2, 0.0));
  sum(y * y).backward();
  EXPECT_EQ(test::values(x.grad().select(1, 1).slice(1, {0, 2})), test::Values(2, 0.0));
  for (const double g : test::values(x.grad())) EXPECT_TRUE(std::isfinite(g));
}

TEST(AttentionPacked, WrongOperandsAreNamed) {
  const auto refused = [](const NDArray& x, const AttentionPackedOptions& o, const NDArray& mask = {}) {
    return error_of<InvalidArgument>([&] { attention_packed(x, o, mask); });
  };
  const NDArray x = ones({2, 3, 12});
  EXPECT_TRUE(contains(refused(x, {.heads = 3}),
                       "a multiple of heads + 2 * groups = 9 (heads = 3, groups = 3), got shape (2, 3, 12)"));
  EXPECT_TRUE(contains(refused(x[0], {}), "expected an array of rank 3"));
  EXPECT_TRUE(contains(refused(x.to(i32), {}), "floating-point type, got i32"));
  EXPECT_TRUE(contains(refused(x, {.heads = 0}), "1 to 2^31 - 1 heads"));
  EXPECT_TRUE(contains(refused(x, {.heads = 4, .groups = 3}), "a number of groups that divides them"));
  EXPECT_TRUE(contains(refused(x, {.heads = 4, .groups = -1}), "heads = 4 and groups = -1"));
  EXPECT_TRUE(contains(refused(x, {.scale = test::kNan}), "expected a finite scale"));
  EXPECT_TRUE(contains(refused(x, {.heads = 2}, ones({4, 4})), "(2, 2, 3, 3), got (4, 4)"));
  EXPECT_TRUE(contains(refused(x, {.heads = int64_t{1} << 62}), "expected 1 to 2^31 - 1 heads"));
}

}  // namespace
}  // namespace mx
