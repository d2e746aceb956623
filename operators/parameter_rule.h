// ParameterRule: how a Parameter is computed from others, such as a normalised weight. Internal.
//
// array() of a Parameter with a rule computes a new array at each call, recorded as any computation is. So
// the value always follows the parameters of the rule, and gradients flow to them. The calling thread keeps
// the array until its next call for the same Parameter, because array() returns a reference.
#pragma once

#include <memory>

#include "operators/parameter.h"

namespace mx::detail {

class ParameterRule {
 public:
  virtual ~ParameterRule() = default;
  virtual NDArray compute() const = 0;
  /// Called inside of a CloneScope: returns a rule of the parameters' clones.
  virtual std::shared_ptr<const ParameterRule> clone() const = 0;
};

/// Gives the slot of the Parameter a rule, and drops its array.
void set_rule(const Parameter& parameter, std::shared_ptr<const ParameterRule> rule);
/// Makes the slot an ordinary one again, which holds this array.
void remove_rule(const Parameter& parameter, const NDArray& value);

}  // namespace mx::detail
