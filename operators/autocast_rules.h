// The list of all operators of this source tree by AutocastRule. Internal.
#pragma once

#include <span>

#include "operators/autocast.h"

namespace mx::detail {

struct AutocastRules {
  AutocastRule rule;
  /// Names of operators, with a space between two. The form of an operator with a number
  /// (Operator::number_form) has the rule of the operator.
  const char* names;
};

/// Returns the list; a test shows that each operator is in it once.
std::span<const AutocastRules> autocast_rules();

}  // namespace mx::detail
