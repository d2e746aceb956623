// Softmax and related functions, compared with plain loops in float64.
#include "operators/kernels/softmax.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "engine/base/error.h"
#include "tests/support/errors.h"
#include "tests/support/tensors.h"
#include "tests/support/thread_limit.h"

namespace mx {
namespace {

using test::Array;

// Calls f with the row-major indices of the elements of each row.
void each_row(const Shape& shape, int axis, const std::function<void(const std::vector<int64_t>&)>& f) {
  if (shape.rank() == 0) return f({0});
  const int64_t step = contiguous_strides(shape)[axis], n = shape[axis];
  for (int64_t i = 0; i < shape.numel(); ++i) {
    if (i / step % n != 0) continue;
    std::vector<int64_t> row;
    for (int64_t k = 0; k < n; ++k) row.push_back(i + k * step);
    f(row);
  }
}

double log_of_sum(const Array& x, const std::vector<int64_t>& row) {
  double top = -std::numeric_limits<double>::infinity(), sum = 0;
  for (int64_t i : row) top = std::max(top, x.get(i));
  for (int64_t i : row) sum += std::exp(x.get(i) - top);
  return top + std::log(sum);
}

void check_all(DType type, const Shape& shape, int64_t axis, const std::string& layout, double scale) {
  const std::string what =
      std::string(to_string(type)) + " " + to_string(shape) + " " + layout + " axis " + std::to_string(axis);
  const std::string result_layout = layout == "broadcast" ? "padded" : layout;
  Array x(type, shape, layout), y(type, shape, result_layout), log(type, shape, result_layout),
      dy(type, shape), dx(type, shape, result_layout), dlog(type, shape, result_layout);
  x.fill_random(1, scale);
  dy.fill_random(2);
  kernels::softmax(y.t, x.t, axis);
  kernels::log_softmax(log.t, x.t, axis);
  kernels::softmax_backward(dx.t, dy.t, y.t, axis);
  kernels::log_softmax_backward(dlog.t, dy.t, log.t, axis);
  const double tolerance = 2 * test::tolerance(type);
  each_row(
      shape, static_cast<int>(axis < 0 ? axis + shape.rank() : axis), [&](const std::vector<int64_t>& row) {
        const double total = log_of_sum(x, row);
        double dot = 0, sum = 0, sizes = 0;
        for (int64_t i : row) dot += dy.get(i) * y.get(i), sum += dy.get(i), sizes += std::abs(dy.get(i));
        for (int64_t i : row) {
          const double p = std::exp(x.get(i) - total);
          ASSERT_NEAR(p, y.get(i), tolerance * p + (type == f16 ? 1e-7 : 1e-37)) << what;
          ASSERT_NEAR(x.get(i) - total, log.get(i), tolerance * std::max(1.0, std::abs(x.get(i) - total)))
              << what;
          ASSERT_NEAR(y.get(i) * (dy.get(i) - dot), dx.get(i), tolerance * 4) << what;
          ASSERT_NEAR(dy.get(i) - std::exp(log.get(i)) * sum, dlog.get(i),
                      tolerance * (2 + sizes * std::exp(log.get(i))))
              << what;
        }
      });
}

TEST(Softmax, AgreesWithAPlainLoopForAllTypesLayoutsAndAxes) {
  for (DType type : {f32, f64, f16, bf16})
    for (const char* layout : test::kLayouts)
      for (int64_t axis : {0, 1, -1}) check_all(type, {3, 21, 37}, axis, layout, 3);
}

TEST(Softmax, RowsOfEverySizeAreWhole) {
  for (int64_t n : {1, 2, 7, 8, 15, 16, 17, 31, 32, 33, 48, 64, 80, 96, 112, 127, 128, 129, 1000, 5000})
    for (DType type : {f32, f64, f16}) check_all(type, {3, n}, -1, "contiguous", type == f16 ? 2 : 20);
  check_all(f32, {}, 0, "contiguous", 1);
  check_all(f32, {5}, 0, "negative", 1);
  check_all(f32, {4, 1}, 1, "contiguous", 1);
  check_all(f32, {0, 4}, 1, "contiguous", 1);
  check_all(f32, {4, 0}, 1, "contiguous", 1);
}

TEST(Softmax, LargeResultsThatBypassTheCachesAreTheSame) {
  const int64_t rows = 20'000, n = 128;
  Array x(f32, {rows, n}), y(f32, {rows, n}), small(f32, {rows / 10, n});
  x.fill_random(3);
  kernels::softmax(y.t, x.t, 1);
  Tensor part = x.t;
  part.shape[0] = rows / 10;
  kernels::softmax(small.t, part, 1);
  for (int64_t i = 0; i < rows / 10 * n; ++i) ASSERT_EQ(small.get(i), y.get(i));
  for (int64_t r = 0; r < rows; r += 999) {
    double sum = 0;
    for (int64_t c = 0; c < n; ++c) sum += y.get(r * n + c);
    EXPECT_NEAR(1, sum, 1e-5);
  }
}

TEST(Softmax, HugeValuesDoNotOverflowAndTinyOnesBecomeZero) {
  for (DType type : {f32, f64}) {
    Array x(type, {2, 40}), y(type, {2, 40});
    x.fill([](int64_t i) { return i % 40 == 3 ? 1e30 : i % 40 == 4 ? -1e30 : static_cast<double>(i % 40); });
    kernels::softmax(y.t, x.t, 1);
    for (int64_t i = 0; i < 80; ++i) EXPECT_EQ(i % 40 == 3 ? 1.0 : 0.0, y.get(i));
    // Only the differences matter, even far from 0.
    x.fill([](int64_t i) { return 8192 + static_cast<double>(i % 2); });
    kernels::log_softmax(y.t, x.t, 1);
    EXPECT_NEAR(-std::log(20 + 20 * std::exp(1.0)), y.get(0), 1e-6);
  }
}

TEST(Softmax, RowsWithoutAFiniteMaximumGiveNaN) {
  const double inf = std::numeric_limits<double>::infinity();
  const auto check = [inf](DType type, int64_t n) {
    for (double bad : {-inf, inf, std::nan("")}) {
      Array x(type, {3, n}), y(type, {3, n}), sums(type, {3});
      // Only the middle row: entirely -inf, or one bad element.
      x.fill([&](int64_t i) { return i / n == 1 && (bad == -inf || i % n == 33) ? bad : 1; });
      for (bool log : {false, true}) {
        (log ? kernels::log_softmax : kernels::softmax)(y.t, x.t, 1);
        for (int64_t i = 0; i < 3 * n; ++i) {
          if (i / n == 1) {
            EXPECT_TRUE(std::isnan(y.get(i))) << to_string(type) << bad << i;
          } else {
            EXPECT_NEAR(log ? -std::log(static_cast<double>(n)) : 1.0 / static_cast<double>(n), y.get(i),
                        0.02);
          }
        }
      }
      kernels::logsumexp(sums.t, x.t, 1);
      if (std::isnan(bad)) {
        EXPECT_TRUE(std::isnan(sums.get(1)));
      } else {
        EXPECT_EQ(bad, sums.get(1));
      }
    }
    Array x(type, {1, n}), y(type, {1, n});
    x.fill([&](int64_t i) { return i == 0 ? 0.0 : -inf; });
    kernels::softmax(y.t, x.t, 1);
    for (int64_t i = 0; i < n; ++i) EXPECT_EQ(i == 0 ? 1.0 : 0.0, y.get(i));
  };
  for (DType type : {f32, f64, f16, bf16})
    for (int64_t n : {50, 64, 128, 144}) check(type, n);
}

TEST(Softmax, MayOverwriteItsInput) {
  for (const char* layout : {"contiguous", "transposed"}) {
    for (auto [type, n] : {std::pair<DType, int64_t>{f32, 33}, {f32, 64}, {f16, 33}}) {
      Array x(type, {50, n}, layout), y(type, {50, n}, layout);
      x.fill_random(9);
      kernels::softmax(y.t, x.t, 1);
      kernels::softmax(x.t, x.t, 1);
      EXPECT_TRUE(y.same_bits(x));
    }
  }
}

TEST(Softmax, ResultsDoNotDependOnTheNumberOfThreads) {
  for (int64_t axis : {0, 1}) {
    Array x(f32, {700, 301}), one(f32, {700, 301}), two(f32, {700, 301});
    x.fill_random(4);
    test::with_threads(1, [&] { kernels::softmax(one.t, x.t, axis); });
    test::with_threads(2, [&] { kernels::softmax(two.t, x.t, axis); });
    EXPECT_TRUE(one.same_bits(two));
  }
}

TEST(Softmax, WrongOperandsAreRefused) {
  Array x(f32, {2, 3}), y(f32, {3, 2}), i(i32, {2, 3});
  const std::string message = test::error_of<InvalidArgument>([&] { kernels::softmax(y.t, x.t, 0); });
  EXPECT_TRUE(test::contains(message, "(2, 3)") && test::contains(message, "(3, 2)")) << message;
  test::error_of<InvalidArgument>([&] { kernels::softmax(x.t, i.t, 0); });
  test::error_of<InvalidArgument>([&] { kernels::log_softmax(x.t, x.t, 2); });
}

}  // namespace
}  // namespace mx
