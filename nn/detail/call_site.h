// CallSite: the line of the program that called the innermost module of this thread. Internal.
//
// A layer calls operators, and an error of an operator names the line of that call, inside the library:
//
//   net(x);                       // train.cc:40, what the user wants to see
//     Sequential::forward         // containers.cc: passes the call site on to its parts
//       Linear::forward           // linear.cc: calls linear(at_call(x), ...), so the error names train.cc:40
//
// So layers of the library pass their array through at_call(). This also holds for errors that appear later,
// when the operation runs or in a backward pass: the line is stored with the operation either way. A module
// of the program does not do this, since its own lines are what its author wants to see.
#pragma once

#include <source_location>
#include <utility>

#include "ndarray/ndarray.h"

namespace mx::nn::detail {

/// A scope: one call of a module on this thread.
class CallSite {
 public:
  /// Line 0 means that the line is not known; then the line of the enclosing call is taken.
  explicit CallSite(const std::source_location& where)
      : where_(where.line() != 0 || current == nullptr ? where : current->where_), outer_(current) {
    current = this;
  }
  ~CallSite() { current = outer_; }
  CallSite(const CallSite&) = delete;
  CallSite& operator=(const CallSite&) = delete;

  const std::source_location& where() const { return where_; }
  /// True if a container has passed on the site of its own call.
  bool passed_on() const {
    return outer_ != nullptr && outer_->where_.line() == where_.line() &&
           outer_->where_.column() == where_.column() && outer_->where_.file_name() == where_.file_name();
  }
  /// True if this thread is in the call of a module.
  static bool active() { return current != nullptr; }
  /// The site of the innermost call on this thread; `otherwise` if the thread is in no call, or if the line
  /// of the call is not known.
  static std::source_location innermost(std::source_location otherwise) {
    return current != nullptr && current->where_.line() != 0 ? current->where_ : otherwise;
  }

 private:
  static inline thread_local constinit const CallSite* current = nullptr;

  const std::source_location where_;
  const CallSite* const outer_;
};

/// The site of the innermost call, for containers and layers.
inline std::source_location call_site(std::source_location here = std::source_location::current()) {
  return CallSite::innermost(here);
}
/// `x` as the argument of an operator that is called on behalf of the innermost call.
inline Arg at_call(const NDArray& x, std::source_location here = std::source_location::current()) {
  return Arg(x, CallSite::innermost(here));
}

}  // namespace mx::nn::detail
