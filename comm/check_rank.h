// The check of a rank that a caller names. Internal.
#pragma once

#include "engine/base/check.h"

namespace mx::comm {

/// Throws InvalidArgument, naming the call, unless `rank` is one of a group of `size` ranks.
inline void check_rank(const char* call, int rank, int size) {
  MX_CHECK(rank >= 0 && rank < size, InvalidArgument, "[", call, "] expected a rank among 0..", size - 1,
           ", got ", rank);
}

}  // namespace mx::comm
