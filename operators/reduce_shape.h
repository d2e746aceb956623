// Shape inference shared by the reductions. Internal.
#pragma once

#include "operators/operator.h"

namespace mx::detail {

/// Returns the shape of a reduction of input 0. Throws InvalidArgument for axes that the input does not have.
/// If `choosing`, also throws it for a reduction of no elements.
Shape reduced_shape(InferContext& c, const Shape& axes, bool keep_dims, bool choosing);

}  // namespace mx::detail
