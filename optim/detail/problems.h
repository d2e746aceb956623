// Problems: what is wrong with the arguments of one call, all of it in one message. Internal.
#pragma once

#include <cmath>
#include <source_location>
#include <string>

#include "engine/base/check.h"
#include "ndarray/ndarray.h"

namespace mx::optim::detail {

class Problems {
 public:
  /// `op` is what messages begin with; it must outlive this.
  explicit Problems(const char* op) : op_(op) {}

  /// `parts` make one problem: "expected ..., got ...". They cost time: not to be made where there is none.
  template <class... Parts>
  void add(const Parts&... parts) {
    text_ += mx::detail::concat(text_.empty() ? "" : "; ", parts...);
  }
  /// The same unless it holds, for what is checked once.
  template <class... Parts>
  void expect(bool holds, const Parts&... parts) {
    if (!holds) add(parts...);
  }

  bool none() const { return text_.empty(); }
  /// Throws InvalidArgument if there are problems.
  void raise(std::source_location where) const {
    MX_CHECK(none(), InvalidArgument, "[", op_, "] ", text_, " (called at ", where.file_name(), ':',
             where.line(), ')');
  }

 private:
  const char* op_;
  std::string text_;
};

/// False for NaN and infinity as well.
inline bool at_least_0(double value) { return value >= 0 && std::isfinite(value); }

/// "f32 (2, 3) on cpu(0)".
inline std::string describe(const NDArray& array) {
  return array.defined() ? mx::detail::concat(array.dtype(), ' ', array.shape(), " on ", array.context())
                         : "nothing";
}

}  // namespace mx::optim::detail
