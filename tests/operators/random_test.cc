// Random numbers: known answers of the generator, the distributions, and that a number depends only on its
// position. Seeds are fixed, so a statistic that passes once always passes.
#include "operators/kernels/random.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>

#include "engine/base/error.h"
#include "operators/kernels/philox.h"
#include "operators/kernels/random_words.h"
#include "tests/operators/layout.h"
#include "tests/support/errors.h"

namespace mx {
namespace {

using namespace kernels;
using namespace testing;

using Values = std::vector<double>;

// From kat_vectors of Random123, philox4x32 with 10 rounds.
TEST(Philox, GivesTheKnownAnswers) {
  EXPECT_EQ((PhiloxWords{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}), philox({0, 0, 0, 0}, 0, 0));
  EXPECT_EQ((PhiloxWords{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}),
            philox({~0u, ~0u, ~0u, ~0u}, ~0u, ~0u));
  EXPECT_EQ((PhiloxWords{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}),
            philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, 0xa4093822, 0x299f31d0));
}

TEST(Philox, VectorsGiveTheWordsOfTheScalarFunction) {
  for (uint64_t first : {uint64_t{0}, uint64_t{0xfffffff9}, uint64_t{0x123456789a}, ~uint64_t{0} - 8})
    for (int64_t blocks : {1, 2, 17, 40}) {
      std::vector<uint32_t> words(static_cast<size_t>(4 * (blocks + kernels::detail::kVectorSlack)));
      kernels::detail::random_words(0x9876543210abcdef, first, 2, blocks, words.data());
      for (int64_t i = 0; i < blocks; ++i) {
        const PhiloxWords expected = philox_block(0x9876543210abcdef, first + static_cast<uint64_t>(i), 2);
        for (size_t k = 0; k < 4; ++k)
          ASSERT_EQ(expected[k], words[static_cast<size_t>(4 * i) + k]) << first << ' ' << i;
      }
    }
}

using Fill = std::function<void(const Tensor&, uint64_t seed, uint64_t offset)>;

std::vector<std::pair<std::string, Fill>> fills(DType dtype) {
  std::vector<std::pair<std::string, Fill>> result;
  const auto add = [&](const char* name, Fill fill) { result.emplace_back(name, std::move(fill)); };
  using T = const Tensor&;
  add("bernoulli", [](T t, uint64_t s, uint64_t o) { random_bernoulli(t, 0.3, s, o); });
  if (is_integral(dtype))
    add("integers", [](T t, uint64_t s, uint64_t o) { random_integers(t, 3, 100, s, o); });
  if (dtype != bool_) add("poisson", [](T t, uint64_t s, uint64_t o) { random_poisson(t, 12.5, s, o); });
  if (!is_floating(dtype)) return result;
  add("uniform", [](T t, uint64_t s, uint64_t o) { random_uniform(t, 0, 1, s, o); });
  add("wide uniform", [](T t, uint64_t s, uint64_t o) { random_uniform(t, -3, 5, s, o); });
  add("normal", [](T t, uint64_t s, uint64_t o) { random_normal(t, 1, 2, s, o); });
  add("exponential", [](T t, uint64_t s, uint64_t o) { random_exponential(t, 2, s, o); });
  add("gamma", [](T t, uint64_t s, uint64_t o) { random_gamma(t, 0.7, 2, s, o); });
  return result;
}

TEST(Random, AnElementDependsOnItsPositionAlone) {
  for (DType dtype : kAllDTypes)
    for (const auto& [name, fill] : fills(dtype)) {
      // Larger than several pieces of the parallel loop, and starting inside a block.
      const int64_t n = 20001;
      const Owned whole(dtype, {n});
      fill(*whole, 42, 1000003);
      const Values expected = read(*whole);
      // Generated in parts of every alignment, each continuing where the last one ended.
      Values parts;
      for (int64_t begin = 0, size = 1; begin < n; size = size * 2 + 1) {
        const int64_t count = std::min(size, n - begin);
        const Owned part(dtype, {count});
        fill(*part, 42, 1000003 + static_cast<uint64_t>(begin));
        const Values values = read(*part);
        parts.insert(parts.end(), values.begin(), values.end());
        begin += count;
      }
      EXPECT_EQ(expected, parts) << dtype << ' ' << name;
      for (Layout layout : kTargets) {
        const Owned strided(dtype, {59, 113, 3}, layout);
        fill(*strided, 42, 1000003);
        EXPECT_EQ(expected, read(*strided)) << dtype << ' ' << name;
      }
      const Owned one(dtype, {}), none(dtype, {0, 4}), other(dtype, {n});
      fill(*one, 42, 1000003 + 777);
      EXPECT_EQ(expected[777], read(*one)[0]) << dtype << ' ' << name;
      fill(*none, 1, 2);
      fill(*other, 43, 1000003);
      EXPECT_NE(expected, read(*other)) << dtype << ' ' << name;
    }
}

/// Returns the largest distance between the empirical and the given distribution function, times sqrt(n). It
/// exceeds 1.95 with a probability of 0.001 (Kolmogorov).
template <class Cdf>
double kolmogorov(Values values, const Cdf& cdf) {
  std::sort(values.begin(), values.end());
  const double n = static_cast<double>(values.size());
  double largest = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const double p = cdf(values[i]), k = static_cast<double>(i);
    largest = std::max({largest, p - k / n, (k + 1) / n - p});
  }
  return largest * std::sqrt(n);
}

double normal_cdf(double x) { return 0.5 * std::erfc(-x / std::sqrt(2.0)); }

TEST(Random, ContinuousDistributionsAreTheirOwn) {
  for (DType dtype : {f32, f64})
    for (uint64_t seed : {1, 2, 3}) {
      const Owned t(dtype, {100000});
      random_uniform(*t, 0, 1, seed, 0);
      EXPECT_LT(kolmogorov(read(*t), [](double x) { return x; }), 1.95) << dtype << seed;
      random_uniform(*t, -3, 5, seed, 17);
      EXPECT_LT(kolmogorov(read(*t), [](double x) { return (x + 3) / 8; }), 1.95) << dtype << seed;
      random_normal(*t, 1, 2, seed, 0);
      EXPECT_LT(kolmogorov(read(*t), [](double x) { return normal_cdf((x - 1) / 2); }), 1.95)
          << dtype << seed;
      random_exponential(*t, 2, seed, 0);
      EXPECT_LT(kolmogorov(read(*t), [](double x) { return -std::expm1(-2 * x); }), 1.95) << dtype << seed;
      // For whole shapes the gamma distribution has a closed form; for shape 1/2 it is half the square of a
      // normal number.
      random_gamma(*t, 2, 3, seed, 0);
      EXPECT_LT(kolmogorov(read(*t), [](double x) { return 1 - std::exp(-x / 3) * (1 + x / 3); }), 1.95)
          << seed;
      random_gamma(*t, 0.5, 1, seed, 0);
      EXPECT_LT(kolmogorov(read(*t), [](double x) { return std::erf(std::sqrt(x)); }), 1.95) << seed;
    }
}

TEST(Random, MomentsAndNeighboursOfNormalNumbersAreThose) {
  for (DType dtype : {f32, f64}) {
    const int64_t n = 1000000;
    const Owned t(dtype, {n});
    random_normal(*t, 0, 1, 7, 0);
    const Values x = read(*t);
    double sum = 0, squares = 0, cubes = 0, fourths = 0, products = 0, largest = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      sum += x[i];
      squares += x[i] * x[i];
      cubes += x[i] * x[i] * x[i];
      fourths += x[i] * x[i] * x[i] * x[i];
      products += x[i] * x[(i + 1) % x.size()];
      largest = std::max(largest, std::fabs(x[i]));
    }
    // Four standard deviations of each moment.
    EXPECT_NEAR(0, sum / n, 4e-3);
    EXPECT_NEAR(1, squares / n, 4e-3 * std::sqrt(2));
    EXPECT_NEAR(0, cubes / n, 4e-3 * std::sqrt(15));
    EXPECT_NEAR(3, fourths / n, 4e-3 * std::sqrt(96));
    EXPECT_NEAR(0, products / n, 4e-3);
    EXPECT_GT(largest, 4.4);
    EXPECT_LT(largest, 6.7);
  }
}

// The Box-Muller formula, written with the standard library's functions.
TEST(Random, NormalNumbersAreThoseOfTheFormula) {
  const Owned t(f64, {2000});
  random_normal(*t, 0, 1, 5, 0);
  const Values x = read(*t);
  for (uint64_t block = 0; block < 1000; ++block) {
    const PhiloxWords w = philox_block(5, block, 2);
    const uint64_t a = w[0] | uint64_t{w[1]} << 32, b = w[2] | uint64_t{w[3]} << 32;
    const double r = std::sqrt(-2 * std::log((static_cast<double>(a >> 11) + 0.5) * 0x1p-53));
    const double turn = static_cast<double>(static_cast<int64_t>(b) >> 11) * 0x1p-53 * 6.283185307179586;
    ASSERT_NEAR(r * std::cos(turn), x[2 * block], 1e-14);
    ASSERT_NEAR(r * std::sin(turn), x[2 * block + 1], 1e-14);
  }
}

TEST(Random, UniformStaysBelowItsUpperEnd) {
  const double limits[][2] = {{0, 1}, {0, 0.1}, {-1, 1}, {100, 100.5}, {-1e-4, 0}, {65000, 65504}};
  for (DType dtype : {f32, f64, f16, bf16})
    for (const auto& [low, high] : limits) {
      if (dtype == bf16 && low == 100) continue;  // tested below: bf16 has few numbers in between
      const Owned t(dtype, {100000});
      random_uniform(*t, low, high, 11, 3);
      for (double x : read(*t)) ASSERT_TRUE(low <= x && x < high) << dtype << ' ' << x;
    }
  const Owned narrow(f32, {1000});
  random_uniform(*narrow, 1, std::nextafter(1.f, 2.f), 1, 1);
  EXPECT_EQ(Values(1000, 1.0), read(*narrow));
  const Owned huge(f64, {1000});
  random_uniform(*huge, -1.7e308, 1.7e308, 1, 1);
  for (double x : read(*huge)) ASSERT_TRUE(std::isfinite(x));
  const Owned grid(f32, {100000});
  random_uniform(*grid, 0, 1, 5, 0);
  for (double x : read(*grid)) ASSERT_EQ(0, std::fmod(x * 0x1p24, 1));
}

/// Returns the chi-square statistic of counts, transformed to a normal number (Wilson and Hilferty).
double chi_square(const std::vector<int64_t>& counts, const Values& probabilities, double n) {
  double sum = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double expected = n * probabilities[i];
    sum +=
        (static_cast<double>(counts[i]) - expected) * (static_cast<double>(counts[i]) - expected) / expected;
  }
  const double freedom = static_cast<double>(counts.size()) - 1, part = 2 / (9 * freedom);
  return (std::cbrt(sum / freedom) - (1 - part)) / std::sqrt(part);
}

TEST(Random, IntegersAreUniform) {
  for (DType dtype : {i8, u8, i32, i64})
    for (auto [low, high] : {std::pair<int64_t, int64_t>{0, 7}, {3, 120}, {5, 6}}) {
      const Owned t(dtype, {100000});
      random_integers(*t, low, high, 3, 0);
      std::vector<int64_t> counts(static_cast<size_t>(high - low), 0);
      for (double x : read(*t)) {
        ASSERT_TRUE(x >= static_cast<double>(low) && x < static_cast<double>(high));
        ++counts[static_cast<size_t>(x) - static_cast<size_t>(low)];
      }
      if (high - low > 1) {
        EXPECT_LT(chi_square(counts, Values(counts.size(), 1.0 / static_cast<double>(counts.size())), 100000),
                  3.3);
      }
    }
}

TEST(Random, IntegersOfAnyRangeHaveNoBias) {
  // With a range of 3 * 2^62 numbers, a multiplication without rejection would yield every third number twice
  // as often.
  const Owned t(i64, {100000});
  const int64_t low = INT64_MIN, high = INT64_MIN / 2 + INT64_MAX / 2 + 1 + (int64_t{1} << 62);
  random_integers(*t, low, high, 9, 0);
  std::vector<int64_t> thirds(3, 0), remainders(3, 0);
  for (int64_t x : read<int64_t>(*t)) {
    ASSERT_LT(x, high);
    const uint64_t k = static_cast<uint64_t>(x) - static_cast<uint64_t>(low);
    ++thirds[k >> 62];
    ++remainders[k % 3];
  }
  EXPECT_LT(chi_square(thirds, Values(3, 1.0 / 3), 100000), 3.3);
  EXPECT_LT(chi_square(remainders, Values(3, 1.0 / 3), 100000), 3.3);
  random_integers(*t, INT64_MIN, INT64_MAX, 9, 0);
  const std::vector<int64_t> all = read<int64_t>(*t);
  EXPECT_LT(*std::min_element(all.begin(), all.end()), INT64_MIN / 10 * 9);
  EXPECT_GT(*std::max_element(all.begin(), all.end()), INT64_MAX / 10 * 9);
}

TEST(Random, BernoulliHasItsProbability) {
  for (DType dtype : kAllDTypes)
    for (double p : {0.0, 0.001, 0.5, 0.9, 1.0}) {
      const Owned t(dtype, {100000});
      random_bernoulli(*t, p, 21, 0);
      double ones = 0;
      for (double x : read(*t)) {
        ASSERT_TRUE(x == 0 || x == 1);
        ones += x;
      }
      EXPECT_NEAR(p, ones / 100000, 4 * std::sqrt(p * (1 - p) / 100000)) << dtype;
    }
}

TEST(Random, BernoulliTakesAProbabilityPerElement) {
  for (Layout layout : kLayouts) {
    const Owned t(f32, {300, 7}, Layout::gaps), p(f32, {300, 7}, layout), same(f32, {300, 7});
    Values probabilities;
    for (int i = 0; i < 2100; ++i)
      probabilities.push_back(i % 7 == 6 ? 1 : i % 7 < 2 ? 0 : (i % 7 - 1) * 0.25);
    write(*p, probabilities);
    random_bernoulli(*t, *p, 3, 9);
    const Values x = read(*t);
    for (size_t i = 0; i < x.size(); ++i) {
      if (i % 7 < 2) {
        ASSERT_EQ(0, x[i]);
      } else if (i % 7 >= 5) {
        ASSERT_EQ(1, x[i]);
      }
    }
    random_bernoulli(*same, 0.5, 3, 9);  // the same positions with one probability for all
    const Values y = read(*same);
    for (size_t i = 3; i < x.size(); i += 7) ASSERT_EQ(y[i], x[i]);
  }
}

TEST(Random, ProbabilitiesOutsideOf0To1AreRefused) {
  const Owned t(f32, {3}), p(f64, {3});
  for (const double wrong : {-0.25, 1.25, std::nan(""), 1.0 / 0.0}) {
    write(*p, Values{0.5, wrong, 0.5});
    const std::string text = test::error_of<InvalidArgument>([&] { random_bernoulli(*t, *p, 3, 9); });
    EXPECT_TRUE(test::contains(text, "probabilities from 0 to 1") && test::contains(text, "at element 1"))
        << text;
  }
}

TEST(Random, PermutationsHoldEveryNumberOnceAndAllAreAsLikely) {
  for (int64_t n : {0, 1, 2, 5000}) {
    const Owned t(n == 2 ? i32 : i64, {n}, Layout::flipped);
    random_permutation(*t, 5, 0);
    std::vector<int64_t> values = read<int64_t>(*t);
    std::sort(values.begin(), values.end());
    for (int64_t i = 0; i < n; ++i) ASSERT_EQ(i, values[static_cast<size_t>(i)]);
  }
  std::vector<int64_t> counts(256, 0);
  const Owned four(i64, {4});
  for (uint64_t k = 0; k < 24000; ++k) {
    random_permutation(*four, 8, 4 * k);
    const int64_t* p = four->as<int64_t>();
    ++counts[static_cast<size_t>(p[0] + 4 * p[1] + 16 * p[2] + 64 * p[3])];
  }
  std::vector<int64_t> seen;
  for (int64_t count : counts)
    if (count > 0) seen.push_back(count);
  ASSERT_EQ(24u, seen.size());
  EXPECT_LT(chi_square(seen, Values(24, 1.0 / 24), 24000), 3.3);
}

TEST(Random, CategoriesComeInProportion) {
  const Values weights{1, 0, 3, 0.5, 5.5};
  for (DType dtype : {f32, f64})
    for (bool logits : {false, true})
      for (Layout layout : kTargets) {
        const Owned w(dtype, {2, 5}, layout), t(i64, {2, 50000}, layout);
        Values given;
        for (int row = 0; row < 2; ++row)
          for (double weight : weights)
            given.push_back(logits ? std::log(weight) + 1000 * row : weight * (row + 1));
        write(*w, given);
        random_categorical(*t, *w, logits, 12, 5);
        const Values x = read(*t);
        for (size_t row = 0; row < 2; ++row) {
          std::vector<int64_t> counts(5, 0);
          for (size_t i = 0; i < 50000; ++i) ++counts[static_cast<size_t>(x[row * 50000 + i])];
          EXPECT_EQ(0, counts[1]);
          EXPECT_LT(chi_square({counts[0], counts[2], counts[3], counts[4]}, {0.1, 0.3, 0.05, 0.55}, 50000),
                    3.3);
        }
      }
}

TEST(Random, PoissonCountsComeInProportion) {
  for (double mean : {0.5, 4.0, 9.9, 10.0, 30.0, 200.0}) {
    const Owned t(i32, {100000});
    random_poisson(*t, mean, 4, 0);
    // Values with an expected count below 20 are combined at both ends.
    const int64_t low = std::max<int64_t>(0, static_cast<int64_t>(mean - 2.5 * std::sqrt(mean)));
    const int64_t high = static_cast<int64_t>(mean + 2.5 * std::sqrt(mean)) + 1;
    Values p(static_cast<size_t>(high - low + 1), 0.0);
    for (int64_t k = 0; k < high + 200; ++k) {
      const double x = static_cast<double>(k);
      p[static_cast<size_t>(std::clamp(k, low, high) - low)] +=
          std::exp(x * std::log(mean) - mean - std::lgamma(x + 1));
    }
    std::vector<int64_t> counts(p.size(), 0);
    for (int64_t k : read<int64_t>(*t)) ++counts[static_cast<size_t>(std::clamp(k, low, high) - low)];
    EXPECT_LT(chi_square(counts, p, 100000), 3.3) << mean;
  }
  const Owned zero(f32, {100}), small(i8, {100});
  random_poisson(*zero, 0, 1, 1);
  EXPECT_EQ(Values(100, 0.0), read(*zero));
  random_poisson(*small, 1e6, 1, 1);
  EXPECT_EQ(Values(100, 127.0), read(*small));
}

TEST(Random, RefusesWhatMakesNoSense) {
  const Owned f(f32, {4}), i(i32, {4}), b(bool_, {4}), w(f32, {2, 3}), t(i64, {2, 4}), h(f16, {4});
  const auto text = [](auto call) { return test::error_of<InvalidArgument>(call); };
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  EXPECT_EQ("[random_uniform] expected a floating-point target, got i32",
            text([&] { random_uniform(*i, 0, 1, 1, 1); }));
  EXPECT_EQ("[random_uniform] expected finite limits, low < high, got 1 and 1",
            text([&] { random_uniform(*f, 1, 1, 1, 1); }));
  EXPECT_EQ("[random_uniform] expected finite limits, low < high, got 0 and inf",
            text([&] { random_uniform(*f, 0, inf, 1, 1); }));
  EXPECT_EQ(
      "[random_uniform] expected limits between which there are numbers of type f16, got 1.0001 and 1.0002",
      text([&] { random_uniform(*h, 1.0001, 1.0002, 1, 1); }));
  EXPECT_EQ("[random_normal] expected a finite mean and a deviation of 0 or more, got 0 and -1",
            text([&] { random_normal(*f, 0, -1, 1, 1); }));
  EXPECT_NE("", text([&] { random_normal(*f, nan, 1, 1, 1); }));
  EXPECT_EQ("[random_normal] expected a floating-point target, got bool",
            text([&] { random_normal(*b, 0, 1, 1, 1); }));
  EXPECT_EQ("[random_exponential] expected a finite rate above 0, got 0",
            text([&] { random_exponential(*f, 0, 1, 1); }));
  EXPECT_EQ("[random_bernoulli] expected a probability from 0 to 1, got 1.5",
            text([&] { random_bernoulli(*f, 1.5, 1, 1); }));
  EXPECT_NE("", text([&] { random_bernoulli(*f, nan, 1, 1); }));
  EXPECT_EQ("[random_bernoulli] expected probabilities of shape (4,), got (2, 3)",
            text([&] { random_bernoulli(*f, *w, 1, 1); }));
  EXPECT_EQ("[random_integers] expected an integral target, got f32",
            text([&] { random_integers(*f, 0, 2, 1, 1); }));
  EXPECT_EQ("[random_integers] expected low < high, got 2 and 2",
            text([&] { random_integers(*i, 2, 2, 1, 1); }));
  EXPECT_EQ("[random_integers] expected limits that i32 can hold, got 0 and 4294967296",
            text([&] { random_integers(*i, 0, int64_t{1} << 32, 1, 1); }));
  EXPECT_EQ("[random_permutation] expected a target of rank 1, got shape (2, 4)",
            text([&] { random_permutation(*t, 1, 1); }));
  EXPECT_EQ("[random_permutation] expected a target of type i32 or i64, got f32",
            text([&] { random_permutation(*f, 1, 1); }));
  EXPECT_EQ("[random_gamma] expected a finite shape and scale above 0, got 0 and 1",
            text([&] { random_gamma(*f, 0, 1, 1, 1); }));
  EXPECT_EQ("[random_poisson] expected a finite mean of 0 or more, got -1",
            text([&] { random_poisson(*f, -1, 1, 1); }));
  EXPECT_EQ("[random_poisson] expected a target of a numeric type, got bool",
            text([&] { random_poisson(*b, 1, 1, 1); }));
  write(*t, Values(8, -7.0));
  write(*w, Values{1, 2, 3, 1, -1, 2});
  EXPECT_EQ("[categorical] expected finite weights of 0 or more, got -1 at index 1 of row 1",
            text([&] { random_categorical(*t, *w, false, 1, 1); }));
  write(*w, Values{1, 2, 3, 0, 0, 0});
  EXPECT_EQ("[categorical] expected weights with a finite sum above 0, got 0 in row 1",
            text([&] { random_categorical(*t, *w, false, 1, 1); }));
  write(*w, Values{1, 2, 3, -inf, -inf, -inf});
  EXPECT_EQ("[categorical] expected the largest logit of each row to be finite, got -inf in row 1",
            text([&] { random_categorical(*t, *w, true, 1, 1); }));
  EXPECT_EQ(Values(8, -7.0), read(*t));
  EXPECT_EQ("[categorical] expected weights (.., n) and a target (.., samples), got shapes (4,) and (2, 4)",
            text([&] { random_categorical(*t, *f, false, 1, 1); }));
}

}  // namespace
}  // namespace mx
