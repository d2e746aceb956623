// Powers, angles, remainders and similar functions over every bit pattern, at the limits of the range and at
// special values, compared with long double.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>
#include <vector>

#include "operators/kernels/binary.h"
#include "operators/kernels/unary.h"
#include "tests/support/held_tensor.h"

namespace mx {
namespace {

using kernels::binary;
using kernels::BinaryOp;
using test::Held;
using test::make_tensor;
using test::ulps;

using Exact = long double;

Exact floored_mod(Exact a, Exact b) {
  const Exact rest = std::fmod(a, b);
  if (rest == 0) return b == 0 ? rest : std::copysign(Exact{0}, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}

/// Precondition: the quotient is below 2^50 in magnitude. Special values follow IEEE 754's division.
Exact floored_quotient(Exact a, Exact b) {
  const Exact rest = std::fmod(a, b);
  if (b == 0 || std::isnan(rest)) return b == 0 ? a / b : rest;
  Exact quotient = std::nearbyint((a - rest) / b);
  if (rest != 0 && (rest < 0) != (b < 0)) quotient -= 1;
  return quotient == 0 ? std::copysign(Exact{0}, a / b) : quotient;
}

Exact log_add_exp(Exact a, Exact b) {
  if (std::isnan(a) || std::isnan(b)) return a + b;
  if (std::isinf(a) || std::isinf(b)) return std::fmax(a, b);
  return std::fmax(a, b) + std::log1p(std::exp(std::fmin(a, b) - std::fmax(a, b)));
}

Exact exact(BinaryOp op, Exact a, Exact b) {
  switch (op) {
    case BinaryOp::pow:
      return std::pow(a, b);
    case BinaryOp::atan2:
      return std::atan2(a, b);
    case BinaryOp::hypot:
      return std::hypot(a, b);
    case BinaryOp::fmod:
      return std::fmod(a, b);
    case BinaryOp::mod:
      return floored_mod(a, b);
    case BinaryOp::floor_div:
      return floored_quotient(a, b);
    default:
      return log_add_exp(a, b);
  }
}

constexpr BinaryOp kOps[] = {BinaryOp::pow, BinaryOp::atan2,     BinaryOp::hypot,    BinaryOp::fmod,
                             BinaryOp::mod, BinaryOp::floor_div, BinaryOp::logaddexp};

/// Returns the distance in units in the last place; the largest distance for a zero of the wrong sign.
template <class T>
double distance(T got, Exact want) {
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : 1e30;
  if (static_cast<T>(want) == 0 && got == 0) return std::signbit(got) == std::signbit(want) ? 0 : 1e30;
  return ulps(got, want);
}

template <class T>
std::vector<T> special_values() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> list = {0,
                         1,
                         2,
                         3,
                         T(0.5),
                         T(0.1),
                         T(1.5),
                         T(7),
                         std::nextafter(T(1), T(2)),
                         std::nextafter(T(1), T(0)),
                         T(1000),
                         T(1000.5),
                         T(1) / Limits::epsilon(),
                         T(4) / Limits::epsilon(),
                         Limits::max(),
                         Limits::max() / 2,
                         Limits::min(),
                         Limits::min() / 2,
                         Limits::denorm_min(),
                         Limits::denorm_min() * 5,
                         Limits::infinity(),
                         Limits::quiet_NaN()};
  const size_t n = list.size();
  for (size_t i = 0; i < n; ++i) list.push_back(-list[i]);
  return list;
}

template <class T>
void check(BinaryOp op, const std::vector<T>& a, const std::vector<T>& b, double limit) {
  const auto n = static_cast<int64_t>(a.size());
  Held x = make_tensor(dtype_of<T>, {n}), y = make_tensor(dtype_of<T>, {n}),
       out = make_tensor(dtype_of<T>, {n});
  std::copy(a.begin(), a.end(), x.tensor.as<T>());
  std::copy(b.begin(), b.end(), y.tensor.as<T>());
  binary(op, out.tensor, x.tensor, y.tensor);
  for (size_t i = 0; i < a.size(); ++i) {
    const T got = out.tensor.as<T>()[i];
    const Exact want = exact(op, a[i], b[i]);
    // A quotient with more digits than its type has cannot be exact to one unit.
    if (op == BinaryOp::floor_div && std::isfinite(want) && std::fabs(want) > 0x1p50L) continue;
    if (op == BinaryOp::logaddexp && std::isfinite(want)) {
      // A result near 0 is the difference of two larger numbers, so the error is relative to those.
      const Exact size = std::max({std::fabs(want), std::fabs(Exact{a[i]}), std::fabs(Exact{b[i]})});
      if (!std::isfinite(got)) {
        ASSERT_LE(distance(got, want), limit) << a[i] << ' ' << b[i];
        continue;
      }
      ASSERT_LE(std::fabs(Exact{got} - want),
                limit * (size * std::numeric_limits<T>::epsilon() + std::numeric_limits<T>::denorm_min()))
          << a[i] << ' ' << b[i];
      continue;
    }
    ASSERT_LE(distance(got, want), limit)
        << to_string(op) << " of " << dtype_of<T> << ' ' << a[i] << ' ' << b[i] << " gave " << got;
  }
}

template <class T>
void check_special_values() {
  const std::vector<T> values = special_values<T>();
  std::vector<T> a, b;
  for (const T x : values)
    for (const T y : values) {
      a.push_back(x);
      b.push_back(y);
    }
  for (const BinaryOp op : kOps) check(op, a, b, sizeof(T) == 4 ? 2 : 4);
}

TEST(BinaryAccuracy, SpecialValuesMeetAsInC) {
  check_special_values<float>();
  check_special_values<double>();
}

template <class T>
void check_patterns() {
  using Bits = std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>;
  std::mt19937_64 random(5);
  std::vector<T> a, b, c;
  for (int i = 0; i < 40000; ++i) {
    a.push_back(std::bit_cast<T>(static_cast<Bits>(random())));
    b.push_back(std::bit_cast<T>(static_cast<Bits>(random())));
    // A number within some binary orders of magnitude of a.
    const T scale = std::ldexp(T(1), static_cast<int>(random() % 60) - 40);
    c.push_back(a.back() * scale * static_cast<T>(1 + static_cast<double>(random() % 1000) / 1000));
  }
  for (const BinaryOp op : kOps) {
    check(op, a, b, sizeof(T) == 4 ? 2 : 4);
    check(op, a, c, sizeof(T) == 4 ? 2 : 4);
    check(op, c, a, sizeof(T) == 4 ? 2 : 4);
  }
}

TEST(BinaryAccuracy, AllBitPatternsKeepTheirDigits) {
  check_patterns<float>();
  check_patterns<double>();
}

// pow needs the product of the exponent and the logarithm to more digits than a double has.
TEST(BinaryAccuracy, PowersKeepTheirDigitsUpToTheLimitsOfTheRange) {
  std::mt19937_64 random(6);
  std::vector<double> a, b;
  for (int i = 0; i < 40000; ++i) {
    const double base =
        std::ldexp(1 + static_cast<double>(random() % 100000) / 100000, static_cast<int>(random() % 40) - 20);
    const double target = static_cast<double>(random() % 1500) - 750;  // the logarithm of the result
    a.push_back(i % 3 == 0 ? 1 + (base - 1) * 1e-9 : base);
    b.push_back(target / std::log(a.back()));
    if (i % 2 == 0) b.back() = std::round(b.back());
    if (i % 4 == 0) a.back() = -a.back();
  }
  check<double>(BinaryOp::pow, a, b, 2);
}

TEST(BinaryAccuracy, RemaindersAreExact) {
  std::mt19937_64 random(7);
  std::vector<double> a, b;
  for (int i = 0; i < 40000; ++i) {
    b.push_back(std::ldexp(static_cast<double>(random() % 100000 + 1), static_cast<int>(random() % 20)));
    // Whole multiples and their neighbours, for which the quotient rounds to the next whole number.
    const double whole = static_cast<double>(random() % (uint64_t{1} << (random() % 50)));
    a.push_back(std::nextafter(whole * b.back(), i % 3 == 0 ? 0 : i % 3 == 1 ? 1e300 : whole * b.back()));
    if (i % 2 == 0) a.back() = -a.back();
    if (i % 5 == 0) b.back() = -b.back();
  }
  check<double>(BinaryOp::fmod, a, b, 0);
  check<double>(BinaryOp::mod, a, b, 0.51);
  check<double>(BinaryOp::floor_div, a, b, 0);
}

}  // namespace
}  // namespace mx
