#include "optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "optim/detail/dictionary.h"
#include "optim/detail/problems.h"
#include "optim/detail/warmup.h"

namespace mx::optim {

using detail::at_least_0;
using detail::Problems;

namespace {

void check_gamma(Problems& problems, double gamma) {
  if (!at_least_0(gamma)) problems.add("expected gamma of at least 0, got ", gamma);
}

void check_steps(Problems& problems, int64_t steps, int64_t warmup) {
  if (steps <= std::max<int64_t>(warmup, 0))
    problems.add("expected steps above 0 and above the warmup of ", warmup, ", got ", steps);
}

void check(Problems& problems, const StepLROptions& options) {
  problems.expect(options.step_size > 0, "expected step_size of at least 1, got ", options.step_size);
  check_gamma(problems, options.gamma);
}

void check(Problems& problems, const MultiStepLROptions& options) {
  const std::vector<int64_t>& all = options.milestones;
  if (!std::is_sorted(all.begin(), all.end()) || (!all.empty() && all[0] < 0))
    problems.add("expected rising milestones of at least 0, got ", to_string(AttrValue(all)));
  check_gamma(problems, options.gamma);
}

void check(Problems& problems, const ExponentialLROptions& options) { check_gamma(problems, options.gamma); }

void check(Problems& problems, const CosineLROptions& options) {
  check_steps(problems, options.steps, options.warmup);
}

void check(Problems& problems, const PolyLROptions& options) {
  check_steps(problems, options.steps, options.warmup);
  problems.expect(options.power > 0 && std::isfinite(options.power), "expected power above 0, got ",
                  options.power);
}

/// Returns `name`. Throws InvalidArgument, listing all options that are out of range.
template <class Options>
const char* checked(const char* name, const Options& options, std::source_location where) {
  Problems problems(name);
  check(problems, options);
  if (!at_least_0(options.min_lr)) problems.add("expected min_lr of at least 0, got ", options.min_lr);
  detail::check_warmup(problems, options.warmup, options.warmup_start);
  problems.raise(where);
  return name;
}

/// Returns base * factor, but not less than min_lr. If the base rate is already lower, not less than that.
double limited(double min_lr, double base, double factor) {
  return std::max(std::min(min_lr, base), base * factor);
}

/// Returns the fraction of a schedule of `all` steps that remains: 1 to 0.
double ahead(int64_t step, int64_t all) {
  return static_cast<double>(all - std::min(step, all)) / static_cast<double>(all);
}

}  // namespace

Schedule::Schedule(const char* name, Optimizer& optimizer, int64_t warmup, double warmup_start)
    : name_(name), optimizer_(optimizer), warmup_(warmup), warmup_start_(warmup_start) {}

double Schedule::rate_at(int64_t step, size_t group) const {
  Problems problems(name_);
  problems.expect(step >= 0, "expected a step of at least 0, got ", step);
  problems.expect(group < base_rates_.size(), "expected a group below ", base_rates_.size(), ", got ", group);
  problems.raise(std::source_location::current());
  return rate_of(*this, base_rates_[group], step);
}

double Schedule::rate_of(const Schedule& schedule, double base, int64_t step) {
  if (step < schedule.warmup_)
    return base * detail::warmup_factor(step, schedule.warmup_, schedule.warmup_start_);
  return schedule.rate(base, step - schedule.warmup_);
}

void Schedule::join() {
  for (size_t g = base_rates_.size(); g < optimizer_.groups(); ++g)
    base_rates_.push_back(optimizer_.learning_rate(g));
}

void Schedule::apply() {
  join();
  std::vector<double> rates;
  for (size_t g = 0; g < base_rates_.size(); ++g) rates.push_back(rate_at(step_, g));
  for (size_t g = 0; g < rates.size(); ++g) optimizer_.set_learning_rate(rates[g], g);
}

void Schedule::step() {
  ++step_;
  try {
    apply();
  } catch (...) {
    --step_;  // a step whose rates do not exist is not counted
    throw;
  }
}

NamedArrays Schedule::state_dict() const {
  return {{"step", scalar_array(step_, i64)}, {"base_rates", array(base_rates_)}};
}

void Schedule::load_state_dict(const NamedArrays& state, std::source_location where) {
  join();
  const std::vector<NDArray> loaded = detail::matched(name_, state_dict(), state, where);
  const auto step = loaded[0].item<int64_t>();
  const auto rates = loaded[1].to_vector<double>();
  Problems problems(name_);
  problems.expect(step >= 0 && step < INT64_MAX, "expected a step from 0 to below ", INT64_MAX, ", got ",
                  step);
  for (const double base : rates)
    if (!at_least_0(base)) problems.add("expected base rates of at least 0, got ", base);
  problems.raise(where);
  step_ = step;
  base_rates_ = rates;
  apply();
}

StepLR::StepLR(Optimizer& optimizer, const StepLROptions& options, std::source_location where)
    : Schedule(checked("StepLR", options, where), optimizer, options.warmup, options.warmup_start),
      options_(options) {
  apply();
}
double StepLR::rate(double base, int64_t step) const {
  const auto times = static_cast<double>(step / options_.step_size);
  return limited(options_.min_lr, base, std::pow(options_.gamma, times));
}

MultiStepLR::MultiStepLR(Optimizer& optimizer, const MultiStepLROptions& options, std::source_location where)
    : Schedule(checked("MultiStepLR", options, where), optimizer, options.warmup, options.warmup_start),
      options_(options) {
  apply();
}
double MultiStepLR::rate(double base, int64_t step) const {
  const std::vector<int64_t>& all = options_.milestones;
  const auto passed = std::upper_bound(all.begin(), all.end(), step) - all.begin();
  return limited(options_.min_lr, base, std::pow(options_.gamma, static_cast<double>(passed)));
}

ExponentialLR::ExponentialLR(Optimizer& optimizer, const ExponentialLROptions& options,
                             std::source_location where)
    : Schedule(checked("ExponentialLR", options, where), optimizer, options.warmup, options.warmup_start),
      options_(options) {
  apply();
}
double ExponentialLR::rate(double base, int64_t step) const {
  return limited(options_.min_lr, base, std::pow(options_.gamma, static_cast<double>(step)));
}

CosineLR::CosineLR(Optimizer& optimizer, const CosineLROptions& options, std::source_location where)
    : Schedule(checked("CosineLR", options, where), optimizer, options.warmup, options.warmup_start),
      options_(options) {
  apply();
}
double CosineLR::rate(double base, int64_t step) const {
  const double done = 1 - ahead(step, options_.steps - options_.warmup);
  return options_.min_lr + (base - options_.min_lr) * (1 + std::cos(std::numbers::pi * done)) / 2;
}

PolyLR::PolyLR(Optimizer& optimizer, const PolyLROptions& options, std::source_location where)
    : Schedule(checked("PolyLR", options, where), optimizer, options.warmup, options.warmup_start),
      options_(options) {
  apply();
}
double PolyLR::rate(double base, int64_t step) const {
  const double left = ahead(step, options_.steps - options_.warmup);
  return options_.min_lr + (base - options_.min_lr) * std::pow(left, options_.power);
}

}  // namespace mx::optim
