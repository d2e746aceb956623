// Shortage: for how long a process has had no file descriptor for a connection. Internal.
#pragma once

#include <cstdint>

#include "comm/deadline.h"

namespace mx::comm {

/// Not thread-safe.
class Shortage {
 public:
  /// How long a process waits for a descriptor before it gives up.
  static constexpr int64_t kLimitMs = 2000;

  /// Notes whether a descriptor is missing now. Returns whether one has been missing for the whole limit.
  bool lasts(bool missing) {
    if (missing && !missing_) until_ = Deadline::after_ms(kLimitMs);
    missing_ = missing;
    return missing && until_.passed();
  }

 private:
  bool missing_ = false;
  Deadline until_ = Deadline::after_ms(0);
};

}  // namespace mx::comm
