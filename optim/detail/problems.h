// Problems: collects all that is wrong with the arguments of one call into one message. Internal.
#pragma once

#include <cmath>
#include <source_location>
#include <string>

#include "engine/base/check.h"
#include "ndarray/detail/place.h"
#include "ndarray/ndarray.h"

namespace mx::optim::detail {

class Problems {
 public:
  /// Messages begin with `op`, which must outlive this object.
  explicit Problems(const char* op) : op_(op) {}

  /// Adds one problem, the concatenation of `parts`: "expected ..., got ...". Call it only if there is a
  /// problem, since making the parts takes time.
  template <class... Parts>
  void add(const Parts&... parts) {
    text_ += mx::detail::concat(text_.empty() ? "" : "; ", parts...);
  }
  /// Adds a problem unless `holds`. The parts are always made, so use it only for checks that run once per
  /// call.
  template <class... Parts>
  void expect(bool holds, const Parts&... parts) {
    if (!holds) add(parts...);
  }

  bool none() const { return text_.empty(); }
  /// Throws InvalidArgument if there are problems.
  void raise(std::source_location where) const {
    MX_CHECK(none(), InvalidArgument, "[", op_, "] ", text_, mx::detail::called_at(where));
  }

 private:
  const char* op_;
  std::string text_;
};

/// Returns true if the value is finite and at least 0; false for NaN.
inline bool at_least_0(double value) { return value >= 0 && std::isfinite(value); }
/// Returns what a message about a number that must be finite adds to "of at least 0" for one that is too
/// large.
inline const char* and_finite(double value) { return std::isinf(value) && value > 0 ? " and finite" : ""; }

/// Returns "f32 (2, 3) on cpu(0)"; "nothing" for an empty handle.
inline std::string describe(const NDArray& array) {
  return array.defined() ? mx::detail::concat(array.dtype(), ' ', array.shape(), " on ", array.context())
                         : "nothing";
}

}  // namespace mx::optim::detail
