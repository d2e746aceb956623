// Distances and their gradients compared with loops in long double, in every instruction set and layout.
#include "operators/kernels/distance.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "tests/support/instruction_sets.h"
#include "tests/support/tensors.h"
#include "tests/support/thread_limit.h"

namespace mx {
namespace {

using test::Array;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kOrders[] = {0, 0.5, 1, 1.7, 2, 3, kInf};

long double distance(const Array& a, int64_t i, const Array& b, int64_t j, double order) {
  const int64_t k = a.t.shape[1];
  long double sum = 0;
  for (int64_t p = 0; p < k; ++p) {
    const long double size = std::abs(static_cast<long double>(a.get(i * k + p)) - b.get(j * k + p));
    if (order == 0) {
      sum += size != 0;
    } else if (std::isinf(order)) {
      sum = std::max(sum, size);
    } else {
      sum += std::pow(size, static_cast<long double>(order));
    }
  }
  return order == 0 || std::isinf(order) ? sum : std::pow(sum, 1 / static_cast<long double>(order));
}

void check(DType type, int64_t m, int64_t n, int64_t k, const std::string& layout, double order) {
  Array a(type, {m, k}, layout), b(type, {n, k}, layout),
      d(type, {m, n}, layout == "broadcast" ? "padded" : layout);
  a.fill_random(1);
  b.fill_random(2);
  kernels::distances(d.t, a.t, b.t, order);
  // Sums of up to 128 terms, one after the other; a root of order 0.5 doubles the error.
  const double tolerance = 80 * (type == f32 ? 0x1p-24 : 0x1p-53);
  for (int64_t i = 0; i < m; ++i)
    for (int64_t j = 0; j < n; ++j) {
      const auto want = static_cast<double>(distance(a, i, b, j, order));
      ASSERT_NEAR(want, d.get(i * n + j), tolerance * want)
          << type << ' ' << m << 'x' << n << 'x' << k << ' ' << layout << " order " << order;
    }
}

/// Compares the gradient with a loop. Some rows of b are rows of a, so that distances are 0.
void check_gradient(DType type, int64_t m, int64_t n, int64_t k, const std::string& layout, double order) {
  const std::string writable = layout == "broadcast" ? "padded" : layout;
  Array a(type, {m, k}, layout), b(type, {n, k}, writable), head(type, {m, n}, layout);
  Array d(type, {m, n}, writable), got(type, {m, k}, writable);
  a.fill_random(1);
  b.fill_random(2);
  head.fill_random(3);
  for (int64_t j = 0; m > 0 && j < n; j += 3)
    for (int64_t p = 0; p < k; ++p) b.set(j * k + p, a.get(j % m * k + p));
  kernels::distances(d.t, a.t, b.t, order);
  kernels::distance_gradient(got.t, head.t, a.t, b.t, d.t, order);
  const double unit = type == f32 ? 0x1p-24 : 0x1p-53;
  for (int64_t i = 0; i < m; ++i)
    for (int64_t p = 0; p < k; ++p) {
      long double want = 0, sizes = 0;
      for (int64_t j = 0; j < n; ++j) {
        const long double y = d.get(i * n + j);
        // The difference as the type has it, which is compared with the largest one.
        const double exact = a.get(i * k + p) - b.get(j * k + p);
        const long double x = type == f32 ? static_cast<float>(exact) : exact;
        if (y == 0 || x == 0) continue;
        long double factor = x < 0 ? -1 : 1;
        if (order == kInf) {
          if (std::abs(x) != y) continue;
        } else {
          factor *= std::pow(std::abs(x) / y, static_cast<long double>(order - 1));
        }
        want += head.get(i * n + j) * factor;
        sizes += std::abs(head.get(i * n + j) * factor);
      }
      ASSERT_NEAR(static_cast<double>(want), got.get(i * k + p),
                  40 * unit * static_cast<double>(sizes) + unit * 1e-3)
          << type << ' ' << m << 'x' << n << 'x' << k << ' ' << layout << " order " << order;
    }
}

TEST(Distances, AgreeWithAPlainLoopInEveryInstructionSet) {
  test::with_every_instruction_set([](int64_t) {
    for (DType type : {f32, f64}) {
      for (double order : kOrders) {
        for (const char* layout : test::kLayouts) check(type, 7, 19, 5, layout, order);
        for (int64_t k : {1, 127, 128, 129, 700}) check(type, 6, 9, k, "contiguous", order);
      }
      for (int64_t m : {1, 3, 4, 63, 64, 65}) check(type, m, 33, 3, "contiguous", 2);
      for (int64_t n : {1, 2, 31, 32, 33}) check(type, 5, n, 2, "contiguous", 2);
    }
  });
}

TEST(DistanceGradients, AgreeWithAPlainLoopInEveryInstructionSet) {
  test::with_every_instruction_set([](int64_t) {
    for (DType type : {f32, f64}) {
      for (double order : kOrders) {
        if (order == 0) continue;
        for (const char* layout : test::kLayouts) check_gradient(type, 7, 19, 5, layout, order);
        for (int64_t k : {1, 15, 16, 17, 33, 300}) check_gradient(type, 6, 9, k, "contiguous", order);
      }
      for (int64_t m : {1, 3, 4, 31, 32, 33, 70}) check_gradient(type, m, 130, 3, "contiguous", 2);
      for (int64_t n : {1, 63, 64, 65, 4097}) check_gradient(type, 5, n, 2, "contiguous", 2);
    }
    check_gradient(f32, 3, 20'000, 4, "contiguous", 2);  // the rows of b are shared by several blocks
    check_gradient(f64, 0, 3, 4, "contiguous", 2);
  });
}

// A product of matrices would lose every digit of these directions.
TEST(DistanceGradients, OfCloseRowsFarFromZeroAreDirections) {
  test::with_every_instruction_set([](int64_t) {
    Array a(f32, {70, 3}), b(f32, {1, 3}), head(f32, {70, 1}), d(f32, {70, 1}), got(f32, {70, 3});
    a.fill([](int64_t i) { return 1000 + (i % 3 == 0 ? 3 : i % 3 == 1 ? -4 : 0) * 0x1p-10; });
    b.fill([](int64_t) { return 1000; });
    head.fill([](int64_t) { return 2; });
    kernels::distances(d.t, a.t, b.t);
    kernels::distance_gradient(got.t, head.t, a.t, b.t, d.t, 2);
    for (int64_t i = 0; i < 210; ++i)
      ASSERT_NEAR(i % 3 == 0 ? 1.2 : i % 3 == 1 ? -1.6 : 0, got.get(i), 1e-6) << i;
  });
}

TEST(DistanceGradients, NaNStaysInItsRow) {
  for (double order : {0.5, 1., 2., 3.}) {
    Array a(f32, {3, 4}), b(f32, {5, 4}), head(f32, {3, 5}), d(f32, {3, 5}), got(f32, {3, 4});
    a.fill([](int64_t i) { return i == 5 ? std::nan("") : 1.0; });
    b.fill([](int64_t) { return 2; });
    head.fill([](int64_t) { return 1; });
    kernels::distances(d.t, a.t, b.t, order);
    kernels::distance_gradient(got.t, head.t, a.t, b.t, d.t, order);
    for (int64_t p = 0; p < 4; ++p) {
      EXPECT_FALSE(std::isnan(got.get(p))) << order;
      EXPECT_FALSE(std::isnan(got.get(8 + p))) << order;
    }
    EXPECT_TRUE(std::isnan(got.get(5))) << order;
  }
}

TEST(DistanceGradients, DoNotDependOnTheNumberOfThreads) {
  for (const Shape& rows : {Shape{400, 300}, Shape{3, 50'000}}) {
    Array a(f32, {rows[0], 30}), b(f32, {rows[1], 30}), head(f32, rows), d(f32, rows);
    Array one(f32, a.t.shape), three(f32, a.t.shape);
    a.fill_random(3);
    b.fill_random(4);
    head.fill_random(5);
    kernels::distances(d.t, a.t, b.t);
    test::with_threads(1, [&] { kernels::distance_gradient(one.t, head.t, a.t, b.t, d.t, 2); });
    test::with_threads(3, [&] { kernels::distance_gradient(three.t, head.t, a.t, b.t, d.t, 2); });
    EXPECT_TRUE(one.same_bits(three));
  }
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
