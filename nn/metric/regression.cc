#include "nn/metric/regression.h"

#include <algorithm>
#include <cmath>
#include <cstring>
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

// Calls f(x, y) for each pair, on one thread and in row-major order, so sums do not depend on threads.
template <class F>
void each_pair(const KernelArgs& args, const F& f) {
  const Tensor &x = args.in[0], &y = args.in[1];
  const kernels::LoopPlan<2> plan({&x, &y});
  kernels::for_each_run<2>(plan, 0, plan.numel, [&](const int64_t* at, int64_t n) {
    for (int64_t i = 0; i < n; ++i)
      f(x.as<const double>()[at[0] + i * plan.strides[0][0]],
        y.as<const double>()[at[1] + i * plan.strides[1][0]]);
  });
}

// Adds to the number of pairs and to the sums of |x - y| and (x - y)^2.
void run_errors(const KernelArgs& args) {
  double n = 0, absolute = 0, squared = 0;
  each_pair(args, [&](double a, double b) {
    n += 1;
    absolute += std::fabs(a - b);
    squared += (a - b) * (a - b);
  });
  auto* const sums = args.out[0].as<double>();
  sums[0] += n;
  sums[1] += absolute;
  sums[2] += squared;
}
const Kernel kErrors = {"pair_errors", run_errors, nullptr, 1024};

// The number of pairs, both means, and the sums of the squares and products of the differences from the
// means. If all x are equal, each difference is exactly 0, so xx and xy are, too.
struct Moments {
  double n, x, y, xx, yy, xy;

  // Joins the moments of more pairs, by the formula of Chan, Golub and LeVeque (1983). With one pair, whose
  // sums are 0, it is Welford's.
  void add(const Moments& more) {
    if (more.n == 0) return;
    const double all = n + more.n, share = more.n / all, dx = more.x - x, dy = more.y - y;
    const double weight = n * share;
    xx += more.xx + dx * dx * weight;
    yy += more.yy + dy * dy * weight;
    xy += more.xy + dx * dy * weight;
    x = n == 0 ? more.x : x + dx * share;
    y = n == 0 ? more.y : y + dy * share;
    n = all;
  }
};
static_assert(sizeof(Moments) == 6 * sizeof(double));

void run_moments(const KernelArgs& args) {
  Moments all;
  std::memcpy(&all, args.out[0].as<double>(), sizeof(all));
  each_pair(args, [&](double a, double b) { all.add({1, a, b, 0, 0, 0}); });
  std::memcpy(args.out[0].as<double>(), &all, sizeof(all));
}
const Kernel kMoments = {"pair_moments", run_moments, nullptr, 1024};

// Joins the moments in the rows of the input.
void run_join(const KernelArgs& args) {
  const Tensor& rows = args.in[0];
  Moments all{};
  for (int64_t i = 0; i < rows.shape[0]; ++i) {
    Moments row;
    std::memcpy(&row, rows.as<const double>() + 6 * i, sizeof(row));
    all.add(row);
  }
  std::memcpy(args.out[0].as<double>(), &all, sizeof(all));
}
const Kernel kJoin = {"join_moments", run_join, nullptr, 1024};

double mean_of(double sum, double n) { return n == 0 ? std::numeric_limits<double>::quiet_NaN() : sum / n; }

}  // namespace

PairMetric::PairMetric(const char* name, Sums kind)
    : name_(name), kind_(kind), sums_(zeros({kind == Sums::errors ? 3 : 6}, f64)) {}

void PairMetric::update(const NDArray& predictions, const NDArray& targets, std::source_location where) try {
  MX_CHECK(predictions.defined() && targets.defined() && predictions.shape() == targets.shape(),
           InvalidArgument, "[", name_, "] expected predictions and targets of one shape, got ",
           describe(predictions), " and ", describe(targets));
  MX_CHECK(predictions.dtype() != bool_ && targets.dtype() != bool_, InvalidArgument, "[", name_,
           "] expected predictions and targets of a type of numbers, got ", describe(predictions), " and ",
           describe(targets));
  if (predictions.numel() == 0) return;
  const NDArray x = input_of(predictions, f64, name_, "predictions", where);
  const NDArray y = input_of(targets, f64, name_, "targets", where);
  ArrayImpl* const in[] = {&x.impl(), &y.impl()};
  ArrayImpl* const out[] = {&sums_.impl()};
  launch({.kernel = kind_ == Sums::errors ? &kErrors : &kMoments,
          .inputs = in,
          .outputs = out,
          .partial_outputs = true,  // the kernel adds to their old values
          .work = x.numel(),
          .where = where});
} catch (const Error&) {
  mx::detail::rethrow_at(where);
}

void PairMetric::reset() { sums_.fill_(0); }

double MAE::value() const {
  const std::vector<double> s = totals();
  return mean_of(s[1], s[0]);
}

double MSE::value() const {
  const std::vector<double> s = totals();
  return mean_of(s[2], s[0]);
}

double RMSE::value() const {
  const std::vector<double> s = totals();
  return std::sqrt(mean_of(s[2], s[0]));
}

double Pearson::value() const {
  const std::vector<double> s = totals();
  const double xx = s[3], yy = s[4], xy = s[5];
  if (!(xx > 0 && yy > 0)) return std::numeric_limits<double>::quiet_NaN();
  return std::clamp(xy / (std::sqrt(xx) * std::sqrt(yy)), -1.0, 1.0);
}

void Pearson::join(const std::vector<NDArray>& rows, std::source_location where) const {
  const NDArray own = sums()[0];
  ArrayImpl* const in[] = {&rows[0].impl()};
  ArrayImpl* const out[] = {&own.impl()};
  launch({.kernel = &kJoin, .inputs = in, .outputs = out, .work = rows[0].numel(), .where = where});
}

}  // namespace mx::metric
