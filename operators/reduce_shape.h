// What the inference of reductions shares. Internal.
#pragma once

#include "operators/operator.h"

namespace mx::detail {

/// The shape of a reduction of input 0. `choosing`: there must be an element to choose from. Throws
/// InvalidArgument when there is none, and for axes that the input does not have.
Shape reduced_shape(InferContext& c, const Shape& axes, bool keep_dims, bool choosing);

}  // namespace mx::detail
