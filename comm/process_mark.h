// ProcessMark: tells whether the code runs in the process that made an object, or in a child that it forked.
// Internal.
//
// A forked child has a copy of every communicator of its parent, but not their threads, and it shares their
// memory and connections. If it used or ended them, it would disturb the parent. So such objects have a mark,
// and do nothing to what they share when it is not theirs.
//
// Thread-safety: any thread. is_here() is one load, so it may be asked in every call.
#pragma once

#include <cstdint>

namespace mx::comm {

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

}  // namespace mx::comm
