// Recurrent layers whose gradient is not wanted: they compute the products of their inputs a few steps at a
// time, and store nothing for a backward pass. Internal to recurrent.cc.
#pragma once

#include "operators/operator.h"

namespace mx::detail {

extern const Operator kRnnInference;
extern const Operator kLstmInference;
extern const Operator kGruInference;

}  // namespace mx::detail
