// What layers above add to NDArray's members. One table, filled by those layers when they are linked.
#pragma once

#include <memory>
#include <vector>

#include "ndarray/ndarray.h"

namespace mx::detail {

/// An advanced index, after the basic part has been applied: for each dimension of `base` an array of
/// integers, or an empty handle for "all of it".
struct AdvancedIndex {
  NDArray base;
  std::vector<NDArray> indices;
  /// An ellipsis for no dimension stands between two arrays: then they do not count as neighbours.
  bool separated = false;
};

struct Hooks {
  /// base[indices], as NumPy orders the result's dimensions.
  NDArray (*gather)(const AdvancedIndex&) = nullptr;
  /// base[indices] = values; values broadcast.
  void (*put)(const AdvancedIndex&, const NDArray& values) = nullptr;
  /// The positions of a bool array's true elements, an i64 array per dimension; waits.
  std::vector<NDArray> (*nonzero)(const NDArray& mask) = nullptr;
  /// The shape of gather's result, found without looking at values.
  Shape (*gather_shape)(const AdvancedIndex&) = nullptr;

  /// A view was made of an array that has flags (ArrayFlags).
  void (*view)(const NDArray& base, const NDArray& view) = nullptr;
  /// An array with flags is going to be changed in place by a copy.
  void (*copied)(const NDArray& target, const NDArray& source) = nullptr;
};

Hooks& hooks();

}  // namespace mx::detail
