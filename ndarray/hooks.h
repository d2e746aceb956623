// Hooks: the table of functions of layers above that NDArray's members call. Those layers fill it if they are
// linked.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <vector>

#include "ndarray/ndarray.h"

namespace mx::detail {

/// An advanced index after its basic part has been applied. For each dimension of `base` there is an array of
/// integers, or an empty handle for the whole dimension. If a mask is the only array, it is kept as a mask.
struct AdvancedIndex {
  NDArray base;
  std::vector<NDArray> indices;
  NDArray mask;            ///< bools, for the dimensions from `mask_axis` on; empty: `indices` is used
  int mask_axis = 0;       ///< the first of these dimensions
  int64_t mask_count = 0;  ///< the number of true elements
  /// An ellipsis that stands for no dimension is between two arrays, so they do not count as adjacent.
  bool separated = false;
  std::source_location where;  ///< of the call that indexed

  /// Calls f(array) for every array whose values the index reads.
  template <class F>
  void each_array(const F& f) const {
    f(base);
    if (mask.defined()) f(mask);
    for (const NDArray& array : indices)
      if (array.defined()) f(array);
  }
};

struct MemberFunctions;

struct Hooks {
  /// Returns base[indices], with the result's dimensions in NumPy's order.
  NDArray (*gather)(const AdvancedIndex&) = nullptr;
  /// Performs base[indices] = values; values broadcast.
  void (*put)(const AdvancedIndex&, const NDArray& values, std::source_location where) = nullptr;
  /// Returns the number of true elements of a bool array. Waits.
  int64_t (*count)(const NDArray& mask, std::source_location where) = nullptr;
  /// Returns the positions of a bool array's true elements, as one i64 array per dimension. Waits.
  std::vector<NDArray> (*nonzero)(const NDArray& mask, std::source_location where) = nullptr;
  /// Returns the shape of gather's result, without reading values.
  Shape (*gather_shape)(const AdvancedIndex&) = nullptr;

  /// x.sum() and so on (ndarray/members.h).
  const MemberFunctions* members = nullptr;

  // Automatic differentiation. The following four are called only if the thread records and one of the arrays
  // is recorded.

  /// Called after `view` was made as a view of `base`, which may be a view itself.
  void (*viewed)(ArrayImpl& base, ArrayImpl& view) = nullptr;
  /// Called after `copy` was made with the elements of `source`, possibly of another type or on another
  /// device.
  void (*copied)(ArrayImpl& source, ArrayImpl& copy) = nullptr;
  /// Called before target[...] = source. Throws if the assignment is not allowed.
  void (*assigning)(ArrayImpl& target, const char* op) = nullptr;
  /// Called after the assignment. `source` is null if a number was assigned.
  void (*assigned)(ArrayImpl& target, ArrayImpl* source) = nullptr;

  // NDArray's members of the same names.
  void (*requires_grad)(const NDArray& array, GradReq req) = nullptr;
  bool (*is_leaf)(const NDArray& array) = nullptr;
  NDArray (*grad)(const NDArray& array) = nullptr;
  void (*set_grad)(const NDArray& array, const NDArray& grad) = nullptr;
  void (*retain_grad)(const NDArray& array) = nullptr;
  HookHandle (*add_hook)(const NDArray& array, GradHook hook) = nullptr;
  void (*backward)(const NDArray& array, const NDArray& head, const BackwardOptions& options) = nullptr;
};

Hooks& hooks();

}  // namespace mx::detail
