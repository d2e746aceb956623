// Functions of one operand: accurate to a few units in the last place, with the same bits at every position
// of an element.
#include "operators/kernels/unary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <numbers>
#include <set>

#include "engine/base/error.h"
#include "operators/kernels/tables.h"
#include "tests/support/held_tensor.h"
#include "tests/support/instruction_sets.h"

namespace mx {
namespace {

using kernels::unary;
using kernels::UnaryOp;
using test::element_of;
using test::fill_values;
using test::first_difference;
using test::Held;
using test::make_tensor;
using test::ulps;
using test::value_at;

using Real = long double;

UnaryOp op_at(int i) { return static_cast<UnaryOp>(i); }

Real sigmoid(Real x) { return x < 0 ? std::exp(x) / (1 + std::exp(x)) : 1 / (1 + std::exp(-x)); }

// Returns x times a factor that vanishes at minus infinity faster than x grows.
Real fading(Real x, Real factor) { return factor == 0 ? -0.0L : x * factor; }

/// The distribution function of the normal distribution. The rounding error of the argument of erfc, which
/// the function amplifies far below 0, is corrected by the derivative.
Real normal_integral(Real x) {
  constexpr Real kRoot = std::numbers::sqrt2_v<Real>;
  constexpr Real kRootLow = std::numeric_limits<Real>::digits == 64 ? 3.79006511778651415931e-20L : 0;
  const Real z = -x / kRoot, error = -(std::fma(z, kRoot, x) + z * kRootLow) / kRoot;
  const Real slope = std::isinf(x) ? 0 : 2 * std::numbers::inv_sqrtpi_v<Real> * std::exp(-z * z) * error;
  return (std::erfc(z) - slope) / 2;
}

/// Returns the exact function in long double; signed zeros as in C.
Real exact(UnaryOp op, Real x) {
  switch (op) {
    case UnaryOp::copy:
      return x;
    case UnaryOp::neg:
      return -x;
    case UnaryOp::abs:
      return std::fabs(x);
    case UnaryOp::sign:
      return x > 0 ? 1 : x < 0 ? -1 : x;
    case UnaryOp::square:
      return x * x;
    case UnaryOp::relu:
      return x != x ? x : x > 0 ? x : 0;
    case UnaryOp::floor:
      return std::floor(x);
    case UnaryOp::ceil:
      return std::ceil(x);
    case UnaryOp::round:
      return std::nearbyint(x);
    case UnaryOp::trunc:
      return std::trunc(x);
    case UnaryOp::exp:
      return std::exp(x);
    case UnaryOp::exp2:
      return std::exp2(x);
    case UnaryOp::expm1:
      return std::expm1(x);
    case UnaryOp::log:
      return std::log(x);
    case UnaryOp::log2:
      return std::log2(x);
    case UnaryOp::log10:
      return std::log10(x);
    case UnaryOp::log1p:
      return std::log1p(x);
    case UnaryOp::sqrt:
      return std::sqrt(x);
    case UnaryOp::rsqrt:
      return 1 / std::sqrt(x);
    case UnaryOp::cbrt:
      return std::cbrt(x);
    case UnaryOp::reciprocal:
      return 1 / x;
    case UnaryOp::sin:
      return std::sin(x);
    case UnaryOp::cos:
      return std::cos(x);
    case UnaryOp::tan:
      return std::tan(x);
    case UnaryOp::asin:
      return std::asin(x);
    case UnaryOp::acos:
      return std::acos(x);
    case UnaryOp::atan:
      return std::atan(x);
    case UnaryOp::sinh:
      return std::sinh(x);
    case UnaryOp::cosh:
      return std::cosh(x);
    case UnaryOp::tanh:
      return std::tanh(x);
    case UnaryOp::asinh:
      return std::asinh(x);
    case UnaryOp::acosh:
      return std::acosh(x);
    case UnaryOp::atanh:
      return std::atanh(x);
    case UnaryOp::erf:
      return std::erf(x);
    case UnaryOp::erfc:
      return std::erfc(x);
    case UnaryOp::lgamma:
      return std::lgamma(x);
    case UnaryOp::sigmoid:
      return sigmoid(x);
    case UnaryOp::softplus:
      return x > 0 ? x + std::log1p(std::exp(-x)) : std::log1p(std::exp(x));
    case UnaryOp::silu:
      return fading(x, sigmoid(x));
    case UnaryOp::gelu:
      return fading(x, normal_integral(x));
    case UnaryOp::gelu_tanh:
      return fading(x, sigmoid(2 * std::sqrt(2 / std::numbers::pi_v<Real>) * (x + 0.044715L * x * x * x)));
    case UnaryOp::logical_not:
      return x == 0;
    case UnaryOp::isnan:
      return std::isnan(x);
    case UnaryOp::isinf:
      return std::isinf(x);
    case UnaryOp::isfinite:
      return std::isfinite(x);
    case UnaryOp::signbit:
      return std::signbit(x);
    default:
      return 0;
  }
}

// Returns bit patterns at a fixed distance, which cover all exponents; values of common magnitude; special
// values.
template <class T>
std::vector<T> samples() {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  std::vector<T> all;
  constexpr int kSamples = 60000;
  const Bits step = static_cast<Bits>(-1) / kSamples - 12;
  for (int i = 0; i < kSamples; ++i)
    all.push_back(std::bit_cast<T>(static_cast<Bits>(step * static_cast<Bits>(i))));
  for (int i = 0; i < kSamples; ++i) all.push_back(static_cast<T>((i - kSamples / 2) * 0.0033L));
  for (int i = 0; i < kSamples; ++i) all.push_back(static_cast<T>((i - kSamples / 2) * 0.00003337L));
  test::Values values(3);
  for (int i = 0; i < 5000; ++i) all.push_back(values.next<T>());
  return all;
}

/// Checks the results of a function whose values are not bool.
template <class T>
void check_results(UnaryOp op, const std::vector<T>& xs, const T* results, double limit) {
  double worst = 0;
  T worst_x = 0;
  for (size_t i = 0; i < xs.size(); ++i) {
    const double error = ulps(results[i], exact(op, xs[i]));
    if (error > worst) {
      worst = error;
      worst_x = xs[i];
    }
  }
  EXPECT_LE(worst, limit) << to_string(op) << " of " << dtype_of<T> << " " << worst_x << " expected "
                          << exact(op, worst_x);
  ::testing::Test::RecordProperty(to_string(op), std::to_string(worst));
}

template <class T>
void check_accuracy(UnaryOp op, double limit) {
  const std::vector<T> xs = samples<T>();
  const auto n = static_cast<int64_t>(xs.size());
  const DType dtype = dtype_of<T>;
  if (!kernels::unary_supports(op, dtype)) return;
  const DType result = kernels::unary_result(op, dtype);
  Held in = make_tensor(dtype, {n}), out = make_tensor(result, {n});
  std::memcpy(in.tensor.data, xs.data(), xs.size() * sizeof(T));
  unary(op, out.tensor, in.tensor);
  if (result != bool_) return check_results(op, xs, out.tensor.as<T>(), limit);
  for (size_t i = 0; i < xs.size(); ++i)
    ASSERT_EQ(exact(op, xs[i]) != 0, out.tensor.as<bool>()[i]) << to_string(op) << " of " << xs[i];
}

bool is_exact(UnaryOp op) {
  return op <= UnaryOp::trunc || op >= UnaryOp::bitwise_not || op == UnaryOp::sqrt;
}

/// Returns the instruction set that is used if a test does not choose one.
int64_t best_target() { return test::instruction_sets() & -test::instruction_sets(); }

/// Returns the error limit that the header promises, in units in the last place of float32.
double float32_limit(UnaryOp op, int64_t target = best_target()) {
  if (is_exact(op)) return 0.5001;
  const bool fused = target <= HWY_AVX2 || HWY_ARCH_ARM;  // fused multiply-add rounds once
  return (op == UnaryOp::silu ? 3 : op == UnaryOp::gelu ? 5 : 2) + (fused ? 0 : 0.25);
}

TEST(Unary, Float32IsWithinTwoUnitsInTheLastPlace) {
  for (int i = 0; i < kernels::kUnaryOps; ++i) {
    check_accuracy<float>(op_at(i), float32_limit(op_at(i)));
  }
}

/// Returns the error limit that the header promises, in units in the last place of float64. Without fused
/// multiply-add gelu is right only relative to its operand, as gelu_tanh always is: in the tail the rounding
/// of the exponent is amplified.
double float64_limit(UnaryOp op, int64_t target = best_target()) {
  if (is_exact(op)) return 0.5001;
  const bool fused = target <= HWY_AVX2 || HWY_ARCH_ARM;
  switch (op) {
    case UnaryOp::gelu_tanh:
      return 1e30;
    case UnaryOp::gelu:
      return fused ? 2 : 1e30;
    case UnaryOp::tan:
    case UnaryOp::erf:
    case UnaryOp::erfc:
    case UnaryOp::softplus:
      return 2;
    default:
      return 4;
  }
}

template <class T>
void check_row(UnaryOp op, kernels::Row row, double limit) {
  if (row == nullptr) return;
  const std::vector<T> xs = samples<T>();
  const void* const in = xs.data();
  std::vector<T> results(xs.size());
  row(results.data(), &in, static_cast<int64_t>(xs.size()));
  check_results(op, xs, results.data(), limit);
}

// unary() looks its functions up only once, so the test looks up those of each instruction set itself.
TEST(Unary, EveryInstructionSetIsAsAccurate) {
  std::set<kernels::Row> checked;
  test::with_every_instruction_set([&checked](int64_t target) {
    // An instruction set that is not compiled shares the baseline's functions, which have been checked.
    if (!checked.insert(kernels::unary_f32_row(UnaryOp::tanh)).second) return;
    for (int i = 0; i < kernels::kUnaryOps; ++i) {
      const UnaryOp op = op_at(i);
      check_row<float>(op, kernels::unary_f32_row(op), float32_limit(op, target));
      check_row<double>(op, kernels::unary_f64_row(op), float64_limit(op, target));
    }
  });
}

TEST(Unary, Float64IsWithinFourUnitsInTheLastPlace) {
  for (int i = 0; i < kernels::kUnaryOps; ++i) {
    check_accuracy<double>(op_at(i), float64_limit(op_at(i)));
  }
}

// There the remainder after subtracting a multiple of pi / 2 is small: it needs more digits than a double
// has.
TEST(Unary, TangentKeepsItsDigitsNearItsZerosAndPoles) {
  std::vector<double> xs;
  for (int64_t k = 1; k < (int64_t{1} << 29); k += 1 + k / 300) {
    const auto x = static_cast<double>(static_cast<Real>(k) * std::numbers::pi_v<Real> / 2);
    for (double near : {std::nextafter(x, 0), x, std::nextafter(x, 1e300)}) {
      xs.push_back(near);
      xs.push_back(-near);
    }
  }
  const auto n = static_cast<int64_t>(xs.size());
  Held in = make_tensor(f64, {n}), out = make_tensor(f64, {n});
  std::memcpy(in.tensor.data, xs.data(), xs.size() * sizeof(double));
  unary(UnaryOp::tan, out.tensor, in.tensor);
  check_results(UnaryOp::tan, xs, out.tensor.as<double>(), 2);
}

TEST(Unary, GeluOfFloat64IsRightRelativeToItsOperand) {
  for (const UnaryOp op : {UnaryOp::gelu, UnaryOp::gelu_tanh}) {
    for (double x = -60; x < 60; x += 0.0037) {
      double y = 0;
      Held in = make_tensor(f64, {}), out = make_tensor(f64, {});
      *in.tensor.as<double>() = x;
      unary(op, out.tensor, in.tensor);
      y = *out.tensor.as<double>();
      ASSERT_NEAR(y, static_cast<double>(exact(op, x)), 1e-15 * std::fabs(x)) << to_string(op) << " of " << x;
    }
  }
}

// All bit patterns. The functions are computed in float32 and rounded once, so the error is at most half a
// unit plus the error of float32.
TEST(Unary, HalvesAreRoundedOnce) {
  constexpr int64_t kAll = 65536;
  for (const DType dtype : {f16, bf16}) {
    Held in = make_tensor(dtype, {kAll}), wide = make_tensor(f32, {kAll}), result = make_tensor(f32, {kAll});
    for (int64_t i = 0; i < kAll; ++i) {
      in.tensor.as<uint16_t>()[i] = static_cast<uint16_t>(i);
      wide.tensor.as<float>()[i] = static_cast<float>(value_at(in.tensor, i));
    }
    for (int i = 0; i < kernels::kUnaryOps; ++i) {
      const UnaryOp op = op_at(i);
      if (!kernels::unary_supports(op, dtype) || kernels::unary_result(op, dtype) == bool_) continue;
      Held out = make_tensor(dtype, {kAll}), expected = make_tensor(dtype, {kAll});
      unary(op, out.tensor, in.tensor);
      unary(op, result.tensor, wide.tensor);
      for (int64_t k = 0; k < kAll; ++k) {
        const float value = result.tensor.as<float>()[k];
        expected.tensor.as<uint16_t>()[k] = dtype == f16 ? float16(value).bits : bfloat16(value).bits;
      }
      const int64_t at = first_difference(expected.tensor, out.tensor);
      ASSERT_EQ(-1, at) << to_string(op) << " of " << dtype << " " << value_at(in.tensor, at);
    }
  }
}

template <class T>
void check_integers() {
  const DType dtype = dtype_of<T>;
  for (int i = 0; i < kernels::kUnaryOps; ++i) {
    const UnaryOp op = op_at(i);
    if (!kernels::unary_supports(op, dtype)) continue;
    const DType result = kernels::unary_result(op, dtype);
    Held in = make_tensor(dtype, {3001}), out = make_tensor(result, {3001});
    fill_values(in.tensor);
    unary(op, out.tensor, in.tensor);
    for (int64_t k = 0; k < 3001; ++k) {
      const T x = in.tensor.as<T>()[k];
      if (result == f32) {
        // The exact value takes most of the time; every seventh element still stands in each lane of a
        // vector.
        if (k % 7 != 0 && k < 2980) continue;
        ASSERT_LE(ulps(out.tensor.as<float>()[k], exact(op, static_cast<float>(x))), float32_limit(op))
            << to_string(op) << +x;
      } else if (result == bool_) {
        ASSERT_EQ(exact(op, static_cast<Real>(x)) != 0, out.tensor.as<bool>()[k]) << to_string(op) << +x;
      } else {
        // In the unsigned type, because it wraps.
        const auto u = static_cast<uint64_t>(x);
        const T expected = op == UnaryOp::neg           ? static_cast<T>(0 - u)
                           : op == UnaryOp::abs         ? static_cast<T>(x < 0 ? 0 - u : u)
                           : op == UnaryOp::square      ? static_cast<T>(u * u)
                           : op == UnaryOp::bitwise_not ? static_cast<T>(~u)
                           : op == UnaryOp::sign        ? static_cast<T>((x > 0) - (x < 0))
                           : op == UnaryOp::relu        ? static_cast<T>(x > 0 ? x : 0)
                                                        : x;
        ASSERT_EQ(expected, out.tensor.as<T>()[k]) << to_string(op) << " " << +x;
      }
    }
  }
}

TEST(Unary, IntegersWrap) {
  check_integers<int8_t>();
  check_integers<uint8_t>();
  check_integers<int32_t>();
  check_integers<int64_t>();
}

TEST(Unary, BoolStaysZeroOrOne) {
  Held in = make_tensor(bool_, {100});
  fill_values(in.tensor);
  for (int i = 0; i < kernels::kUnaryOps; ++i) {
    const UnaryOp op = op_at(i);
    if (!kernels::unary_supports(op, bool_)) continue;
    const DType result = kernels::unary_result(op, bool_);
    Held out = make_tensor(result, {100});
    unary(op, out.tensor, in.tensor);
    for (int64_t k = 0; k < 100; ++k) {
      const bool x = in.tensor.as<bool>()[k];
      if (result == bool_) {
        const bool expected = op == UnaryOp::bitwise_not ? !x : exact(op, x) != 0;
        ASSERT_EQ(expected ? 1 : 0, out.tensor.as<uint8_t>()[k]) << to_string(op);
      } else {
        ASSERT_LE(ulps(out.tensor.as<float>()[k], exact(op, x)), float32_limit(op)) << to_string(op);
      }
    }
  }
}

TEST(Unary, BitsDependOnNeitherLayoutNorPlace) {
  for (int i = 0; i < kernels::kUnaryOps; ++i) {
    for (const DType dtype : kAllDTypes) {
      const UnaryOp op = op_at(i);
      if (!kernels::unary_supports(op, dtype)) continue;
      const DType result = kernels::unary_result(op, dtype);
      for (const Shape& shape : {Shape{}, Shape{0}, Shape{1}, Shape{37}, Shape{2, 0, 3}, Shape{5, 7, 19}}) {
        Held reference_in = make_tensor(dtype, shape), reference = make_tensor(result, shape);
        fill_values(reference_in.tensor);
        for (int64_t k = 0; k < shape.numel(); ++k)
          unary(op, element_of(reference.tensor, k), element_of(reference_in.tensor, k));
        for (const std::string& from : test::layouts()) {
          Held in = make_tensor(dtype, shape, from);
          fill_values(in.tensor);
          const std::string& to = test::layouts()[(from.size() + static_cast<size_t>(i)) % 6];
          for (const std::string& layout : {std::string("contiguous"), to}) {
            Held out = make_tensor(result, shape, layout);
            unary(op, out.tensor, in.tensor);
            ASSERT_EQ(-1, first_difference(reference.tensor, out.tensor))
                << to_string(op) << " of " << dtype << " " << shape << " " << from << " to " << layout;
            ASSERT_TRUE(untouched_between(out)) << to_string(op) << " " << layout;
          }
          if (result == dtype) {
            unary(op, in.tensor, in.tensor);
            ASSERT_EQ(-1, first_difference(reference.tensor, in.tensor))
                << to_string(op) << " in place " << from;
            ASSERT_TRUE(untouched_between(in));
          }
        }
      }
    }
  }
}

TEST(Unary, LargeArraysHaveTheBitsOfTheirElements) {
  constexpr int64_t kRows = 3, kColumns = 30011;
  for (const UnaryOp op : {UnaryOp::exp, UnaryOp::tanh, UnaryOp::log1p, UnaryOp::silu, UnaryOp::isnan}) {
    for (const DType dtype : {f32, f64, bf16}) {
      const DType result = kernels::unary_result(op, dtype);
      Held in = make_tensor(dtype, {kRows, kColumns}), out = make_tensor(result, {kRows, kColumns});
      Held alone = make_tensor(result, {kRows, kColumns});
      fill_values(in.tensor);
      unary(op, out.tensor, in.tensor);
      for (int64_t k = 0; k < kRows * kColumns; ++k)
        unary(op, element_of(alone.tensor, k), element_of(in.tensor, k));
      EXPECT_EQ(-1, first_difference(alone.tensor, out.tensor)) << to_string(op) << " of " << dtype;
      // One row, broadcast to all.
      Tensor repeated = in.tensor;
      repeated.strides[0] = 0;
      unary(op, out.tensor, repeated);
      for (int64_t k = 0; k < kRows * kColumns; ++k)
        unary(op, element_of(alone.tensor, k), element_of(repeated, k));
      EXPECT_EQ(-1, first_difference(alone.tensor, out.tensor)) << to_string(op) << " of " << dtype;
    }
  }
}

// Arrays beyond the size from which results bypass the caches, at every alignment to a cache line.
TEST(Unary, VeryLargeArraysHaveTheBitsOfSmallOnes) {
  constexpr int64_t n = (int64_t{5} << 19) + 13, kPeriod = 1000;
  const auto fill = [](Tensor& t) {
    for (int64_t i = 0; i < t.numel(); ++i) t.as<float>()[i] = static_cast<float>(i % kPeriod) * 0.01f - 2;
  };
  for (const std::string layout : {"contiguous", "unaligned"}) {
    for (const int64_t first : {0, 1, 13}) {
      Held in = make_tensor(f32, {n + first}, layout), out = make_tensor(f32, {n + first}, layout);
      for (Held* held : {&in, &out}) {
        held->tensor.data = held->tensor.as<float>() + first;
        held->tensor.shape = {n};
      }
      fill(in.tensor);
      for (const UnaryOp op : {UnaryOp::exp, UnaryOp::log, UnaryOp::tanh, UnaryOp::sigmoid, UnaryOp::silu,
                               UnaryOp::gelu, UnaryOp::sin, UnaryOp::relu}) {
        unary(op, out.tensor, in.tensor);
        Held few = make_tensor(f32, {kPeriod}), expected = make_tensor(f32, {kPeriod});
        fill(few.tensor);
        unary(op, expected.tensor, few.tensor);
        int64_t wrong = 0;
        for (int64_t i = 0; i < n; ++i)
          wrong += std::memcmp(expected.tensor.as<float>() + i % kPeriod, out.tensor.as<float>() + i, 4) != 0;
        EXPECT_EQ(0, wrong) << to_string(op) << ", " << layout << ", from " << first;
      }
    }
  }
}

TEST(Unary, MistakesAreNamed) {
  Held a = make_tensor(f32, {2}), b = make_tensor(f32, {3}), c = make_tensor(i32, {2});
  EXPECT_THROW(unary(UnaryOp::exp, b.tensor, a.tensor), InvalidArgument);
  EXPECT_THROW(unary(UnaryOp::exp, c.tensor, a.tensor), InvalidArgument);
  EXPECT_THROW(unary(UnaryOp::bitwise_not, a.tensor, a.tensor), InvalidArgument);
  EXPECT_FALSE(kernels::unary_supports(UnaryOp::neg, bool_));
  EXPECT_STREQ("copy", kernels::to_string(UnaryOp::copy));
  EXPECT_STREQ("tanh", kernels::to_string(UnaryOp::tanh));
  EXPECT_STREQ("gelu_tanh", kernels::to_string(UnaryOp::gelu_tanh));
  EXPECT_STREQ("signbit", kernels::to_string(UnaryOp::signbit));
}

}  // namespace
}  // namespace mx
