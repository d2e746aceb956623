// Compares every public elementwise function, called by name, with the plain function that the name promises.
// This detects a name that is wired to another operator, even if both operators are correct. The kernels'
// tests check the accuracy.
#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <set>
#include <string>
#include <vector>

#include "operators/operators.h"
#include "tests/operators/values.h"

namespace mx {
namespace {

// The domains in which the plain function defines the expected result.
bool anywhere(double) { return true; }
bool finite(double x) { return std::isfinite(x); }
bool positive(double x) { return finite(x) && x > 0; }
bool inside_unit(double x) { return x > 0 && x < 1; }
bool finite_divisor(double x) { return finite(x) && x != 0; }

struct UnaryName {
  const char* record;
  NDArray (*function)(const Arg&);
  double (*plain)(double);
  bool (*domain)(double) = anywhere;
};

struct BinaryName {
  const char* record;
  NDArray (*function)(const Operand&, const Operand&);
  double (*plain)(double, double);
  bool (*domain)(double) = anywhere, (*second_domain)(double) = anywhere;
};

double logistic(double x) { return 1 / (1 + std::exp(-x)); }
double normal_density(double x) { return std::exp(-x * x / 2) / std::sqrt(2 * std::numbers::pi); }
double normal_share(double x) { return std::erfc(-x / std::numbers::sqrt2) / 2; }
// gelu_tanh's approximation of normal_share, and its derivative.
double near_share(double x) { return logistic(std::sqrt(8 / std::numbers::pi) * (x + 0.044715 * x * x * x)); }
double near_density(double x) {
  const double s = near_share(x);
  return s * (1 - s) * std::sqrt(8 / std::numbers::pi) * (1 + 3 * 0.044715 * x * x);
}
double times(double x, double factor) { return factor == 0 ? 0 : x * factor; }  // also if x is infinite

// Returns the sum over k >= 0 of 1 / (x + k)^2. The tail is an integral with its first correction terms.
double trigamma_of(double x) {
  double sum = 0;
  for (; x < 200; x += 1) sum += 1 / (x * x);
  return sum + 1 / x + 1 / (2 * x * x) + 1 / (6 * x * x * x);
}
double digamma_of(double x) {
  double sum = 0;
  for (; x < 50; x += 1) sum -= 1 / x;
  return sum + std::log(x) - 1 / (2 * x) - 1 / (12 * x * x) + 1 / (120 * x * x * x * x);
}

const UnaryName kUnaryNames[] = {
    {"neg", neg, [](double x) { return -x; }},
    {"abs", abs, [](double x) { return std::fabs(x); }},
    {"sign", sign, [](double x) { return x > 0   ? 1
                                         : x < 0 ? -1
                                                 : x; }},
    {"square", square, [](double x) { return x * x; }},
    {"relu", relu, [](double x) { return x < 0 ? 0 : x; }},
    {"floor", floor, [](double x) { return std::floor(x); }},
    {"ceil", ceil, [](double x) { return std::ceil(x); }},
    {"round", round, [](double x) { return std::nearbyint(x); }},
    {"trunc", trunc, [](double x) { return std::trunc(x); }},
    {"exp", exp, [](double x) { return std::exp(x); }},
    {"exp2", exp2, [](double x) { return std::exp2(x); }},
    {"expm1", expm1, [](double x) { return std::expm1(x); }},
    {"log", log, [](double x) { return std::log(x); }},
    {"log2", log2, [](double x) { return std::log2(x); }},
    {"log10", log10, [](double x) { return std::log10(x); }},
    {"log1p", log1p, [](double x) { return std::log1p(x); }},
    {"sqrt", sqrt, [](double x) { return std::sqrt(x); }},
    {"rsqrt", rsqrt, [](double x) { return 1 / std::sqrt(x); }},
    {"cbrt", cbrt, [](double x) { return std::cbrt(x); }},
    {"reciprocal", reciprocal, [](double x) { return 1 / x; }},
    {"sin", sin, [](double x) { return std::sin(x); }},
    {"cos", cos, [](double x) { return std::cos(x); }},
    {"tan", tan, [](double x) { return std::tan(x); }},
    {"asin", asin, [](double x) { return std::asin(x); }},
    {"acos", acos, [](double x) { return std::acos(x); }},
    {"atan", atan, [](double x) { return std::atan(x); }},
    {"sinh", sinh, [](double x) { return std::sinh(x); }},
    {"cosh", cosh, [](double x) { return std::cosh(x); }},
    {"tanh", tanh, [](double x) { return std::tanh(x); }},
    {"asinh", asinh, [](double x) { return std::asinh(x); }},
    {"acosh", acosh, [](double x) { return std::acosh(x); }},
    {"atanh", atanh, [](double x) { return std::atanh(x); }},
    {"erf", erf, [](double x) { return std::erf(x); }},
    {"erfc", erfc, [](double x) { return std::erfc(x); }},
    {"lgamma", lgamma, [](double x) { return std::lgamma(x); }},
    {"polygamma", digamma, digamma_of, positive},
    {"polygamma", [](const Arg& x) { return polygamma(x, 1); }, trigamma_of, positive},
    {"sigmoid", sigmoid, logistic},
    {"softplus", softplus, [](double x) { return std::fmax(x, 0) + std::log1p(std::exp(-std::fabs(x))); }},
    {"silu", silu, [](double x) { return times(x, logistic(x)); }},
    {"gelu", gelu, [](double x) { return times(x, normal_share(x)); }},
    {"gelu_tanh", gelu_tanh, [](double x) { return times(x, near_share(x)); }},
    {"logical_not", logical_not, [](double x) { return x == 0 ? 1. : 0.; }},
    {"isnan", isnan, [](double x) { return std::isnan(x) ? 1. : 0.; }},
    {"isinf", isinf, [](double x) { return std::isinf(x) ? 1. : 0.; }},
    {"isfinite", isfinite, [](double x) { return std::isfinite(x) ? 1. : 0.; }},
    {"signbit", signbit, [](double x) { return std::signbit(x) ? 1. : 0.; }},
};

double floor_quotient(double a, double b) { return std::floor(a / b); }
double log_of_sum(double a, double b) {
  if (std::isnan(a) || std::isnan(b)) return test::kNan;
  if (std::isinf(a) || std::isinf(b)) return std::fmax(a, b);
  return std::fmax(a, b) + std::log1p(std::exp(-std::fabs(a - b)));
}
double entropy_of(double x, double t) { return -t * std::log(x) - (1 - t) * std::log(1 - x); }

const BinaryName kBinaryNames[] = {
    {"add", add, [](double a, double b) { return a + b; }},
    {"sub", sub, [](double a, double b) { return a - b; }},
    {"mul", mul, [](double a, double b) { return a * b; }},
    {"div", div, [](double a, double b) { return a / b; }},
    {"floor_div", floor_div, floor_quotient, finite, finite_divisor},
    {"mod", mod, [](double a, double b) { return a - b * floor_quotient(a, b); }, finite, finite_divisor},
    {"fmod", fmod, [](double a, double b) { return std::fmod(a, b); }},
    {"pow", pow, [](double a, double b) { return std::pow(a, b); }},
    {"maximum", maximum, [](double a, double b) { return a != a || b != b ? test::kNan : std::fmax(a, b); }},
    {"minimum", minimum, [](double a, double b) { return a != a || b != b ? test::kNan : std::fmin(a, b); }},
    {"fmax", fmax, [](double a, double b) { return std::fmax(a, b); }},
    {"fmin", fmin, [](double a, double b) { return std::fmin(a, b); }},
    {"atan2", atan2, [](double a, double b) { return std::atan2(a, b); }},
    {"hypot", hypot, [](double a, double b) { return std::hypot(a, b); }},
    {"copysign", copysign, [](double a, double b) { return std::copysign(a, b); }},
    {"logaddexp", logaddexp, log_of_sum},
    {"relu_backward", relu_backward, [](double dy, double y) { return y > 0 ? dy : 0; }, finite, finite},
    {"tanh_backward", tanh_backward, [](double dy, double y) { return dy * (1 - y * y); }, finite, finite},
    {"sigmoid_backward", sigmoid_backward, [](double dy, double y) { return dy * y * (1 - y); }, finite,
     finite},
    {"silu_backward", silu_backward,
     [](double dy, double x) { return dy * logistic(x) * (1 + x * (1 - logistic(x))); }, finite, finite},
    {"gelu_backward", gelu_backward,
     [](double dy, double x) { return dy * (normal_share(x) + x * normal_density(x)); }, finite, finite},
    {"gelu_tanh_backward", gelu_tanh_backward,
     [](double dy, double x) { return dy * (near_share(x) + x * near_density(x)); }, finite, finite},
    {"binary_cross_entropy", binary_cross_entropy, entropy_of, inside_unit, finite},
    {"equal", equal, [](double a, double b) { return a == b ? 1. : 0.; }},
    {"not_equal", not_equal, [](double a, double b) { return a != b ? 1. : 0.; }},
    {"less", less, [](double a, double b) { return a < b ? 1. : 0.; }},
    {"less_equal", less_equal, [](double a, double b) { return a <= b ? 1. : 0.; }},
    {"greater", greater, [](double a, double b) { return a > b ? 1. : 0.; }},
    {"greater_equal", greater_equal, [](double a, double b) { return a >= b ? 1. : 0.; }},
    {"logical_and", logical_and, [](double a, double b) { return a != 0 && b != 0 ? 1. : 0.; }},
    {"logical_or", logical_or, [](double a, double b) { return a != 0 || b != 0 ? 1. : 0.; }},
    {"logical_xor", logical_xor, [](double a, double b) { return (a != 0) != (b != 0) ? 1. : 0.; }},
};

// For integers.
struct BitName {
  const char* record;
  NDArray (*function)(const Operand&, const Operand&);
  int64_t (*plain)(int64_t, int64_t);
};

const BitName kBitNames[] = {
    {"bitwise_and", bitwise_and, [](int64_t a, int64_t b) { return a & b; }},
    {"bitwise_or", bitwise_or, [](int64_t a, int64_t b) { return a | b; }},
    {"bitwise_xor", bitwise_xor, [](int64_t a, int64_t b) { return a ^ b; }},
    {"left_shift", left_shift, [](int64_t a, int64_t b) { return a * (int64_t{1} << b); }},
    {"right_shift", right_shift, [](int64_t a, int64_t b) { return a >> b; }},
};

NDArray typed(const test::Values& list, DType dtype) { return array(list).to(dtype); }

// All of them are exact in f32.
const test::Values kSpecial = {
    -test::kInfinity, -3.5,      -2, -1.5, -1, -0.75, -0.5, -0., 0, 0.25, 0.5, 1, 1.5, 2.5, 3, 10,
    test::kInfinity,  test::kNan};

TEST(ElementwiseNames, FunctionsOfOneOperandAreWhatTheyAreCalled) {
  for (const UnaryName& entry : kUnaryNames) {
    test::Values x, want;
    for (const double value : kSpecial)
      if (entry.domain(value)) x.push_back(value);
    for (const double value : x) want.push_back(entry.plain(value));
    ASSERT_FALSE(x.empty()) << entry.record;
    for (const DType dtype : {f32, f64}) {
      const NDArray got = entry.function(typed(x, dtype));
      test::expect_values(want, got.dtype() == bool_ ? got.to(f32) : got,
                          detail::concat(entry.record, " of ", dtype));
    }
  }
}

TEST(ElementwiseNames, FunctionsOfTwoOperandsAreWhatTheyAreCalled) {
  for (const BinaryName& entry : kBinaryNames) {
    test::Values a, b, want;
    for (const double x : kSpecial) {
      for (const double y : kSpecial) {
        if (!entry.domain(x) || !entry.second_domain(y)) continue;
        a.push_back(x);
        b.push_back(y);
        want.push_back(entry.plain(x, y));
      }
    }
    ASSERT_FALSE(want.empty()) << entry.record;
    for (const DType dtype : {f32, f64}) {
      const NDArray got = entry.function(typed(a, dtype), typed(b, dtype));
      test::expect_values(want, got.dtype() == bool_ ? got.to(f32) : got,
                          detail::concat(entry.record, " of ", dtype), 4);
    }
  }
}

TEST(ElementwiseNames, NextafterIsOfItsOwnType) {
  EXPECT_EQ(std::nextafterf(1.5f, 7.f), nextafter(array({1.5f}), array({7.f})).item<float>());
  EXPECT_EQ(std::nextafterf(1.5f, -7.f), nextafter(array({1.5f}), -7.f).item<float>());
  EXPECT_EQ(std::nextafter(1.5, 7.), nextafter(array({1.5}), array({7.})).item<double>());
}

TEST(ElementwiseNames, FunctionsOfBitsAreWhatTheyAreCalled) {
  for (const DType dtype : {i32, i64}) {
    for (const BitName& entry : kBitNames) {
      std::vector<int64_t> a, b, want;
      for (const int64_t x : {-1000, -5, -1, 0, 1, 3, 6, 1000}) {
        for (const int64_t y : {0, 1, 3, 6}) {
          a.push_back(x);
          b.push_back(y);
          want.push_back(entry.plain(x, y));
        }
      }
      const NDArray got = entry.function(array(a).to(dtype), array(b).to(dtype));
      EXPECT_EQ(dtype, got.dtype());
      EXPECT_EQ(want, got.to_vector<int64_t>()) << entry.record << " of " << dtype;
    }
    const NDArray x = array<int64_t>({-7, -1, 0, 5}).to(dtype);
    EXPECT_EQ((std::vector<int64_t>{6, 0, -1, -6}), bitwise_not(x).to_vector<int64_t>());
  }
}

TEST(ElementwiseNames, SignsAreThoseOfTheFunctions) {
  const NDArray a = array<int64_t>({-7, -1, 2, 5, 6}), b = array<int64_t>({2, 2, 2, 3, 1});
  const struct {
    const char* sign;
    NDArray with_sign, with_name;
  } signs[] = {
      {"+", a + b, add(a, b)},
      {"-", a - b, sub(a, b)},
      {"*", a * b, mul(a, b)},
      {"/", a / b, div(a, b)},
      {"%", a % b, mod(a, b)},
      {"==", a == b, equal(a, b)},
      {"!=", a != b, not_equal(a, b)},
      {"<", a < b, less(a, b)},
      {"<=", a <= b, less_equal(a, b)},
      {">", a > b, greater(a, b)},
      {">=", a >= b, greater_equal(a, b)},
      {"&", a & b, bitwise_and(a, b)},
      {"|", a | b, bitwise_or(a, b)},
      {"^", a ^ b, bitwise_xor(a, b)},
      {"<<", a << b, left_shift(a, b)},
      {">>", a >> b, right_shift(a, b)},
      {"-x", -a, neg(a)},
      {"~x", ~a, bitwise_not(a)},
      {"!x", !a, logical_not(a)},
  };
  for (const auto& each : signs) {
    EXPECT_EQ(each.with_name.dtype(), each.with_sign.dtype()) << each.sign;
    EXPECT_EQ(each.with_name.to_vector<double>(), each.with_sign.to_vector<double>()) << each.sign;
  }
}

TEST(ElementwiseNames, EveryElementwiseRecordIsHere) {
  // numpy_golden_test.cc tests the values of the last five.
  std::set<std::string> here = {"nextafter", "bitwise_not", "erfinv", "logit", "xlogy", "gcd", "lcm"};
  for (const UnaryName& entry : kUnaryNames) here.insert(entry.record);
  for (const BinaryName& entry : kBinaryNames) here.insert(entry.record);
  for (const BitName& entry : kBitNames) here.insert(entry.record);
  std::set<std::string> records;
  for (const Operator* op : all_operators())
    if (std::string(op->family) == "elementwise") records.insert(op->name());
  EXPECT_EQ(records, here);
}

}  // namespace
}  // namespace mx
