// Running out of memory. Sizes that no memory can hold are refused at the call. A device that has no memory
// left fails only the operation that asked for it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "operators/operators.h"
#include "tests/support/engine_cases.h"
#include "tests/support/errors.h"
#include "tests/support/scaled_steps.h"
#include "tests/support/shortage.h"

namespace mx {
namespace {

using test::contains;
using test::error_of;
using test::Shortage;

constexpr int64_t kElements = 1 << 20;
constexpr size_t kBytes = 4 << 20;  // as f32

class OperatorMemory : public test::EngineTest {
 protected:
  EngineScope scope_{e_};
};
INSTANTIATE_TEST_SUITE_P(Modes, OperatorMemory, ::testing::ValuesIn(test::all_cases()), test::CaseName());

TEST_P(OperatorMemory, AnOperatorThatFindsNoneFailsAtTheWaitAndSaysWhatItWas) {
  const NDArray x = full({1024, 1024}, 2, f32, virt(0)), y = full({1024, 1}, 3, f32, virt(0));
  x.wait();
  y.wait();
  const Shortage shortage;
  const int line = __LINE__ + 1;
  const NDArray sum_of_both = x + y;
  const std::string text = error_of<OutOfMemory>([&] { sum_of_both.wait(); });
  EXPECT_TRUE(contains(text, "[add]")) << text;
  EXPECT_TRUE(contains(text, "f32 (1024, 1024)")) << text;
  EXPECT_TRUE(contains(text, "memory_test.cc:" + std::to_string(line))) << text;
  // Dependent operations have the same error and name it.
  const NDArray after = exp(sum_of_both);
  EXPECT_TRUE(contains(error_of<OutOfMemory>([&] { after.to_vector<float>(); }), "[add]"));
  EXPECT_THROW(e_.wait_all(), OutOfMemory);
}

TEST_P(OperatorMemory, EverythingElseGoesOnAndTheMemoryComesBack) {
  const NDArray x = full({kElements}, 2, f32, virt(0)), host = full({kElements}, 2);
  x.wait();
  host.wait();
  const size_t before = get_device(virt(0)).memory_stats().in_use_bytes;
  {
    // Room for two results, and for the numbers that x is multiplied by.
    const Shortage shortage(2 * kBytes + kBytes / 2);
    const NDArray first = x * 2, second = x * 3;
    first.wait();
    second.wait();
    {
      const NDArray third = x * 4;
      const NDArray beside = host * 4, other = full({kElements}, 1, f32, virt(1)) * 4;
      EXPECT_THROW(third.wait(), OutOfMemory);
      EXPECT_EQ(8, beside[0].item<float>());
      EXPECT_EQ(4, other[0].item<float>());
      EXPECT_THROW(e_.wait_all(), OutOfMemory);
    }
    NDArray in_place = x;
    in_place += 1;  // needs no memory
    EXPECT_EQ(3, sum(first.to(cpu())).item<float>() / (4 * kElements / 3.f));
  }
  e_.wait_all();
  EXPECT_EQ(before, get_device(virt(0)).memory_stats().in_use_bytes);
  const NDArray again = x * 2;
  EXPECT_EQ(6, again[7].item<float>());
}

TEST_P(OperatorMemory, WhatFailedForWantOfMemoryCanBeSetAnew) {
  NDArray x = full({kElements}, 2, f32, virt(0)), target = empty({kElements}, f32, virt(0));
  x.wait();
  {
    const Shortage shortage;
    target.copy_from(x);
    EXPECT_THROW(target.wait(), OutOfMemory);
    EXPECT_THROW(e_.wait_all(), OutOfMemory);
  }
  target.copy_from(x);
  EXPECT_EQ(2, target[3].item<float>());
  e_.wait_all();
}

// The caller is far ahead of the device. The operation that uses a temporary array still comes before those
// that make more.
TEST_P(OperatorMemory, TemporariesOfALoopDoNotPileUp) {
  if (e_.options().mode == EngineMode::fuzz) GTEST_SKIP() << "a random schedule may make them all first";
  constexpr int kRounds = test::scaled_steps(100);
  for (const Context where : {cpu(), virt(0)}) {
    const NDArray x = full({kElements}, 0.5, f32, where);
    NDArray total = zeros({}, f32, where);
    e_.wait_all();
    Device& device = get_device(where);
    device.reset_peak_memory();
    const size_t before = device.memory_stats().in_use_bytes;
    for (int i = 0; i < kRounds; ++i) {
      const NDArray y = tanh(x);
      total += y.sum();
    }
    e_.wait_all();
    EXPECT_LT(device.memory_stats().peak_in_use_bytes, before + kRounds / 2 * kBytes) << where;
  }
}

TEST(OperatorSizes, ThatOverflowAreRefusedAtTheCall) {
  constexpr int64_t kHuge = int64_t{1} << 62, kHalf = int64_t{1} << 32;
  const NDArray x = ones({4, 4}), row = ones({4});
  const NDArray wide = row.broadcast_to({int64_t{1} << 58, 4});
  const auto refused = [](const char* op, const auto& call) {
    const std::string text = error_of<InvalidArgument>(call);
    EXPECT_TRUE(contains(text, std::string("[") + op)) << text;
  };
  refused("pad", [&] { pad(x, {kHuge, kHuge, 0, 0}); });
  refused("pad", [&] { pad(x, {INT64_MAX, 1, 0, 0}); });
  refused("pad", [&] { pad(x, {kHalf, 0, kHalf, 0}); });
  refused("tile", [&] { tile(x, {kHuge, kHuge}); });
  refused("tile", [&] { tile(x, {INT64_MAX}); });
  refused("repeat", [&] { repeat(x, kHuge); });
  refused("repeat", [&] { repeat(x, INT64_MAX, 1); });
  refused("repeat", [&] { repeat(x, std::vector<int64_t>{kHuge, kHuge, kHuge, kHuge}); });
  refused("repeat", [&] { repeat(x, array<int64_t>({kHuge, kHuge, kHuge, kHuge})); });
  refused("concat", [&] { concat({wide, wide, wide, wide}); });
  refused("one_hot", [&] { one_hot(zeros({16}, i64), kHuge); });
  refused("one_hot", [&] { one_hot(zeros({2}, i64), INT64_MAX); });
  const NDArray long_row = ones({1}).broadcast_to({kHalf});
  refused("outer", [&] { outer(long_row, long_row); });
  for (const Shape& shape : {Shape{kHuge, 4}, Shape{kHalf, kHalf}, Shape{INT64_MAX}}) {
    refused("rand", [&] { rand(shape); });
    refused("randn", [&] { randn(shape); });
    refused("randint", [&] { randint(0, 2, shape); });
    refused("bernoulli", [&] { bernoulli(0.5, shape); });
    refused("exponential", [&] { exponential(1, shape); });
    refused("gamma", [&] { gamma(1, 1, shape); });
    refused("poisson", [&] { poisson(1, shape); });
  }
  refused("permutation", [&] { permutation(INT64_MAX); });
  refused("categorical", [&] { categorical(x, INT64_MAX); });
  EXPECT_EQ(1, x[0][0].item<float>());
}

}  // namespace
}  // namespace mx
