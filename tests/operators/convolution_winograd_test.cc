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
  p.c.winograd = UseWinograd::whenever_possible;
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

enum class Computed { results, weights };

double error_of(Computed computed, UseWinograd winograd) {
  ConvProblem p = normal_problem(winograd_sizes());
  const bool results = computed == Computed::results;
  ConvOperand& got = results ? p.out : p.weights;
  std::vector<double> want(got.bytes.size() / sizeof(float));
  p.each_product([&](int64_t in, int64_t w, int64_t out) {
    want[static_cast<size_t>(results ? out : w)] +=
        p.in.get(in) * (results ? p.weights.get(w) : p.out.get(out));
  });
  p.c.winograd = winograd;
  results ? p.correlate() : p.correlate_weights();
  return largest_error(want, got);
}

/// A small problem of random sizes and layouts.
ConvSizes random_sizes(std::mt19937_64& engine) {
  const auto between = [&](int64_t low, int64_t high) {
    return low + static_cast<int64_t>(engine() % static_cast<uint64_t>(high - low + 1));
  };
  ConvSizes s{
      .images = between(1, 3), .groups = between(1, 2), .channels = between(1, 20), .rows = between(1, 20)};
  s.bias = between(0, 1) == 1;
  s.taps = {between(1, 2), 3, 3};
  for (size_t a = 0; a < 3; ++a) {
    s.gap[a] = between(0, 1) == 1 ? 1 : -1;
    s.pad[a] = between(-1, 3);
    s.in[a] = between(1, a == 0 ? 2 : a == 1 ? 9 : 40);
    s.in[a] = std::max(s.in[a], s.gap[a] * (s.taps[a] - 1) + 1 - 2 * s.pad[a]);  // a result at least
  }
  return s;
}

// Whole numbers, so that all sums are exact. Operands end where their memory ends, for AddressSanitizer.
TEST(ConvolutionWinograd, RandomProblemsAgreeWithAPlainLoop) {
  std::mt19937_64 engine(1);
  for (int problem = 0; problem < 60; ++problem) {
    const ConvSizes sizes = random_sizes(engine);
    const DType dtype = problem % 4 == 0 ? DType::f16 : problem % 4 == 1 ? DType::bf16 : DType::f32;
    SCOPED_TRACE(text_of(sizes, dtype));
    ConvProblem p(sizes, dtype);
    p.c.winograd = UseWinograd::whenever_possible;
    ASSERT_TRUE(uses_winograd(p.c));
    std::vector<double> weights(p.weights.bytes.size() / size_of(dtype)),
        out(p.out.bytes.size() / size_of(dtype));
    for (size_t i = 0; i < out.size() && sizes.bias; ++i)
      out[i] = p.bias.get(static_cast<int64_t>(i) / ConvProblem::count(p.c.out.size) %
                          (sizes.groups * sizes.rows));
    p.each_product([&](int64_t in, int64_t w, int64_t to) {
      weights[static_cast<size_t>(w)] += p.in.get(in) * p.out.get(to);
      out[static_cast<size_t>(to)] += p.in.get(in) * p.weights.get(w);
    });
    ConvOperand rounded(dtype, 1, 1);
    const auto expect = [&](const std::vector<double>& want, const ConvOperand& got, const char* name) {
      for (size_t i = 0; i < want.size(); ++i) {
        rounded.set(0, want[i]);
        ASSERT_EQ(rounded.get(0), got.get(static_cast<int64_t>(i))) << name << ' ' << i;
      }
    };
    ConvProblem gradient = p;
    gradient.c.in.data = gradient.in.bytes.data(), gradient.c.out.data = gradient.out.bytes.data();
    gradient.c.weights.data = gradient.weights.bytes.data();
    gradient.correlate_weights();
    expect(weights, gradient.weights, "weight");
    p.correlate();
    expect(out, p.out, "result");
  }
}

TEST(ConvolutionWinograd, ErrorsAreAtMostThreeTimesThoseOfSumsOfProducts) {
  for (const Computed computed : {Computed::results, Computed::weights})
    EXPECT_LT(error_of(computed, UseWinograd::whenever_possible), 3 * error_of(computed, UseWinograd::never));
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

TEST(ConvolutionWinograd, IsPossibleForThreeByThreeAdjacentTapsOnly) {
  const auto possible = [](const ConvSizes& sizes, DType dtype = DType::f32) {
    ConvProblem p(sizes, dtype);
    p.c.winograd = UseWinograd::whenever_possible;
    EXPECT_EQ(uses_winograd(p.c), uses_winograd_for_weights(p.c));
    return uses_winograd(p.c);
  };
  EXPECT_TRUE(possible(winograd_sizes()));
  EXPECT_FALSE(possible(winograd_sizes(), DType::f64));
  EXPECT_TRUE(possible(winograd_sizes(), DType::bf16));
  ConvSizes changed = winograd_sizes();
  changed.channels_last = true;
  EXPECT_FALSE(possible(changed));
  changed = winograd_sizes(), changed.step = {1, 1, 2};
  EXPECT_FALSE(possible(changed));
  changed = winograd_sizes(), changed.gap = {1, 2, 1};
  EXPECT_FALSE(possible(changed));
  changed = winograd_sizes(), changed.taps = {1, 3, 5};
  EXPECT_FALSE(possible(changed));
  changed = winograd_sizes(), changed.in = {3, 9, 14}, changed.step = {2, 1, 1};
  EXPECT_TRUE(possible(changed));
}

TEST(ConvolutionWinograd, IsUsedIfItIsLikelyToBeFaster) {
  const auto used = [](ConvSizes sizes) {
    sizes.taps = {1, 3, 3}, sizes.pad = {0, 1, 1};
    const ConvProblem p(sizes, DType::f32);
    return uses_winograd(p.c);
  };
  EXPECT_TRUE(used({.images = 2, .channels = 64, .rows = 64, .in = {1, 32, 32}}));
  EXPECT_TRUE(used({.images = 32, .channels = 512, .rows = 512, .in = {1, 4, 4}}));
  // Few channels; few results; images of which most taps lie outside.
  EXPECT_FALSE(used({.images = 2, .channels = 8, .rows = 64, .in = {1, 32, 32}}));
  EXPECT_FALSE(used({.images = 1, .channels = 64, .rows = 64, .in = {1, 4, 4}}));
  EXPECT_FALSE(used({.images = 128, .channels = 64, .rows = 64, .in = {1, 2, 2}}));
  EXPECT_FALSE(used({.images = 64, .channels = 512, .rows = 512, .in = {1, 1, 1}}));
}

TEST(ConvolutionWinograd, WeightsBelowTheNormalNumbersAreExact) {
  for (const UseWinograd winograd : {UseWinograd::never, UseWinograd::whenever_possible}) {
    ConvProblem p(winograd_sizes(), DType::f32);
    const auto fill = [](ConvOperand& operand, double value) {
      for (size_t i = 0; i < operand.bytes.size() / sizeof(float); ++i)
        operand.set(static_cast<int64_t>(i), value);
    };
    fill(p.in, 0x1p120), fill(p.weights, 0);
    p.weights.set(0, 0x1p-149);
    p.c.winograd = winograd;
    p.correlate();
    // Row 0 of the weights has one tap, that of the upper left; its results at (1, 1) and further are not
    // padding.
    EXPECT_EQ(0x1p-29, p.out.get(p.c.out.space[1] + 1));
    EXPECT_EQ(0, p.out.get(0));
  }
}

/// Checks that a correlation has the bits of the sums of products if element `at` of the operand is `value`.
void expect_direct_bits(ConvOperand ConvProblem::*operand, double value) {
  std::vector<std::byte> results[2];
  for (const UseWinograd winograd : {UseWinograd::never, UseWinograd::whenever_possible}) {
    ConvProblem p = normal_problem(winograd_sizes());
    (p.*operand).set(1234, value);
    p.c.winograd = winograd;
    p.correlate();
    results[winograd == UseWinograd::never ? 0 : 1] = p.out.bytes;
  }
  EXPECT_EQ(results[0], results[1]) << value;
}

TEST(ConvolutionWinograd, NumbersThatAreNotFiniteStayWhereTheyBelong) {
  for (const double value : {std::numeric_limits<double>::infinity(), std::nan(""), 3e38}) {
    expect_direct_bits(&ConvProblem::in, value);
    expect_direct_bits(&ConvProblem::weights, value);
    std::vector<std::byte> results[2];
    for (const UseWinograd winograd : {UseWinograd::never, UseWinograd::whenever_possible}) {
      ConvProblem p = normal_problem(winograd_sizes());
      p.in.set(1234, value);
      p.c.winograd = winograd;
      p.correlate_weights();
      results[winograd == UseWinograd::never ? 0 : 1] = p.weights.bytes;
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
