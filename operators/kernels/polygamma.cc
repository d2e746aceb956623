// digamma: reflection for negative x, recurrence up to 10, then the asymptotic series. Higher orders:
// (-1)^(n+1) n! zeta(n + 1, x), with the Hurwitz zeta function by Euler-Maclaurin summation.
// Source: NIST Digital Library of Mathematical Functions, 5.11.2, 5.15, 25.11.
#include "operators/kernels/polygamma.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "engine/base/check.h"
#include "ndarray/kernels/strided_loop.h"
#include "operators/kernels/row_convert.h"

namespace mx::kernels {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity(),
                 kNan = std::numeric_limits<double>::quiet_NaN();

/// The Bernoulli numbers B2, B4, ...
constexpr double kBernoulli[] = {1. / 6,       -1. / 30, 1. / 42,       -1. / 30,     5. / 66,
                                 -691. / 2730, 7. / 6,   -3617. / 510., 43867. / 798, -174611. / 330};

double digamma(double x) {
  if (x == 0) return std::copysign(kInfinity, -x);
  if (x < 0) {
    const double rest = x - std::trunc(x);  // exact, and the tangent has period 1
    return rest == 0 ? kNan : digamma(1 - x) - std::numbers::pi / std::tan(std::numbers::pi * rest);
  }
  double shift = 0;
  for (; x < 10; ++x) shift -= 1 / x;
  const double inverse = 1 / (x * x);
  double power = inverse, series = 0;
  for (int k = 0; k < 8; ++k, power *= inverse) series -= kBernoulli[k] / (2 * (k + 1)) * power;
  return shift + (std::isinf(x) ? x : std::log(x) - 0.5 / x + series);
}

/// Returns unit^s times the sum over k >= 0 of (k + x)^-s, for x >= unit > 0 and s >= 2. Needs at most a few
/// dozen terms, however large s is.
double hurwitz_zeta(double s, double x, double unit) {
  if (std::isinf(x)) return 0;
  const auto power = [&](double k) { return std::exp(-s * std::log1p((x - unit + k) / unit)); };
  double sum = 0, k = 0;
  // The Euler-Maclaurin series converges if x is not much smaller than s, so the first terms are added
  // directly. They fall at least as fast as exp(-k s / (10 + s)), and their sum may already be complete.
  for (; x + k < 10 + s; ++k) {
    const double term = power(k);
    sum += term;
    if (term <= sum * 1e-18) return sum;
  }
  // The remaining terms: an integral, and its correction terms.
  const double last = power(k);
  x += k;
  sum += last * (x / (s - 1)) + last / 2;
  double factor = s * last / x;  // s (s + 1) .. (s + 2k) x^(-s - 2k - 1) / (2k + 2)!, without the 2
  for (int i = 0; i < 10; ++i) {
    const double m = 2 * i;
    const double term = factor * kBernoulli[i] / 2;
    sum += term;
    if (std::fabs(term) < std::fabs(sum) * 1e-17) break;
    factor *= (s + m + 1) / x * ((s + m + 2) / x) / ((m + 3) * (m + 4));
  }
  return sum;
}

/// Returns n! x^-(n + 1) times a factor of moderate size. The factorial and the power may both be out of
/// range.
double factorial_over_power(int64_t order, double x, double factor) {
  const double n = static_cast<double>(order);
  if (order <= 170) {
    const double half = std::pow(x, -(n + 1) / 2);
    return half * (std::tgamma(n + 1) * factor) * half;
  }
  // Stirling's formula. The result is in range only if x is near n / e, where the logarithms cancel.
  const double log = n * (std::log(n / x) - 1) + 0.5 * std::log(2 * std::numbers::pi * n) - std::log(x) +
                     (1. / 12 - (1. / 360 - 1. / (1260 * n * n)) / (n * n)) / n;
  return std::exp(log) * factor;
}

}  // namespace

double polygamma(int64_t order, double x) {
  if (order == 0 || std::isnan(x)) return std::isnan(x) ? x : digamma(x);
  const bool odd = order % 2 == 1;
  if (x == -kInfinity || (x <= 0 && x == std::floor(x))) return odd && x != -kInfinity ? kInfinity : kNan;
  const double s = static_cast<double>(order) + 1;
  if (x > 0) {
    if (std::isinf(x)) return odd ? 0.0 : -0.0;
    const double size = factorial_over_power(order, x, hurwitz_zeta(s, x, x));
    return odd ? size : -size;
  }
  // The sum over the terms below 0, reversed, is the difference of two such sums. All three are computed in
  // units of the largest term.
  const double above = x - std::floor(x), up = std::ceil(x) - x;  // distances to the integers on both sides
  const double unit = std::min(above, up);
  const double right = hurwitz_zeta(s, above, unit), left = hurwitz_zeta(s, up, unit);
  const double beyond = hurwitz_zeta(s, 1 - x, unit);
  // For even orders, halfway between integers, the first two cancel and only the third remains.
  const double sum = odd ? right + (left - beyond) : (right - left) + beyond;
  const double size = sum == 0 ? sum : factorial_over_power(order, unit, sum);
  return odd ? size : -size;
}

void polygamma(const Tensor& out, const Tensor& in, int64_t order) {
  MX_CHECK(out.shape == in.shape && is_floating(out.dtype), InvalidArgument,
           "[polygamma] expected a floating-point result of shape ", in.shape, ", got ", out.dtype, " ",
           out.shape);
  MX_CHECK(order >= 0, InvalidArgument, "[polygamma] expected an order of 0 or more, got ", order);
  const LoopPlan<2> plan({&out, &in});
  // An element costs as much as dozens of additions.
  const auto body = [&](const int64_t* at, int64_t n) {
    constexpr int64_t kRun = 256;
    double buffer[kRun];
    const int64_t to = plan.strides[0][0], from = plan.strides[1][0];
    for (int64_t done = 0; done < n; done += kRun) {
      const int64_t here = std::min(kRun, n - done);
      load_run(buffer, in.data, in.dtype, at[1] + done * from, from, here);
      for (int64_t i = 0; i < here; ++i) buffer[i] = polygamma(order, buffer[i]);
      store_run(out.data, out.dtype, at[0] + done * to, to, buffer, here);
    }
  };
  parallel_runs<2>(plan, body, kLoopGrain / 32);
}

}  // namespace mx::kernels
