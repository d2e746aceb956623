// An operation body that runs for a given time without giving up the processor.
#pragma once

#include <cstdint>

#include "engine/base/clock.h"

namespace mx::test {

inline void spin_for(double us) {
  const uint64_t begin = ticks();
  while (static_cast<double>(ticks() - begin) < us * ticks_per_us()) {
  }
}

}  // namespace mx::test
