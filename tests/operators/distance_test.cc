// Euclidean distances compared with loops in long double, in every instruction set and layout.
#include "operators/kernels/distance.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "tests/support/instruction_sets.h"
#include "tests/support/tensors.h"
#include "tests/support/thread_limit.h"

namespace mx {
namespace {

using test::Array;

long double distance(const Array& a, int64_t i, const Array& b, int64_t j) {
  const int64_t k = a.t.shape[1];
  long double sum = 0;
  for (int64_t p = 0; p < k; ++p) {
    const long double difference = static_cast<long double>(a.get(i * k + p)) - b.get(j * k + p);
    sum += difference * difference;
  }
  return std::sqrt(sum);
}

void check(DType type, int64_t m, int64_t n, int64_t k, const std::string& layout) {
  Array a(type, {m, k}, layout), b(type, {n, k}, layout),
      d(type, {m, n}, layout == "broadcast" ? "padded" : layout);
  a.fill_random(1);
  b.fill_random(2);
  kernels::distances(d.t, a.t, b.t);
  // Sums of up to 128 squares, one after the other.
  const double tolerance = 40 * (type == f32 ? 0x1p-24 : 0x1p-53);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const auto want = static_cast<double>(distance(a, i, b, j));
      ASSERT_NEAR(want, d.get(i * n + j), tolerance * want)
          << type << ' ' << m << 'x' << n << 'x' << k << ' ' << layout;
    }
}

TEST(Distances, AgreeWithAPlainLoopInEveryInstructionSet) {
  test::with_every_instruction_set([](int64_t) {
    for (DType type : {f32, f64}) {
      for (const char* layout : test::kLayouts) check(type, 7, 19, 5, layout);
      for (int64_t m : {1, 3, 4, 63, 64, 65}) check(type, m, 33, 3, "contiguous");
      for (int64_t n : {1, 2, 31, 32, 33}) check(type, 5, n, 2, "contiguous");
      for (int64_t k : {1, 127, 128, 129, 700}) check(type, 6, 9, k, "contiguous");
    }
  });
}

// The squares are those of the differences: a formula with the squares of the rows would lose every digit
// here.
TEST(Distances, OfCloseRowsFarFromZeroAreExact) {
  test::with_every_instruction_set([](int64_t) {
    for (DType type : {f32, f64}) {
      const double step = type == f32 ? 0x1p-10 : 0x1p-40;
      Array a(type, {70, 3}), b(type, {70, 3}), d(type, {70, 70});
      a.fill([](int64_t i) { return 1000 + static_cast<double>(i / 3); });
      b.fill([&](int64_t i) {
        return 1000 + static_cast<double>(i / 3) + (i % 3 == 0 ? 3 * step : i % 3 == 1 ? -4 * step : 0);
      });
      kernels::distances(d.t, a.t, b.t);
      for (int64_t i = 0; i < 70; ++i) ASSERT_EQ(5 * step, d.get(i * 70 + i)) << type;
      kernels::distances(d.t, a.t, a.t);
      for (int64_t i = 0; i < 70; ++i) ASSERT_EQ(0, d.get(i * 70 + i)) << type;
    }
  });
}

TEST(Distances, NaNAndInfinityStayInTheirRows) {
  const double inf = std::numeric_limits<double>::infinity();
  for (DType type : {f32, f64}) {
    Array a(type, {3, 4}), b(type, {5, 4}), d(type, {3, 5});
    a.fill([&](int64_t i) { return i == 5 ? std::nan("") : i == 11 ? inf : 1.0; });
    b.fill([](int64_t) { return 2; });
    kernels::distances(d.t, a.t, b.t);
    for (int64_t j = 0; j < 5; ++j) {
      EXPECT_EQ(2, d.get(j));
      EXPECT_TRUE(std::isnan(d.get(5 + j)));
      EXPECT_EQ(inf, d.get(10 + j));
    }
  }
}

TEST(Distances, DoNotDependOnTheNumberOfThreads) {
  Array a(f32, {400, 30}), b(f32, {300, 30}), one(f32, {400, 300}), three(f32, {400, 300});
  a.fill_random(3);
  b.fill_random(4);
  test::with_threads(1, [&] { kernels::distances(one.t, a.t, b.t); });
  test::with_threads(3, [&] { kernels::distances(three.t, a.t, b.t); });
  EXPECT_TRUE(one.same_bits(three));
}

}  // namespace
}  // namespace mx
