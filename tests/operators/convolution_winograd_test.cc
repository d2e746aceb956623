// Convolutions by Winograd's method: errors, numbers that are not finite, and bits. convolution_test.cc has
// the sizes.
#include "operators/kernels/convolution_winograd.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "tests/operators/convolution_problem.h"
#include "tests/support/thread_limit.h"

namespace mx::kernels {
namespace {

ConvSizes winograd_sizes() {
  return {.images = 2, .channels = 40, .rows = 35, .in = {1, 9, 14}, .taps = {1, 3, 3}, .pad = {0, 1, 1}};
}

void fill_normal(ConvOperand& operand, uint64_t seed) {
  std::mt19937_64 engine(seed);
  std::normal_distribution<double> normal;
  const size_t count = operand.bytes.size() / size_of(operand.dtype);
  for (size_t i = 0; i < count; ++i) operand.set(static_cast<int64_t>(i), normal(engine));
}

/// A problem with normally distributed operands.
ConvProblem normal_problem(const ConvSizes& sizes) {
  ConvProblem p(sizes, DType::f32);
  fill_normal(p.in, 5), fill_normal(p.weights, 6), fill_normal(p.out, 7);
  return p;
}

/// Returns the largest error of sums of products, in multiples of the root of the mean of their squares.
double largest_error(const std::vector<double>& want, const ConvOperand& got) {
  double error = 0, squares = 0;
  for (size_t i = 0; i < want.size(); ++i) {
    error = std::max(error, std::abs(want[i] - got.get(static_cast<int64_t>(i))));
    squares += want[i] * want[i];
  }
  return error / std::sqrt(squares / static_cast<double>(want.size()));
}

double error_of_correlation(bool winograd) {
  ConvProblem p = normal_problem(winograd_sizes());
  std::vector<double> want(p.out.bytes.size() / sizeof(float));
  p.each_product([&](int64_t in, int64_t w, int64_t out) {
    want[static_cast<size_t>(out)] += p.in.get(in) * p.weights.get(w);
  });
  p.c.winograd = winograd;
  p.correlate();
  return largest_error(want, p.out);
}

double error_of_weights(bool winograd) {
  ConvProblem p = normal_problem(winograd_sizes());
  std::vector<double> want(p.weights.bytes.size() / sizeof(float));
  p.each_product([&](int64_t in, int64_t w, int64_t out) {
    want[static_cast<size_t>(w)] += p.in.get(in) * p.out.get(out);
  });
  p.c.winograd = winograd;
  p.correlate_weights();
  return largest_error(want, p.weights);
}

TEST(ConvolutionWinograd, ErrorsAreAtMostThreeTimesThoseOfSumsOfProducts) {
  EXPECT_LT(error_of_correlation(true), 3 * error_of_correlation(false));
  EXPECT_LT(error_of_weights(true), 3 * error_of_weights(false));
}

TEST(ConvolutionWinograd, ResultsDependOnNoElementThatTheyDoNotRead) {
  ConvProblem small = normal_problem(winograd_sizes()), large = normal_problem(winograd_sizes());
  constexpr int64_t kRow = 4, kColumn = 7;
  large.in.set(kRow * large.c.in.space[1] + kColumn, 1e8);
  small.correlate(), large.correlate();
  int64_t read = 0;
  for (int64_t r = 0; r < small.c.rows; ++r)
    for (int64_t y = 0; y < small.c.out.size[1]; ++y)
      for (int64_t x = 0; x < small.c.out.size[2]; ++x) {
        const int64_t at = r * small.c.out.channel + y * small.c.out.space[1] + x;
        if (std::abs(y - kRow) <= 1 && std::abs(x - kColumn) <= 1) {
          ++read;
        } else {
          ASSERT_EQ(small.out.get(at), large.out.get(at)) << r << ' ' << y << ' ' << x;
        }
      }
  EXPECT_EQ(9 * small.c.rows, read);
}

TEST(ConvolutionWinograd, IsUsedForLargeConvolutionsOfThreeByThreeOnly) {
  const auto fits = [](const ConvSizes& sizes, DType dtype = DType::f32) {
    return winograd_fits(ConvProblem(sizes, dtype).c);
  };
  EXPECT_TRUE(fits(winograd_sizes()));
  EXPECT_FALSE(fits(winograd_sizes(), DType::f64));
  EXPECT_TRUE(fits(winograd_sizes(), DType::bf16));
  ConvSizes changed = winograd_sizes();
  changed.channels_last = true;
  EXPECT_FALSE(fits(changed));
  changed = winograd_sizes(), changed.step = {1, 1, 2};
  EXPECT_FALSE(fits(changed));
  changed = winograd_sizes(), changed.gap = {1, 2, 1};
  EXPECT_FALSE(fits(changed));
  changed = winograd_sizes(), changed.taps = {1, 3, 5};
  EXPECT_FALSE(fits(changed));
  changed = winograd_sizes(), changed.in = {3, 9, 14}, changed.step = {2, 1, 1};
  EXPECT_TRUE(fits(changed));
  changed = winograd_sizes(), changed.channels = 8;
  EXPECT_FALSE(fits(changed));
  ConvProblem p(winograd_sizes(), DType::f32);
  p.c.winograd = false;
  EXPECT_FALSE(winograd_fits(p.c));
}

/// Checks that a correlation has the bits of the sums of products if element `at` of the operand is `value`.
void expect_direct_bits(ConvOperand ConvProblem::*operand, double value) {
  std::vector<std::byte> results[2];
  for (const bool winograd : {false, true}) {
    ConvProblem p = normal_problem(winograd_sizes());
    (p.*operand).set(1234, value);
    p.c.winograd = winograd;
    p.correlate();
    results[winograd ? 1 : 0] = p.out.bytes;
  }
  EXPECT_EQ(results[0], results[1]) << value;
}

TEST(ConvolutionWinograd, NumbersThatAreNotFiniteStayWhereTheyBelong) {
  for (const double value : {std::numeric_limits<double>::infinity(), std::nan(""), 3e38}) {
    expect_direct_bits(&ConvProblem::in, value);
    expect_direct_bits(&ConvProblem::weights, value);
    std::vector<std::byte> results[2];
    for (const bool winograd : {false, true}) {
      ConvProblem p = normal_problem(winograd_sizes());
      p.in.set(1234, value);
      p.c.winograd = winograd;
      p.correlate_weights();
      results[winograd ? 1 : 0] = p.weights.bytes;
    }
    EXPECT_EQ(results[0], results[1]) << "weights, " << value;
  }
}

TEST(ConvolutionWinograd, HasTheSameBitsAtAnyNumberOfThreads) {
  ConvSizes many = winograd_sizes();
  many.images = 17;
  for (const ConvSizes& sizes : {winograd_sizes(), many}) {
    std::vector<std::byte> results, weights;
    for (const int threads : {1, 2, 3, 7}) {
      ConvProblem p = normal_problem(sizes);
      test::with_threads(threads, [&] {
        p.correlate_weights();
        p.correlate();
      });
      if (threads == 1) results = p.out.bytes, weights = p.weights.bytes;
      EXPECT_EQ(results, p.out.bytes) << threads;
      EXPECT_EQ(weights, p.weights.bytes) << threads;
    }
  }
}

}  // namespace
}  // namespace mx::kernels
