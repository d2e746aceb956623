// ProcessMark: tells whether the code runs in the process that made an object, or in a child that it forked.
// Internal.
//
// A forked child has a copy of every object of its parent, but not the parent's threads. Two things can go
// wrong there. An object that shares memory or connections with the parent, as a communicator does, would
// disturb the parent. And a mutex that another thread held at the fork stays locked in the child for ever. So
// such objects have a mark, and their destructors do nothing in a child.
//
// Thread-safety: any thread. is_here() is one load, so it may be asked in every call.
#pragma once

#include <cstdint>

namespace mx {

class ProcessMark {
 public:
  /// Marks the process that runs this.
  ProcessMark() : forks_(forks()) {}
  bool is_here() const { return forks_ == forks(); }

 private:
  /// Returns how many forks lie between the program's start and this process.
  static uint64_t forks();

  uint64_t forks_;
};

}  // namespace mx
