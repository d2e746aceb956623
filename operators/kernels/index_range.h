// Vectorised range check of indices.
#pragma once

#include <cstdint>

namespace mx::kernels::detail {

/// Returns true if one of n indices is less than `lowest`, or `size` or more.
bool any_outside(const int32_t* indices, int64_t n, int64_t lowest, int64_t size);
bool any_outside(const int64_t* indices, int64_t n, int64_t lowest, int64_t size);

}  // namespace mx::kernels::detail
