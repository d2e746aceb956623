// What layers above add to NDArray's members. One table, filled by those layers when they are linked.
#pragma once

#include <cstdint>
#include <memory>
#include <source_location>
#include <vector>

#include "ndarray/detail/fixed_list.h"
#include "ndarray/ndarray.h"

namespace mx::detail {

/// An advanced index, after the basic part has been applied: for each dimension of `base` an array of
/// integers, or an empty handle for "all of it". A mask that is the only array stays a mask.
struct AdvancedIndex {
  NDArray base;
  FixedList<NDArray, kMaxRank> indices;
  NDArray mask;            ///< of bools, over the dimensions from `mask_axis` on; empty: see `indices`
  int mask_axis = 0;       ///< the first of these dimensions
  int64_t mask_count = 0;  ///< how many elements of the mask are true
  /// An ellipsis for no dimension stands between two arrays: then they do not count as neighbours.
  bool separated = false;
  std::source_location where;  ///< of the call that indexed

  /// Calls f(array) for every array whose values the index looks at.
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
  /// base[indices], as NumPy orders the result's dimensions.
  NDArray (*gather)(const AdvancedIndex&) = nullptr;
  /// base[indices] = values; values broadcast.
  void (*put)(const AdvancedIndex&, const NDArray& values, std::source_location where) = nullptr;
  /// How many elements of a bool array are true; waits.
  int64_t (*count)(const NDArray& mask, std::source_location where) = nullptr;
  /// The positions of a bool array's true elements, an i64 array per dimension; waits.
  std::vector<NDArray> (*nonzero)(const NDArray& mask, std::source_location where) = nullptr;
  /// The shape of gather's result, found without looking at values.
  Shape (*gather_shape)(const AdvancedIndex&) = nullptr;

  /// x.sum() and so on (ndarray/members.h).
  const MemberFunctions* members = nullptr;

  // Automatic differentiation. All are called only where the thread records and an array is recorded.

  /// `view` looks at `base`'s memory, or at that of what `base` is a view of.
  void (*viewed)(ArrayImpl& base, ArrayImpl& view) = nullptr;
  /// `copy` has the elements of `source`, perhaps of another type or on another device.
  void (*copied)(ArrayImpl& source, ArrayImpl& copy) = nullptr;
  /// target[...] = source is going to happen (source null: a number). Throws when that is not possible.
  void (*assigning)(ArrayImpl& target, const char* op) = nullptr;
  /// It has happened.
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
