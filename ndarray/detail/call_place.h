// CallPlace: the line of the program on whose behalf a thread calls operators. Internal.
//
// A backward pass calls operators in functions of the library. Without a CallPlace, their errors would name a
// line of the library, which says nothing to the author of the program.
#pragma once

#include <source_location>

namespace mx::detail {

/// A scope, on one thread: launch() and the operators that are called in it name `where`. The innermost scope
/// counts.
class CallPlace {
 public:
  explicit CallPlace(const std::source_location& where) : where_(where), outer_(current) { current = this; }
  ~CallPlace() { current = outer_; }
  CallPlace(const CallPlace&) = delete;
  CallPlace& operator=(const CallPlace&) = delete;

  /// Returns the line of the innermost scope of this thread, or `otherwise` if the thread is in none.
  static std::source_location of(const std::source_location& otherwise) {
    return current == nullptr ? otherwise : current->where_;
  }

 private:
  static inline thread_local constinit const CallPlace* current = nullptr;

  const std::source_location where_;
  const CallPlace* const outer_;
};

}  // namespace mx::detail
