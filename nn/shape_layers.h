// Layers that only change the shape of an array.
//
// Thread-safety: that of Module (nn/module.h).
#pragma once

#include <cstdint>
#include <string>

#include "nn/module.h"

namespace mx::nn {

/// Returns its input.
class Identity : public ModuleOf<Identity> {
 public:
  NDArray forward(const NDArray& x) override { return x; }
};

/// Merges the dimensions from `first` to `last` into one; negative numbers count from the end. A call throws
/// InvalidArgument if the input does not have these dimensions, or if they are out of order.
class Flatten : public ModuleOf<Flatten> {
 public:
  explicit Flatten(IntArg first = 1, IntArg last = -1) : first_(first), last_(last) {}
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

 private:
  int64_t first_, last_;
};

/// Splits the dimension `axis` into several of these sizes; one of them may be -1.
class Unflatten : public ModuleOf<Unflatten> {
 public:
  Unflatten(IntArg axis, const Shape& sizes) : axis_(axis), sizes_(sizes) {}
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

 private:
  int64_t axis_;
  Shape sizes_;
};

}  // namespace mx::nn
