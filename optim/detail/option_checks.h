// Checks of options that several optimisers have. Internal.
#pragma once

#include "optim/detail/problems.h"
#include "optim/update.h"

namespace mx::optim::detail {

inline void expect_at_least_0(Problems& problems, const char* name, double value) {
  if (!at_least_0(value))
    problems.add("expected ", name, " of at least 0", and_finite(value), ", got ", value);
}

/// Reports a value that is not from 0 to below 1.
inline void expect_fraction(Problems& problems, const char* name, double value) {
  if (!(value >= 0 && value < 1)) problems.add("expected ", name, " from 0 to below 1, got ", value);
}

/// Checks the options that all rules have.
template <class Options>
void check_common(Problems& problems, const Options& options) {
  expect_at_least_0(problems, "lr", options.lr);
  if constexpr (requires { options.weight_decay; })
    expect_at_least_0(problems, "weight_decay", options.weight_decay);
  expect_at_least_0(problems, "clip", options.clip);
  expect_at_least_0(problems, "max_norm", options.max_norm);
}

/// Returns what precedes the rule.
template <class Options>
GradientRule gradient_rule(const Options& options, double weight_decay) {
  return {.weight_decay = weight_decay, .maximize = options.maximize, .clip = options.clip};
}

}  // namespace mx::optim::detail
