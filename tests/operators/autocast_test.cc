// Autocast scopes: each operator converts its inputs by its rule, and nothing outside of the scope changes.
#include "operators/autocast.h"

#include <gtest/gtest.h>

#include <map>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "operators/autocast_rules.h"
#include "operators/families.h"
#include "operators/operators.h"
#include "tests/operators/registry_support.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using test::content_of;
using test::expect_error;

bool is_autocast_type(DType type) { return type == f32 || type == f16 || type == bf16; }

TEST(Autocast, EveryOperatorHasOneRule) {
  std::map<std::string, int> listed;
  for (const detail::AutocastRules& rules : detail::autocast_rules()) {
    std::istringstream names(rules.names);
    for (std::string name; names >> name;) ++listed[name];
  }
  for (const auto& [name, times] : listed) {
    EXPECT_NE(nullptr, find_operator(name)) << name;
    EXPECT_EQ(1, times) << name;
  }
  for (const auto& family : detail::operator_families())
    for (const Operator* op : family()) {
      EXPECT_TRUE(listed.contains(op->name()))
          << "operators/autocast_rules.cc has no rule for " << op->name();
      if (op->number_form != nullptr) {
        EXPECT_EQ(autocast_rule(*op), autocast_rule(*op->number_form)) << op->name();
        EXPECT_FALSE(listed.contains(op->number_form->name()) && op->number_form != op);
      }
    }
}

// The types of a call are those of the rule, for inputs of f32, f16, bf16 and of all three mixed: products
// give the lower type, delicate operators f32, and nothing computes what it would not compute by hand.
TEST(Autocast, CallsOfEveryOperatorFollowItsRule) {
  int calls = 0;
  test::for_each_sample([&](const Operator& op, const Sample& sample) {
    if (sample.inputs.empty() || !test::takes(op, bf16) || op.sized_by_values || op.updates != 0) return;
    for (const DType lower : {bf16, f16}) {
      std::vector<NDArray> mixed = sample.inputs, by_hand = sample.inputs;
      bool any_f32 = false, any = false;
      for (size_t i = 0; i < mixed.size(); ++i) {
        if (!is_autocast_type(mixed[i].dtype())) continue;
        if (i == 0 && op.random) return;
        mixed[i] = mixed[i].to(bf16).to(i == 0 ? bf16 : f32);
        any_f32 = any_f32 || i != 0;
        any = true;
      }
      const AutocastRule rule = autocast_rule(op);
      if (!any || rule == AutocastRule::keep) return;
      const DType type = rule == AutocastRule::lower               ? lower
                         : rule == AutocastRule::single || any_f32 ? f32
                                                                   : bf16;
      for (size_t i = 0; i < mixed.size(); ++i)
        by_hand[i] = is_autocast_type(mixed[i].dtype()) ? mixed[i].to(type) : mixed[i];
      const std::vector<test::Content> expected = test::outcome(op, sample.attrs, by_hand);
      const Autocast scope(lower);
      EXPECT_EQ(expected, test::outcome(op, sample.attrs, mixed));
      ++calls;
    }
  });
  EXPECT_GT(calls, 300);
}

TEST(Autocast, ProductsComputeInTheLowerTypeAndSumsInF32) {
  const NDArray a = arange(6).to(f32).reshape({2, 3}), b = arange(12).to(f32).reshape({3, 4});
  {
    const Autocast scope;
    EXPECT_EQ(bf16, autocast_dtype());
    const NDArray y = matmul(a, b);
    EXPECT_EQ(bf16, y.dtype());
    EXPECT_EQ(bf16, relu(y).dtype());
    EXPECT_EQ(f32, softmax(y).dtype());
    EXPECT_EQ(f32, (y + b[0]).dtype());
    EXPECT_EQ(bf16, (y + 1).dtype());
    EXPECT_EQ(f32, sum(y).dtype());
    EXPECT_EQ(f64, matmul(a.to(f64), b.to(f64)).dtype());
    EXPECT_EQ(f64, exp(a.to(f64)).dtype());
    EXPECT_EQ(i64, matmul(a.to(i64), b.to(i64)).dtype());
    EXPECT_EQ(f32, a.dtype());
    {
      const Autocast inner(f16);
      EXPECT_EQ(f16, matmul(a, b.to(bf16)).dtype());
      const Autocast pause(bf16, {.enabled = false});
      EXPECT_EQ(std::nullopt, autocast_dtype());
      EXPECT_EQ(f32, matmul(a, b).dtype());
    }
    EXPECT_EQ(bf16, matmul(a, b).dtype());
  }
  EXPECT_EQ(std::nullopt, autocast_dtype());
  EXPECT_EQ(f32, matmul(a, b).dtype());
}

// Neither type can be lowered without losing digits of the result.
TEST(Autocast, ProductsWithFactorsOfF64OrIntegersKeepTheirDigits) {
  const NDArray w = (arange(12).to(f32) * 0.1f + 1).reshape({3, 4}), n = array({{257, 1, 2}, {3, 4, 515}});
  const NDArray x = (arange(6).to(f64) * 0.3 + 0.7).reshape({2, 3});
  const std::vector<double> reals = matmul(x, w).to_vector<double>();
  const std::vector<double> integers = matmul(n, w).to(f64).to_vector<double>();
  const Autocast scope(bf16);
  EXPECT_EQ(reals, matmul(x, w).to_vector<double>());
  EXPECT_EQ(integers, matmul(n, w).to(f64).to_vector<double>());
}

// A sum of many elements stays exact where bf16 would stop counting at 256.
TEST(Autocast, KeepsTheAccuracyOfSums) {
  const NDArray y = ones({1000}, bf16);
  const Autocast scope(bf16);
  EXPECT_EQ(1000.f, sum(y).item<float>());
  EXPECT_GT(exp(full({1}, 80.f, f16)).item<float>(), 1e30f);
}

TEST(Autocast, ChangesInPlaceKeepTheirTypes) {
  NDArray a = ones({3}), b = full({3}, 0.001f);
  const NDArray f64s = full({3}, 2.0, f64);
  const Autocast scope(f16);
  a += b;
  EXPECT_EQ(1.001f, a[0].item<float>());
  a *= a;
  EXPECT_EQ(f32, a.dtype());
  NDArray out = empty({3});
  out.copy_from(a);
  EXPECT_EQ(content_of(a), content_of(out));
}

TEST(Autocast, BelongsToItsThreadAndEndsWithAnException) {
  const NDArray a = ones({2, 2});
  const Autocast scope;
  std::thread([&] {
    EXPECT_EQ(std::nullopt, autocast_dtype());
    EXPECT_EQ(f32, matmul(a, a).dtype());
    const Autocast other(f16);
    EXPECT_EQ(f16, matmul(a, a).dtype());
  }).join();
  EXPECT_EQ(bf16, autocast_dtype());
  expect_error<InvalidArgument>("[matmul]", [&] {
    const Autocast inner(f16);
    matmul(a, ones({3}));
  });
  EXPECT_EQ(bf16, autocast_dtype());
  EXPECT_EQ(bf16, matmul(a, a).dtype());
}

TEST(Autocast, RefusesOtherTypes) {
  for (const DType type : {f32, f64, i8})
    expect_error<InvalidArgument>("autocast_test.cc", [&] { Autocast scope(type); });
  EXPECT_EQ(std::nullopt, autocast_dtype());
}

}  // namespace
}  // namespace mx
