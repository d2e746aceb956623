#include "nn/metric/regression.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/kernels/strided_loop.h"
#include "ndarray/launch.h"
#include "nn/metric/inputs.h"

namespace mx::metric {
namespace {

using mx::detail::ArrayImpl;

// Runs on one thread, in row-major order, so sums do not depend on threads.
void run_pairs(const KernelArgs& args) {
  const Tensor &x = args.in[0], &y = args.in[1];
  const kernels::LoopPlan<2> plan({&x, &y});
  auto* const sums = args.out[0].as<double>();
  double part[8] = {};
  kernels::for_each_run<2>(plan, 0, plan.numel, [&](const int64_t* at, int64_t n) {
    for (int64_t i = 0; i < n; ++i) {
      const double a = x.as<const double>()[at[0] + i * plan.strides[0][0]];
      const double b = y.as<const double>()[at[1] + i * plan.strides[1][0]];
      const double terms[8] = {1, std::fabs(a - b), (a - b) * (a - b), a, b, a * a, b * b, a * b};
      for (int k = 0; k < 8; ++k) part[k] += terms[k];
    }
  });
  for (int k = 0; k < 8; ++k) sums[k] += part[k];
}
const Kernel kPairs = {"pair_metric", run_pairs, nullptr, 1024};

double mean_of(double sum, double n) { return n == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / n; }

}  // namespace

PairMetric::PairMetric(const char* name) : name_(name), sums_(zeros({8}, f64)) {}

void PairMetric::update(const NDArray& predictions, const NDArray& targets, std::source_location where) try {
  MX_CHECK(predictions.defined() && targets.defined() && predictions.shape() == targets.shape() &&
               predictions.dtype() != bool_ && targets.dtype() != bool_,
           InvalidArgument, "[", name_, "] expected predictions and targets of one shape, got ",
           describe(predictions), " and ", describe(targets));
  if (predictions.numel() == 0) return;
  const NDArray x = input_of(predictions, f64, name_, "predictions", where);
  const NDArray y = input_of(targets, f64, name_, "targets", where);
  ArrayImpl* const in[] = {&x.impl(), &y.impl()};
  ArrayImpl* const out[] = {&sums_.impl()};
  launch({.kernel = &kPairs,
          .inputs = in,
          .outputs = out,
          .partial_outputs = true,  // the kernel adds to their old values
          .work = x.numel(),
          .where = where});
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

void PairMetric::reset() { sums_.fill_(0); }

PairMetric::Sums PairMetric::totals() const {
  const std::vector<double> s = sums_.to_vector<double>();
  return {s[0], s[1], s[2], s[3], s[4], s[5], s[6], s[7]};
}

double MAE::value() const {
  const Sums s = totals();
  return mean_of(s.absolute, s.n);
}

double MSE::value() const {
  const Sums s = totals();
  return mean_of(s.squared, s.n);
}

double RMSE::value() const {
  const Sums s = totals();
  return std::sqrt(mean_of(s.squared, s.n));
}

double Pearson::value() const {
  const Sums s = totals();
  const double covariance = s.n * s.xy - s.x * s.y;
  const double x = s.n * s.xx - s.x * s.x, y = s.n * s.yy - s.y * s.y;
  if (!(x > 0 && y > 0)) return std::numeric_limits<double>::quiet_NaN();
  return std::clamp(covariance / (std::sqrt(x) * std::sqrt(y)), -1.0, 1.0);
}

}  // namespace mx::metric
