#include "optim/adaptive.h"

#include "optim/detail/option_checks.h"

namespace mx::optim {

using detail::check_common;
using detail::expect_at_least_0;
using detail::expect_fraction;
using detail::gradient_rule;
using detail::Problems;

void AdagradMethod::check(Problems& problems, const Options& options) {
  check_common(problems, options);
  expect_at_least_0(problems, "lr_decay", options.lr_decay);
  expect_at_least_0(problems, "initial_accumulator_value", options.initial_accumulator_value);
  expect_at_least_0(problems, "eps", options.eps);
}

RuleState AdagradMethod::state(const Options& options) {
  return {{"sum"}, true, {options.initial_accumulator_value}};
}

void AdagradMethod::update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                           const Options& options, double weight_decay, std::source_location where) {
  rule_update(arrays, state, numbers, AdagradRule{options.lr_decay, options.eps},
              gradient_rule(options, weight_decay), where);
}

void AdadeltaMethod::check(Problems& problems, const Options& options) {
  check_common(problems, options);
  expect_fraction(problems, "rho", options.rho);
  expect_at_least_0(problems, "eps", options.eps);
}

RuleState AdadeltaMethod::state(const Options&) { return {{"square_avg", "acc_delta"}, true}; }

void AdadeltaMethod::update(const UpdateArrays& arrays, const UpdateState& state,
                            const UpdateNumbers& numbers, const Options& options, double weight_decay,
                            std::source_location where) {
  rule_update(arrays, state, numbers, AdadeltaRule{options.rho, options.eps},
              gradient_rule(options, weight_decay), where);
}

void RMSpropMethod::check(Problems& problems, const Options& options) {
  check_common(problems, options);
  expect_fraction(problems, "alpha", options.alpha);
  expect_at_least_0(problems, "eps", options.eps);
  expect_at_least_0(problems, "momentum", options.momentum);
}

RuleState RMSpropMethod::state(const Options& options) {
  RuleState state{{"square_avg"}, true};
  if (options.momentum != 0) state.names.push_back("momentum_buffer");
  if (options.centered) state.names.push_back("grad_avg");
  return state;
}

void RMSpropMethod::update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                           const Options& options, double weight_decay, std::source_location where) {
  rule_update(arrays, state, numbers,
              RmspropRule{options.alpha, options.eps, options.momentum, options.centered},
              gradient_rule(options, weight_decay), where);
}

void AdamaxMethod::check(Problems& problems, const Options& options) {
  check_common(problems, options);
  expect_fraction(problems, "beta1", options.beta1);
  expect_fraction(problems, "beta2", options.beta2);
  expect_at_least_0(problems, "eps", options.eps);
}

RuleState AdamaxMethod::state(const Options&) { return {{"exp_avg", "exp_inf"}, true}; }

void AdamaxMethod::update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                          const Options& options, double weight_decay, std::source_location where) {
  rule_update(arrays, state, numbers, AdamaxRule{options.beta1, options.beta2, options.eps},
              gradient_rule(options, weight_decay), where);
}

void NAdamMethod::check(Problems& problems, const Options& options) {
  check_common(problems, options);
  expect_fraction(problems, "beta1", options.beta1);
  expect_fraction(problems, "beta2", options.beta2);
  expect_at_least_0(problems, "eps", options.eps);
  expect_at_least_0(problems, "momentum_decay", options.momentum_decay);
}

RuleState NAdamMethod::state(const Options&) { return {{"exp_avg", "exp_avg_sq"}, true}; }

void NAdamMethod::update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                         const Options& options, double weight_decay, std::source_location where) {
  rule_update(arrays, state, numbers,
              NadamRule{options.beta1, options.beta2, options.eps, options.momentum_decay,
                        options.decoupled_weight_decay},
              gradient_rule(options, weight_decay), where);
}

void RAdamMethod::check(Problems& problems, const Options& options) {
  check_common(problems, options);
  expect_fraction(problems, "beta1", options.beta1);
  expect_fraction(problems, "beta2", options.beta2);
  expect_at_least_0(problems, "eps", options.eps);
}

RuleState RAdamMethod::state(const Options&) { return {{"exp_avg", "exp_avg_sq"}, true}; }

void RAdamMethod::update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                         const Options& options, double weight_decay, std::source_location where) {
  rule_update(arrays, state, numbers,
              RadamRule{options.beta1, options.beta2, options.eps, options.decoupled_weight_decay},
              gradient_rule(options, weight_decay), where);
}

void FtrlMethod::check(Problems& problems, const Options& options) {
  check_common(problems, options);
  expect_at_least_0(problems, "lambda1", options.lambda1);
  expect_at_least_0(problems, "beta", options.beta);
}

RuleState FtrlMethod::state(const Options&) { return {{"z", "n"}}; }

void FtrlMethod::update(const UpdateArrays& arrays, const UpdateState& state, const UpdateNumbers& numbers,
                        const Options& options, double weight_decay, std::source_location where) {
  rule_update(arrays, state, numbers, FtrlRule{options.lambda1, options.beta},
              gradient_rule(options, weight_decay), where);
}

}  // namespace mx::optim
