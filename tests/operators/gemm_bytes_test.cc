// Products of i8 and u8, whose kernel uses an instruction of its own: a plain loop, bit for bit.
#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "engine/base/error.h"
#include "operators/kernels/gemm.h"
#include "tests/support/instruction_sets.h"
#include "tests/support/thread_limit.h"

namespace mx {
namespace {

using kernels::gemm;
using kernels::GemmOptions;
using kernels::Matrix;

struct ByteCase {
  int64_t m, n, k;
  bool a_turned = false, b_turned = false, c_turned = false;
  int64_t gap = 0;  // unused elements after each row or column
};

template <class T>
std::vector<T> bytes_of(int64_t count, bool extremes, uint32_t seed) {
  std::minstd_rand random(seed);
  std::vector<T> result(static_cast<size_t>(count));
  for (T& x : result) {
    const auto value = static_cast<uint32_t>(random() >> 7);
    // The extremes would saturate sums of 16 bits.
    x = extremes ? static_cast<T>(value % 8 == 0 ? 0x7F : 0x80) : static_cast<T>(value);
    if (extremes && std::is_unsigned_v<T>) x = static_cast<T>(value % 8 == 0 ? 254 : 255);
  }
  return result;
}

template <class T, class R>
void check_bytes(const ByteCase& c, bool extremes, const GemmOptions& options) {
  const auto strides = [&](bool turned, int64_t rows, int64_t cols) {
    return turned ? std::pair<int64_t, int64_t>{1, rows + c.gap}
                  : std::pair<int64_t, int64_t>{cols + c.gap, 1};
  };
  const auto [a_rs, a_cs] = strides(c.a_turned, c.m, c.k);
  const auto [b_rs, b_cs] = strides(c.b_turned, c.k, c.n);
  const auto [c_rs, c_cs] = strides(c.c_turned, c.m, c.n);
  const auto a = bytes_of<T>((c.m + c.gap) * (c.k + c.gap), extremes, 5),
             b = bytes_of<T>((c.k + c.gap) * (c.n + c.gap), extremes, 6);
  std::vector<R> got(static_cast<size_t>((c.m + c.gap) * (c.n + c.gap)), R{7}), want = got;
  const auto alpha = static_cast<int64_t>(options.alpha), beta = static_cast<int64_t>(options.beta);
  for (int64_t i = 0; i < c.m; ++i)
    for (int64_t j = 0; j < c.n; ++j) {
      int64_t sum = 0;
      for (int64_t k = 0; k < c.k; ++k)
        sum += int64_t{a[static_cast<size_t>(i * a_rs + k * a_cs)]} *
               b[static_cast<size_t>(k * b_rs + j * b_cs)];
      R& to = want[static_cast<size_t>(i * c_rs + j * c_cs)];
      to = static_cast<R>(static_cast<uint64_t>(alpha * sum + beta * int64_t{to}));
    }
  gemm(dtype_of<T>, c.m, c.n, c.k, {a.data(), a_rs, a_cs}, {b.data(), b_rs, b_cs}, got.data(), c_rs, c_cs,
       options);
  ASSERT_EQ(want, got) << c.m << " x " << c.n << " x " << c.k << (std::is_signed_v<T> ? " i8" : " u8")
                       << (c.a_turned ? ", a turned" : "") << (c.b_turned ? ", b turned" : "")
                       << (c.c_turned ? ", c turned" : "");
}

void check_all_types(const ByteCase& c, bool extremes = false, double alpha = 1, double beta = 0) {
  const GemmOptions bytes{.alpha = alpha, .beta = beta},
      wide{.alpha = alpha, .beta = beta, .i32_result = true};
  check_bytes<int8_t, int8_t>(c, extremes, bytes);
  check_bytes<uint8_t, uint8_t>(c, extremes, bytes);
  check_bytes<int8_t, int32_t>(c, extremes, wide);
  check_bytes<uint8_t, int32_t>(c, extremes, wide);
}

TEST(GemmBytes, AgreeWithAPlainLoopForEveryInstructionSetAndSize) {
  test::with_every_instruction_set([](int64_t) {
    for (const int64_t m : {1, 2, 13, 14, 15, 33})
      for (const int64_t n : {1, 15, 16, 17, 31, 32, 33, 70})
        for (const int64_t k : {1, 2, 3, 4, 5, 7, 8, 63, 130}) check_all_types({m, n, k});
  });
}

TEST(GemmBytes, AgreeWithAPlainLoopForEveryLayout) {
  test::with_every_instruction_set([](int64_t) {
    for (int bits = 0; bits < 8; ++bits)
      for (const int64_t k : {6, 67})
        for (const int64_t gap : {0, 3})
          check_all_types({29, 37, k, (bits & 1) != 0, (bits & 2) != 0, (bits & 4) != 0, gap});
  });
}

// Beyond the depth of a block, in which sums go through memory.
TEST(GemmBytes, SumsOfExtremesAreExact) {
  test::with_every_instruction_set([](int64_t) {
    for (const int64_t k : {509, 512, 515, 1030, 3001}) {
      check_all_types({5, 40, k}, true);
      check_all_types({17, 3, k, true, true}, true);
    }
  });
}

TEST(GemmBytes, FactorsAndSumsWrap) {
  test::with_every_instruction_set([](int64_t) {
    check_all_types({18, 35, 70}, true, 3, 1);
    check_all_types({18, 35, 70}, false, -2, 5);
    check_all_types({18, 35, 600, true}, false, 1, 1);
    check_all_types({18, 35, 0}, false, 1, 2);
  });
}

TEST(GemmBytes, HaveTheSameBitsAtAnyNumberOfThreads) {
  constexpr int64_t kSize = 260;
  const auto a = bytes_of<int8_t>(kSize * kSize, false, 1), b = bytes_of<int8_t>(kSize * kSize, false, 2);
  const auto run = [&](int threads) {
    std::vector<int32_t> c(kSize * kSize);
    test::with_threads(threads, [&] {
      gemm(i8, kSize, kSize, kSize, {a.data(), kSize, 1}, {b.data(), kSize, 1}, c.data(), kSize, 1,
           {.i32_result = true});
    });
    return c;
  };
  EXPECT_EQ(run(1), run(4));
}

TEST(GemmBytes, OtherTypesHaveNoResultOfI32) {
  const float x[] = {1};
  float c[1];
  EXPECT_THROW(gemm(f32, 1, 1, 1, {x, 1, 1}, {x, 1, 1}, c, 1, 1, {.i32_result = true}), InvalidArgument);
}

}  // namespace
}  // namespace mx
