// Layers that only look at an array in another way.
#pragma once

#include <cstdint>
#include <string>

#include "nn/module.h"

namespace mx::nn {

/// What comes in.
class Identity : public ModuleOf<Identity> {
 public:
  NDArray forward(const NDArray& x) override { return x; }
};

/// The dimensions from `first` to `last` as one, the others stay; negative ones count from the end. Throws
/// InvalidArgument when they are not there or out of order.
class Flatten : public ModuleOf<Flatten> {
 public:
  explicit Flatten(int64_t first = 1, int64_t last = -1) : first_(first), last_(last) {}
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

 private:
  int64_t first_, last_;
};

/// The dimension `axis` as several of those sizes, of which one may be -1.
class Unflatten : public ModuleOf<Unflatten> {
 public:
  Unflatten(int64_t axis, const Shape& sizes) : axis_(axis), sizes_(sizes) {}
  NDArray forward(const NDArray& x) override;
  std::string extra() const override;

 private:
  int64_t axis_;
  Shape sizes_;
};

}  // namespace mx::nn
