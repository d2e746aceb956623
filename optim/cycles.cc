#include "optim/cycles.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "optim/detail/option_checks.h"
#include "optim/detail/warmup.h"

namespace mx::optim {

using detail::Problems;

namespace {

/// Returns a value between `from` and `to`; `done` is a fraction from 0 to 1.
double between(double from, double to, double done, bool linear) {
  return linear ? from + (to - from) * done : to + (from - to) * (1 + std::cos(std::numbers::pi * done)) / 2;
}

double fraction(int64_t part, int64_t whole) {
  return static_cast<double>(part) / static_cast<double>(whole);
}

const char* checked_cycle(const OneCycleLROptions& options, std::source_location where) {
  Problems problems("OneCycleLR");
  detail::expect_at_least_0(problems, "max_lr", options.max_lr);
  problems.expect(options.steps >= 2, "expected steps of at least 2, got ", options.steps);
  if (!(options.pct_start >= 0 && options.pct_start <= (options.three_phase ? 0.5 : 1)))
    problems.add("expected pct_start from 0 to ", options.three_phase ? "0.5 with three_phase" : "1",
                 ", got ", options.pct_start);
  for (const double factor : {options.div_factor, options.final_div_factor})
    if (!(factor > 0 && std::isfinite(factor)))
      problems.add("expected div_factor and final_div_factor above 0, got ", factor);
  problems.raise(where);
  return "OneCycleLR";
}

const char* checked_cycle(const CyclicLROptions& options, std::source_location where) {
  Problems problems("CyclicLR");
  detail::expect_at_least_0(problems, "max_lr", options.max_lr);
  detail::expect_at_least_0(problems, "gamma", options.gamma);
  problems.expect(options.step_size_up >= 1 && options.step_size_down >= 0,
                  "expected step_size_up of at least 1 and step_size_down of at least 0, got ",
                  options.step_size_up, " and ", options.step_size_down);
  if (options.mode != "triangular" && options.mode != "triangular2" && options.mode != "exp_range")
    problems.add("expected the mode triangular, triangular2 or exp_range, got '", options.mode, "'");
  detail::check_warmup(problems, options.warmup, options.warmup_start);
  problems.raise(where);
  return "CyclicLR";
}

const char* checked_cycle(const CosineRestartsLROptions& options, std::source_location where) {
  Problems problems("CosineRestartsLR");
  problems.expect(options.t_0 >= 1 && options.t_mult >= 1, "expected t_0 and t_mult of at least 1, got ",
                  options.t_0, " and ", options.t_mult);
  detail::expect_at_least_0(problems, "min_lr", options.min_lr);
  detail::check_warmup(problems, options.warmup, options.warmup_start);
  problems.raise(where);
  return "CosineRestartsLR";
}

/// Makes the parts. Each sets the rates of the optimiser when it is made, so these are restored.
std::vector<std::unique_ptr<Schedule>> made_parts(const char* name, Optimizer& optimizer,
                                                  const std::vector<SchedulePart>& parts,
                                                  std::source_location where) {
  MX_CHECK(!parts.empty(), InvalidArgument, "[", name, "] expected one part or more, got none",
           mx::detail::called_at(where));
  std::vector<std::unique_ptr<Schedule>> made;
  for (const SchedulePart& part : parts) {
    std::vector<double> rates;
    for (size_t g = 0; g < optimizer.groups(); ++g) rates.push_back(optimizer.learning_rate(g));
    MX_CHECK(part != nullptr, InvalidArgument, "[", name, "] expected parts, got an empty function",
             mx::detail::called_at(where));
    made.push_back(part(optimizer, where));
    MX_CHECK(made.back() != nullptr, InvalidArgument, "[", name,
             "] expected a function that makes a schedule, got an empty pointer",
             mx::detail::called_at(where));
    for (size_t g = 0; g < rates.size(); ++g) optimizer.set_learning_rate(rates[g], g);
  }
  return made;
}

}  // namespace

OneCycleLR::OneCycleLR(Optimizer& optimizer, const OneCycleLROptions& options, std::source_location where)
    : Schedule(checked_cycle(options, where), optimizer, 0, 0), options_(options) {
  apply();
}
double OneCycleLR::rate(double base, int64_t step) const {
  const OneCycleLROptions& o = options_;
  const double top = o.max_lr > 0 ? o.max_lr : base, first = top / o.div_factor;
  const double last = first / o.final_div_factor, end = static_cast<double>(o.steps - 1);
  const double t = std::min(static_cast<double>(step), end);
  const double rise = std::max(0.0, o.pct_start * static_cast<double>(o.steps) - 1);
  const double fall = o.three_phase ? std::max(0.0, 2 * o.pct_start * static_cast<double>(o.steps) - 2) : end;
  const auto phase = [&](double from_rate, double to_rate, double from, double to) {
    return between(from_rate, to_rate, to > from ? (t - from) / (to - from) : 1, o.linear);
  };
  if (t <= rise) return phase(first, top, 0, rise);
  if (t <= fall) return phase(top, o.three_phase ? first : last, rise, fall);
  return phase(first, last, fall, end);
}

CyclicLR::CyclicLR(Optimizer& optimizer, const CyclicLROptions& options, std::source_location where)
    : Schedule(checked_cycle(options, where), optimizer, options.warmup, options.warmup_start),
      options_(options) {
  apply();
}
double CyclicLR::rate(double base, int64_t step) const {
  const int64_t up = options_.step_size_up;
  const int64_t down = options_.step_size_down > 0 ? int64_t{options_.step_size_down} : up;
  const int64_t cycle = step / (up + down), place = step % (up + down);
  double height = place <= up ? fraction(place, up) : fraction(up + down - place, down);
  if (options_.mode == "triangular2") height *= std::exp2(-static_cast<double>(cycle));
  if (options_.mode == "exp_range") height *= std::pow(options_.gamma, static_cast<double>(step));
  return std::max(0.0, base + (options_.max_lr - base) * height);
}

CosineRestartsLR::CosineRestartsLR(Optimizer& optimizer, const CosineRestartsLROptions& options,
                                   std::source_location where)
    : Schedule(checked_cycle(options, where), optimizer, options.warmup, options.warmup_start),
      options_(options) {
  apply();
}
double CosineRestartsLR::rate(double base, int64_t step) const {
  int64_t length = options_.t_0;
  if (options_.t_mult == 1) {
    step %= length;
  } else {
    while (step >= length) {
      step -= length;
      length = length > INT64_MAX / options_.t_mult ? INT64_MAX : length * options_.t_mult;
    }
  }
  return between(base, options_.min_lr, fraction(step, length), false);
}

LambdaLR::LambdaLR(Optimizer& optimizer, std::function<double(int64_t)> f, std::source_location where)
    : Schedule("LambdaLR", optimizer, 0, 0), f_(std::move(f)) {
  MX_CHECK(f_ != nullptr, InvalidArgument, "[LambdaLR] expected a function of the step, got an empty one",
           mx::detail::called_at(where));
  apply();
}
double LambdaLR::rate(double base, int64_t step) const { return base * f_(step); }

SequentialLR::SequentialLR(Optimizer& optimizer, const std::vector<SchedulePart>& parts,
                           const std::vector<int64_t>& milestones, std::source_location where)
    : Schedule("SequentialLR", optimizer, 0, 0),
      parts_(made_parts("SequentialLR", optimizer, parts, where)),
      milestones_(milestones) {
  const bool ascending =
      std::adjacent_find(milestones.begin(), milestones.end(), std::greater_equal<>()) == milestones.end();
  MX_CHECK(milestones.size() + 1 == parts.size() && ascending && (milestones.empty() || milestones[0] > 0),
           InvalidArgument, "[SequentialLR] expected one milestone less than the ", parts.size(),
           " parts, ascending and above 0, got ", to_string(AttrValue(milestones)),
           mx::detail::called_at(where));
  apply();
}
double SequentialLR::rate(double base, int64_t step) const {
  const auto k = static_cast<size_t>(std::upper_bound(milestones_.begin(), milestones_.end(), step) -
                                     milestones_.begin());
  return rate_of(*parts_[k], base, k == 0 ? step : step - milestones_[k - 1]);
}

ChainedLR::ChainedLR(Optimizer& optimizer, const std::vector<SchedulePart>& parts, std::source_location where)
    : Schedule("ChainedLR", optimizer, 0, 0), parts_(made_parts("ChainedLR", optimizer, parts, where)) {
  apply();
}
double ChainedLR::rate(double base, int64_t step) const {
  for (const auto& part : parts_) base = rate_of(*part, base, step);
  return base;
}

}  // namespace mx::optim
