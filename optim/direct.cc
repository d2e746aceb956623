#include "optim/direct.h"

#include <cmath>

#include "optim/detail/option_checks.h"

namespace mx::optim {

using detail::check_common;
using detail::expect_at_least_0;
using detail::expect_fraction;
using detail::gradient_rule;
using detail::Problems;

void SignumMethod::check(Problems& problems, const Options& options) {
  check_common(problems, options);
  expect_fraction(problems, "momentum", options.momentum);
  expect_at_least_0(problems, "wd_lh", options.wd_lh);
}

RuleState SignumMethod::state(const Options& options) {
  return options.momentum != 0 ? RuleState{{"momentum_buffer"}} : RuleState{};
}

void SignumMethod::update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                          const Options& options, double weight_decay, std::source_location where) {
  rule_update(arrays, state, numbers, SignumRule{options.momentum, options.wd_lh},
              gradient_rule(options, weight_decay), where);
}

void RpropMethod::check(Problems& problems, const Options& options) {
  check_common(problems, options);
  if (!(options.eta_minus > 0 && options.eta_minus < 1 && options.eta_plus > 1 &&
        std::isfinite(options.eta_plus)))
    problems.add("expected eta_minus between 0 and 1, and eta_plus above 1, got ", options.eta_minus, " and ",
                 options.eta_plus);
  expect_at_least_0(problems, "step_min", options.step_min);
  expect_at_least_0(problems, "step_max", options.step_max);
  if (options.step_min > options.step_max)
    problems.add("expected step_min of at most step_max, ", options.step_max, ", got ", options.step_min);
}

RuleState RpropMethod::state(const Options& options) {
  return {{"prev", "step_size"}, true, {0, options.lr}};
}

void RpropMethod::update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                         const Options& options, double weight_decay, std::source_location where) {
  rule_update(arrays, state, numbers,
              RpropRule{options.eta_minus, options.eta_plus, options.step_min, options.step_max},
              gradient_rule(options, weight_decay), where);
}

void ASGDMethod::check(Problems& problems, const Options& options) {
  check_common(problems, options);
  expect_at_least_0(problems, "lambd", options.lambd);
  expect_at_least_0(problems, "alpha", options.alpha);
  expect_at_least_0(problems, "t0", options.t0);
}

RuleState ASGDMethod::state(const Options&) { return {{"ax"}, true}; }

void ASGDMethod::update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                        const Options& options, double weight_decay, std::source_location where) {
  rule_update(arrays, state, numbers, AsgdRule{options.lambd, options.alpha, options.t0},
              gradient_rule(options, weight_decay), where);
}

void LARSMethod::check(Problems& problems, const Options& options) {
  check_common(problems, options);
  expect_at_least_0(problems, "momentum", options.momentum);
  expect_at_least_0(problems, "eta", options.eta);
  expect_at_least_0(problems, "eps", options.eps);
}

RuleState LARSMethod::state(const Options& options) {
  return options.momentum != 0 ? RuleState{{"momentum_buffer"}} : RuleState{};
}

void LARSMethod::update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                        const Options& options, double weight_decay, std::source_location where) {
  rule_update(arrays, state, numbers, LarsRule{options.momentum, options.eta, options.eps, options.adapt},
              gradient_rule(options, weight_decay), where);
}

void LAMBMethod::check(Problems& problems, const Options& options) {
  check_common(problems, options);
  expect_fraction(problems, "beta1", options.beta1);
  expect_fraction(problems, "beta2", options.beta2);
  expect_at_least_0(problems, "eps", options.eps);
  expect_at_least_0(problems, "lower_bound", options.lower_bound);
  expect_at_least_0(problems, "upper_bound", options.upper_bound);
  if (options.upper_bound > 0 && options.lower_bound > options.upper_bound)
    problems.add("expected lower_bound of at most upper_bound, ", options.upper_bound, ", got ",
                 options.lower_bound);
}

RuleState LAMBMethod::state(const Options&) { return {{"exp_avg", "exp_avg_sq"}, true}; }

void LAMBMethod::update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                        const Options& options, double weight_decay, std::source_location where) {
  rule_update(arrays, state, numbers,
              LambRule{options.beta1, options.beta2, options.eps, options.lower_bound, options.upper_bound,
                       options.bias_correction},
              gradient_rule(options, weight_decay), where);
}

}  // namespace mx::optim
