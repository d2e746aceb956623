// Errors in the values of arrays on a GPU: they belong to the operation that found them, as on the CPU.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "engine/device/registry.h"
#include "operators/operators.h"
#include "tests/cuda/bad_values.h"
#include "tests/cuda/operators/compare.h"
#include "tests/support/errors.h"

namespace mx::test {
namespace {

std::vector<NDArray> moved(const std::vector<NDArray>& arrays, Context context) {
  std::vector<NDArray> result;
  for (const NDArray& a : arrays) result.push_back(a.defined() ? a.to(context) : a);
  return result;
}

TEST(ErrorsOnGpu, ABadValueGivesTheMessageOfTheCpu) {
  const Context device = tested_device();
  if (device.is_cpu()) GTEST_SKIP() << "there is no GPU";
  std::map<std::string, int> refused;
  for_each_bad_value([&](const Operator& op, const Attrs& attrs, const std::vector<NDArray>& inputs) {
    const std::string expected = refusal_of(op, attrs, inputs);
    refused[op.name()] += expected.empty() ? 0 : 1;
    EXPECT_EQ(expected, refusal_of(op, attrs, moved(inputs, device)));
  });
  for (const char* name : kRefusingOperators) EXPECT_GT(refused[name], 0) << name;
  for_each_bad_matrix([&](const Operator& op, const Attrs& attrs, const std::vector<NDArray>& inputs) {
    EXPECT_EQ(refusal_of(op, attrs, inputs), refusal_of(op, attrs, moved(inputs, device)));
  });
  EXPECT_EQ(nullptr, get_device(device).lost());
}

// The operations before, behind and beside it have their values.
TEST(ErrorsOnGpu, OnlyWhatDependsOnTheOperationFails) {
  const Context device = tested_device();
  if (device.is_cpu()) GTEST_SKIP() << "there is no GPU";
  for (int round = 0; round < 20; ++round) {
    const NDArray x = arange(12, f32).reshape({4, 3}).to(device);
    const NDArray before = take(x, array({0, 3}).to(i64).to(device), 0);
    const NDArray bad = take(x, array({0, 4}).to(i64).to(device), 0);
    const NDArray after = take(x, array({3, 0}).to(i64).to(device), 0);
    const NDArray dependent = bad + after;
    const std::string message = error_of<InvalidArgument>([&] { bad.wait(); });
    EXPECT_TRUE(
        contains(message, "expected indices from -4 to 3 into axis 0 of size 4, got 4 at position (1,)"))
        << message;
    EXPECT_THROW(dependent.to(cpu()).wait(), InvalidArgument);
    EXPECT_EQ((std::vector<float>{0, 1, 2, 9, 10, 11}), before.to(cpu()).to_vector<float>());
    EXPECT_EQ((std::vector<float>{9, 10, 11, 0, 1, 2}), after.to(cpu()).to_vector<float>());
    EXPECT_THROW(wait_all(), InvalidArgument);
  }
}

}  // namespace
}  // namespace mx::test
