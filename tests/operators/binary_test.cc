// Functions of two operands, where and clamp: the rules of IEEE 754 and Python, integers that never trap, and
// the same bits at every position of an element.
#include "operators/kernels/binary.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "engine/base/error.h"
#include "tests/support/held_tensor.h"
#include "tests/support/numbers.h"

namespace mx {
namespace {

using kernels::binary;
using kernels::BinaryOp;
using test::element_of;
using test::fill_values;
using test::first_difference;
using test::Held;
using test::make_tensor;
using test::ulps;
using test::value_at;

using Real = long double;
using Wide = __int128;

using test::kInf;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

BinaryOp op_at(int i) { return static_cast<BinaryOp>(i); }
bool compares(BinaryOp op) { return kernels::binary_result(op, i32) == bool_; }

template <class T>
bool compare(BinaryOp op, T a, T b) {
  switch (op) {
    case BinaryOp::equal:
      return a == b;
    case BinaryOp::not_equal:
      return a != b;
    case BinaryOp::less:
      return a < b;
    case BinaryOp::less_equal:
      return a <= b;
    case BinaryOp::greater:
      return a > b;
    case BinaryOp::greater_equal:
      return a >= b;
    case BinaryOp::logical_and:
      return a != 0 && b != 0;
    case BinaryOp::logical_or:
      return a != 0 || b != 0;
    default:
      return (a != 0) != (b != 0);
  }
}

Real exact(BinaryOp op, Real a, Real b) {
  const bool nan = std::isnan(a) || std::isnan(b);
  switch (op) {
    case BinaryOp::add:
      return a + b;
    case BinaryOp::sub:
      return a - b;
    case BinaryOp::mul:
      return a * b;
    case BinaryOp::div:
      return a / b;
    case BinaryOp::fmod:
      return std::fmod(a, b);
    case BinaryOp::pow:
      return std::pow(a, b);
    case BinaryOp::maximum:
      return nan ? static_cast<Real>(kNan) : std::max(a, b);
    case BinaryOp::minimum:
      return nan ? static_cast<Real>(kNan) : std::min(a, b);
    case BinaryOp::fmax:
      return std::fmax(a, b);
    case BinaryOp::fmin:
      return std::fmin(a, b);
    case BinaryOp::atan2:
      return std::atan2(a, b);
    case BinaryOp::hypot:
      return std::hypot(a, b);
    case BinaryOp::copysign:
      return std::copysign(a, b);
    default:  // logaddexp
      if (nan || std::isinf(a) || std::isinf(b)) return nan ? static_cast<Real>(kNan) : std::max(a, b);
      return std::max(a, b) + std::log1p(std::exp(std::min(a, b) - std::max(a, b)));
  }
}

template <class T>
void check_floating(double limit) {
  constexpr int64_t n = 20011;
  const DType dtype = dtype_of<T>;
  Held a = make_tensor(dtype, {n}), b = make_tensor(dtype, {n});
  fill_values(a.tensor, 1);
  fill_values(b.tensor, 2);
  for (int i = 0; i < kernels::kBinaryOps; ++i) {
    const BinaryOp op = op_at(i);
    // Tested below.
    if (op == BinaryOp::floor_div || op == BinaryOp::mod || op == BinaryOp::nextafter) continue;
    if (op >= BinaryOp::relu_backward && op <= BinaryOp::binary_cross_entropy)
      continue;  // tested in gradient_rows_test.cc
    if (!kernels::binary_supports(op, dtype)) continue;
    Held out = make_tensor(kernels::binary_result(op, dtype), {n});
    binary(op, out.tensor, a.tensor, b.tensor);
    for (int64_t k = 0; k < n; ++k) {
      const T x = a.tensor.as<T>()[k], y = b.tensor.as<T>()[k];
      if (compares(op)) {
        ASSERT_EQ(compare<T>(op, x, y) ? 1 : 0, out.tensor.as<uint8_t>()[k])
            << to_string(op) << " " << x << " " << y;
        continue;
      }
      const T z = out.tensor.as<T>()[k];
      if (op == BinaryOp::logaddexp && std::isfinite(x) && std::isfinite(y)) {
        // A result near 0 is the difference of two larger numbers, so the error is relative to those.
        const Real size =
            std::max(std::fabs(exact(op, x, y)), Real{1}) + std::max(std::fabs(x), std::fabs(y));
        ASSERT_NEAR(static_cast<double>(z), static_cast<double>(exact(op, x, y)),
                    static_cast<double>(size) * std::numeric_limits<T>::epsilon());
        continue;
      }
      if (op == BinaryOp::logaddexp && z == std::max(x, y)) continue;  // a zero of either sign
      if (op >= BinaryOp::maximum && op <= BinaryOp::fmin && x == y && z == x)
        continue;  // a zero of either sign
      const bool rounded_once =
          op != BinaryOp::pow && op != BinaryOp::atan2 && op != BinaryOp::hypot && op != BinaryOp::logaddexp;
      // x86's long double rounds the sum of two doubles twice; the tolerance covers that.
      ASSERT_LE(ulps(z, exact(op, x, y)), rounded_once ? 0.51 : limit)
          << to_string(op) << " " << x << " " << y << " gave " << z;
    }
  }
}

TEST(Binary, Float32IsRight) { check_floating<float>(2); }
TEST(Binary, Float64IsRight) { check_floating<double>(4); }

TEST(Binary, NanGoesThroughMaximumAndNotThroughFmax) {
  const auto of = [](BinaryOp op, double x, double y) {
    Held a = make_tensor(f64, {}), b = make_tensor(f64, {}), out = make_tensor(f64, {});
    *a.tensor.as<double>() = x;
    *b.tensor.as<double>() = y;
    binary(op, out.tensor, a.tensor, b.tensor);
    return *out.tensor.as<double>();
  };
  EXPECT_TRUE(std::isnan(of(BinaryOp::maximum, kNan, 1)));
  EXPECT_TRUE(std::isnan(of(BinaryOp::minimum, 1, kNan)));
  EXPECT_EQ(1, of(BinaryOp::fmax, kNan, 1));
  EXPECT_EQ(1, of(BinaryOp::fmin, 1, kNan));
  // Python's rules, which NumPy follows.
  EXPECT_EQ(-4, of(BinaryOp::floor_div, -7, 2));
  EXPECT_EQ(1, of(BinaryOp::mod, -7, 2));
  EXPECT_EQ(-1, of(BinaryOp::mod, 7, -2));
  EXPECT_EQ(-1, of(BinaryOp::fmod, -7, 2));
  EXPECT_EQ(kInf, of(BinaryOp::floor_div, 1, 0));
  EXPECT_TRUE(std::isnan(of(BinaryOp::mod, 1, 0)));
  EXPECT_EQ(kInf, of(BinaryOp::mod, -1, kInf));
  EXPECT_EQ(-1, of(BinaryOp::floor_div, -1, kInf));
  EXPECT_TRUE(std::signbit(of(BinaryOp::mod, 4, -2)));
  EXPECT_EQ(9, of(BinaryOp::floor_div, 1, 0.1));  // 0.1 is a little more than a tenth
  EXPECT_EQ(std::nextafter(1.0, 2.0), of(BinaryOp::nextafter, 1, 2));
  EXPECT_EQ(kInf, of(BinaryOp::logaddexp, kInf, kInf));
  EXPECT_EQ(-kInf, of(BinaryOp::logaddexp, -kInf, -kInf));
  EXPECT_NEAR(1000 + std::log(2.0), of(BinaryOp::logaddexp, 1000, 1000), 1e-12);
}

// The floored quotient and the remainder together give the dividend.
TEST(Binary, FloatingQuotientAndRestBelongTogether) {
  test::Values values(5);
  for (int i = 0; i < 5000; ++i) {
    Held a = make_tensor(f64, {}), b = make_tensor(f64, {}), q = make_tensor(f64, {}),
         r = make_tensor(f64, {});
    const double x = *a.tensor.as<double>() =
        static_cast<double>(static_cast<int64_t>(values.bits()) % 100000) / 64;
    const double y = *b.tensor.as<double>() =
        static_cast<double>(static_cast<int64_t>(values.bits()) % 1000) / 64;
    if (y == 0) continue;
    binary(BinaryOp::floor_div, q.tensor, a.tensor, b.tensor);
    binary(BinaryOp::mod, r.tensor, a.tensor, b.tensor);
    ASSERT_EQ(std::floor(x / y), *q.tensor.as<double>()) << x << " " << y;  // these numbers divide exactly
    ASSERT_EQ(x, *q.tensor.as<double>() * y + *r.tensor.as<double>()) << x << " " << y;
  }
}

Wide floor_of(Wide a, Wide b) { return a / b - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0); }

/// Computes in integers so wide that nothing overflows, then wraps.
template <class T>
T integer(BinaryOp op, T x, T y) {
  const Wide a = x, b = y;
  constexpr int kWidth = 8 * sizeof(T);
  const auto wrapped = [](Wide value) { return static_cast<T>(static_cast<uint64_t>(value)); };
  switch (op) {
    case BinaryOp::add:
      return wrapped(a + b);
    case BinaryOp::sub:
      return wrapped(a - b);
    case BinaryOp::mul:
      return wrapped(a * b);
    case BinaryOp::floor_div:
      return b == 0 ? T{0} : wrapped(floor_of(a, b));
    case BinaryOp::mod:
      return b == 0 ? T{0} : wrapped(a - floor_of(a, b) * b);
    case BinaryOp::fmod:
      return b == 0 ? T{0} : wrapped(a % b);
    case BinaryOp::pow: {
      if (b < 0) return a == 1 ? T{1} : a == -1 ? wrapped(b % 2 == 0 ? 1 : -1) : T{0};
      // Periodic in the exponent beyond the width for even bases (0), for odd ones by the group's order.
      uint64_t result = 1, base = static_cast<uint64_t>(x);
      for (uint64_t left = static_cast<uint64_t>(y); left > 0; left /= 2) {
        if (left % 2 == 1) result *= base;
        base *= base;
      }
      return static_cast<T>(result);
    }
    case BinaryOp::maximum:
    case BinaryOp::fmax:
      return std::max(x, y);
    case BinaryOp::minimum:
    case BinaryOp::fmin:
      return std::min(x, y);
    case BinaryOp::bitwise_and:
      return wrapped(a & b);
    case BinaryOp::bitwise_or:
      return wrapped(a | b);
    case BinaryOp::bitwise_xor:
      return wrapped(a ^ b);
    case BinaryOp::left_shift:
      return b < 0 || b >= kWidth ? T{0} : wrapped(static_cast<Wide>(static_cast<uint64_t>(x)) << y);
    default:  // right_shift
      return b < 0 || b >= kWidth ? (a < 0 ? static_cast<T>(-1) : T{0}) : wrapped(a >> y);
  }
}

template <class T>
void check_integers() {
  const DType dtype = dtype_of<T>;
  // For the narrow types, all pairs of values.
  const int64_t n = sizeof(T) == 1 ? 65536 : 20011;
  Held a = make_tensor(dtype, {n}), b = make_tensor(dtype, {n});
  fill_values(a.tensor, 1);
  fill_values(b.tensor, 2);
  if (sizeof(T) == 1) {
    for (int64_t k = 0; k < n; ++k) {
      a.tensor.as<uint8_t>()[k] = static_cast<uint8_t>(k / 256);
      b.tensor.as<uint8_t>()[k] = static_cast<uint8_t>(k);
    }
  }
  for (int i = 0; i < kernels::kBinaryOps; ++i) {
    const BinaryOp op = op_at(i);
    if (!kernels::binary_supports(op, dtype)) continue;
    Held out = make_tensor(kernels::binary_result(op, dtype), {n});
    binary(op, out.tensor, a.tensor, b.tensor);
    for (int64_t k = 0; k < n; ++k) {
      const T x = a.tensor.as<T>()[k], y = b.tensor.as<T>()[k];
      if (compares(op)) {
        ASSERT_EQ(compare<T>(op, x, y) ? 1 : 0, out.tensor.as<uint8_t>()[k])
            << to_string(op) << " " << +x << " " << +y;
      } else {
        ASSERT_EQ(integer<T>(op, x, y), out.tensor.as<T>()[k]) << to_string(op) << " " << +x << " " << +y;
      }
    }
  }
}

TEST(Binary, IntegersWrapAndNeverTrap) {
  check_integers<int8_t>();
  check_integers<uint8_t>();
  check_integers<int32_t>();
  check_integers<int64_t>();
}

TEST(Binary, PowersOfIntegersAreProducts) {
  for (int64_t base = -9; base <= 9; ++base) {
    int64_t product = 1;
    for (int64_t exponent = 0; exponent < 70; ++exponent) {
      Held a = make_tensor(i64, {}), b = make_tensor(i64, {}), out = make_tensor(i64, {});
      *a.tensor.as<int64_t>() = base;
      *b.tensor.as<int64_t>() = exponent;
      binary(BinaryOp::pow, out.tensor, a.tensor, b.tensor);
      ASSERT_EQ(product, *out.tensor.as<int64_t>()) << base << " " << exponent;
      product = static_cast<int64_t>(static_cast<uint64_t>(product) * static_cast<uint64_t>(base));
    }
  }
}

TEST(Binary, BoolAddsAsOrAndMultipliesAsAnd) {
  for (int pair = 0; pair < 4; ++pair) {
    Held a = make_tensor(bool_, {}), b = make_tensor(bool_, {}), out = make_tensor(bool_, {});
    const bool x = *a.tensor.as<bool>() = (pair & 1) != 0;
    const bool y = *b.tensor.as<bool>() = (pair & 2) != 0;
    const auto of = [&](BinaryOp op) {
      binary(op, out.tensor, a.tensor, b.tensor);
      return *out.tensor.as<uint8_t>();
    };
    EXPECT_EQ(x || y, of(BinaryOp::add));
    EXPECT_EQ(x && y, of(BinaryOp::mul));
    EXPECT_EQ(x || y, of(BinaryOp::maximum));
    EXPECT_EQ(x && y, of(BinaryOp::minimum));
    EXPECT_EQ(x != y, of(BinaryOp::bitwise_xor));
    EXPECT_EQ(x != y, of(BinaryOp::logical_xor));
    EXPECT_EQ(x < y, of(BinaryOp::less));
  }
  EXPECT_FALSE(kernels::binary_supports(BinaryOp::sub, bool_));
}

TEST(Binary, BitsDependOnNeitherLayoutNorPlace) {
  for (int i = 0; i < kernels::kBinaryOps; ++i) {
    const BinaryOp op = op_at(i);
    for (const DType dtype : kAllDTypes) {
      if (!kernels::binary_supports(op, dtype)) continue;
      const DType result = kernels::binary_result(op, dtype);
      for (const Shape& shape : {Shape{}, Shape{0}, Shape{37}, Shape{4, 7, 19}}) {
        for (size_t layout = 0; layout < 6; ++layout) {
          const std::string& mine = test::layouts()[layout];
          const std::string& other = test::layouts()[(layout + static_cast<size_t>(i)) % 6];
          Held a = make_tensor(dtype, shape, mine), b = make_tensor(dtype, shape, other);
          fill_values(a.tensor, 1);
          fill_values(b.tensor, 2);
          // b unchanged, then one row, one column and one element of it broadcast.
          for (int broadcast = 0; broadcast < 4; ++broadcast) {
            Tensor second = b.tensor;
            for (int k = 0; k < shape.rank(); ++k)
              if (broadcast == 3 || (broadcast == 1 && k == 0) || (broadcast == 2 && k + 1 == shape.rank()))
                second.strides[k] = 0;
            Held reference = make_tensor(result, shape), out = make_tensor(result, shape, other);
            for (int64_t k = 0; k < shape.numel(); ++k)
              binary(op, element_of(reference.tensor, k), element_of(a.tensor, k), element_of(second, k));
            binary(op, out.tensor, a.tensor, second);
            ASSERT_EQ(-1, first_difference(reference.tensor, out.tensor))
                << to_string(op) << " of " << dtype << " " << shape << " " << mine << " " << other << " "
                << broadcast;
            ASSERT_TRUE(untouched_between(out));
            if (result != dtype || broadcast != 3) continue;
            binary(op, a.tensor, a.tensor, second);
            ASSERT_EQ(-1, first_difference(reference.tensor, a.tensor))
                << to_string(op) << " in place " << mine;
          }
        }
      }
    }
  }
}

TEST(Binary, OperandsOfOtherTypesAreConverted) {
  for (const DType from : kAllDTypes) {
    for (const DType to : {f32, f64, bf16, i64}) {
      Held a = make_tensor(from, {1500}), b = make_tensor(to, {1500}), out = make_tensor(to, {1500});
      Held converted = make_tensor(to, {1500}), expected = make_tensor(to, {1500});
      fill_values(a.tensor, 1);
      fill_values(b.tensor, 2);
      visit(from, [&](auto f) {
        visit(to, [&](auto t) {
          using F = typename decltype(f)::type;
          using T = typename decltype(t)::type;
          for (int64_t k = 0; k < 1500; ++k) {
            // A result computed in float32 may skip the conversion to the narrower type.
            const F x = a.tensor.as<F>()[k];
            converted.tensor.as<T>()[k] = convert<T>(x);
            if (to == bf16) {
              const float sum = convert<float>(x) + static_cast<float>(b.tensor.as<T>()[k]);
              expected.tensor.as<T>()[k] = convert<T>(sum);
            }
          }
        });
      });
      if (to != bf16) binary(BinaryOp::add, expected.tensor, converted.tensor, b.tensor);
      binary(BinaryOp::add, out.tensor, a.tensor, b.tensor);
      ASSERT_EQ(-1, first_difference(expected.tensor, out.tensor)) << from << " to " << to;
    }
  }
}

TEST(Binary, LargeArraysHaveTheBitsOfTheirElements) {
  constexpr int64_t kRows = 3, kColumns = 30011;
  for (const BinaryOp op : {BinaryOp::add, BinaryOp::less, BinaryOp::hypot}) {
    for (const DType dtype : {f32, f64, f16}) {
      const DType result = kernels::binary_result(op, dtype);
      Held a = make_tensor(dtype, {kRows, kColumns}), b = make_tensor(dtype, {kRows, kColumns}, "transposed");
      Held out = make_tensor(result, {kRows, kColumns}), alone = make_tensor(result, {kRows, kColumns});
      fill_values(a.tensor, 1);
      fill_values(b.tensor, 2);
      binary(op, out.tensor, a.tensor, b.tensor);
      for (int64_t k = 0; k < kRows * kColumns; ++k)
        binary(op, element_of(alone.tensor, k), element_of(a.tensor, k), element_of(b.tensor, k));
      EXPECT_EQ(-1, first_difference(alone.tensor, out.tensor)) << to_string(op) << " of " << dtype;
    }
  }
}

// Arrays beyond the size from which results bypass the caches, at every alignment to a cache line, and with
// one element of an operand broadcast.
TEST(Binary, VeryLargeArraysHaveTheBitsOfSmallOnes) {
  constexpr int64_t n = (int64_t{9} << 18) + 13, kPeriod = 1000;
  const auto fill = [](Tensor& t, double factor) {
    for (int64_t i = 0; i < t.numel(); ++i) {
      const double x = (static_cast<double>(i % kPeriod) - 313.3) * factor;
      t.dtype == f32 ? t.as<float>()[i] = static_cast<float>(x) : t.as<double>()[i] = x;
    }
  };
  for (const DType dtype : {f32, f64}) {
    for (const int64_t first : {0, 1, 13}) {
      Held a = make_tensor(dtype, {n + first}), b = make_tensor(dtype, {n + first}),
           out = make_tensor(dtype, {n + first}), few_a = make_tensor(dtype, {kPeriod}),
           few_b = make_tensor(dtype, {kPeriod}), expected = make_tensor(dtype, {kPeriod});
      for (Held* held : {&a, &b, &out}) {
        held->tensor.data = element_of(held->tensor, first).data;
        held->tensor.shape = {n};
      }
      fill(a.tensor, 0.37);
      fill(b.tensor, -1.3);
      fill(few_a.tensor, 0.37);
      fill(few_b.tensor, -1.3);
      for (const bool repeated : {false, true}) {
        if (repeated) b.tensor.strides = few_b.tensor.strides = {0};
        for (const BinaryOp op : {BinaryOp::add, BinaryOp::sub, BinaryOp::mul, BinaryOp::div}) {
          binary(op, out.tensor, a.tensor, b.tensor);
          binary(op, expected.tensor, few_a.tensor, few_b.tensor);
          const auto size = static_cast<int64_t>(size_of(dtype));
          int64_t wrong = 0;
          for (int64_t i = 0; i < n; ++i)
            wrong += std::memcmp(expected.tensor.as<char>() + i % kPeriod * size,
                                 out.tensor.as<char>() + i * size, static_cast<size_t>(size)) != 0;
          EXPECT_EQ(0, wrong) << to_string(op) << " of " << dtype << " from " << first << ' ' << repeated;
          EXPECT_EQ(Held::kPattern, out.memory.back());
        }
      }
    }
  }
}

TEST(Where, ChoosesInEveryTypeAndLayout) {
  for (const DType dtype : kAllDTypes) {
    for (const std::string& layout : test::layouts()) {
      const Shape shape{5, 7, 61};
      Held condition = make_tensor(bool_, shape, layout), a = make_tensor(dtype, shape, layout);
      Held b = make_tensor(dtype, shape), out = make_tensor(dtype, shape),
           expected = make_tensor(dtype, shape);
      fill_values(condition.tensor, 3);
      fill_values(a.tensor, 1);
      fill_values(b.tensor, 2);
      Tensor one = b.tensor;
      one.strides = {0, 0, 0};
      for (int64_t k = 0; k < shape.numel(); ++k) {
        const Tensor& source = value_at(condition.tensor, k) != 0 ? a.tensor : one;
        std::memcpy(test::element_at(expected.tensor, k), test::element_at(source, k), size_of(dtype));
      }
      kernels::where(out.tensor, condition.tensor, a.tensor, one);
      ASSERT_EQ(-1, first_difference(expected.tensor, out.tensor)) << dtype << " " << layout;
    }
  }
}

TEST(Clamp, KeepsWithinTheLimitsAndLetsNanThrough) {
  for (const DType dtype : kAllDTypes) {
    Held x = make_tensor(dtype, {2000}), low = make_tensor(dtype, {2000}), high = make_tensor(dtype, {2000});
    Held out = make_tensor(dtype, {2000});
    fill_values(x.tensor, 1);
    fill_values(low.tensor, 2);
    fill_values(high.tensor, 3);
    kernels::clamp(out.tensor, x.tensor, low.tensor, high.tensor);
    for (int64_t k = 0; k < 2000; ++k) {
      const double v = value_at(x.tensor, k), l = value_at(low.tensor, k), h = value_at(high.tensor, k);
      const double got = value_at(out.tensor, k);
      if (std::isnan(v) || std::isnan(l) || std::isnan(h)) {
        ASSERT_TRUE(std::isnan(got)) << dtype << " " << k;
      } else {
        ASSERT_EQ(std::min(std::max(v, l), h), got) << dtype << " " << k;
      }
    }
  }
}

TEST(Binary, MistakesAreNamed) {
  Held a = make_tensor(f32, {2}), b = make_tensor(f32, {3}), c = make_tensor(bool_, {2});
  EXPECT_THROW(binary(BinaryOp::add, a.tensor, a.tensor, b.tensor), InvalidArgument);
  EXPECT_THROW(binary(BinaryOp::less, a.tensor, a.tensor, a.tensor), InvalidArgument);
  EXPECT_THROW(binary(BinaryOp::bitwise_and, a.tensor, a.tensor, a.tensor), InvalidArgument);
  EXPECT_THROW(kernels::where(a.tensor, c.tensor, b.tensor, a.tensor), InvalidArgument);
  EXPECT_THROW(kernels::clamp(a.tensor, a.tensor, a.tensor, b.tensor), InvalidArgument);
  EXPECT_STREQ("add", kernels::to_string(BinaryOp::add));
  EXPECT_STREQ("logaddexp", kernels::to_string(BinaryOp::logaddexp));
  EXPECT_STREQ("right_shift", kernels::to_string(BinaryOp::right_shift));
}

}  // namespace
}  // namespace mx
