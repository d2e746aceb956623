// The warm-up of schedules. Internal.
#pragma once

#include <cstdint>

#include "optim/detail/problems.h"

namespace mx::optim::detail {

inline void check_warmup(Problems& problems, int64_t warmup, double start) {
  if (warmup < 0) problems.add("expected warmup of at least 0 steps, got ", warmup);
  if (!(start >= 0 && start <= 1)) problems.add("expected warmup_start from 0 to 1, got ", start);
}

/// Returns the factor of the base rate in a step. Precondition: step < warmup.
inline double warmup_factor(int64_t step, int64_t warmup, double start) {
  return start + (1 - start) * static_cast<double>(step) / static_cast<double>(warmup);
}

}  // namespace mx::optim::detail
