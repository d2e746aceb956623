// Differences, diagonals, windows, and more ways to cut, join and turn arrays, with NumPy's names. Functions
// marked "view" share memory with their argument. All throw InvalidArgument for axes and shapes that do not
// fit; axes may be negative.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <span>
#include <vector>

#include "operators/operator.h"

namespace mx {

/// x[i + 1] - x[i] along the axis, `n` times; as numpy.diff: of bool "are they different?", integers wrap.
/// `prepend` and `append` are joined to x along the axis first.
NDArray diff(const Arg& x, int64_t n = 1, int64_t axis = -1, const NDArray& prepend = {},
             const NDArray& append = {});

/// Of a vector the matrix that has it on the diagonal k (above the main one is positive), with 0 elsewhere;
/// of a matrix that diagonal, a copy. (x.diagonal() gives views, of any rank.)
NDArray diag(const Arg& x, int64_t k = 0);

/// View. All windows of `window` elements along an axis, as a new last dimension: the axis is then of size
/// `size - window + 1`. As numpy.lib.stride_tricks.sliding_window_view; not for writing.
NDArray sliding_window(const NDArray& x, int64_t window, int64_t axis = -1);
/// View. Windows over several axes, one new dimension for each; no axes: all of them.
NDArray sliding_window(const NDArray& x, const Shape& window, const Shape& axes = {});

/// Views: the entries along an axis, as torch.unbind.
std::vector<NDArray> unbind(const NDArray& x, int64_t axis = 0);
/// `parts` pieces, of which the first are one larger where the size is no multiple; as numpy.array_split.
/// Copies, made by one operation, as split() gives.
std::vector<NDArray> array_split(const Arg& x, int64_t parts, int64_t axis = 0);

/// Vectors as the columns of a matrix; matrices beside each other.
NDArray column_stack(std::span<const NDArray> arrays,
                     std::source_location where = std::source_location::current());
NDArray column_stack(std::initializer_list<NDArray> arrays,
                     std::source_location where = std::source_location::current());

/// View. Turned by `k` times 90 degrees, from the first of the two axes towards the second.
NDArray rot90(const NDArray& x, int64_t k = 1, const Shape& axes = {0, 1});

/// `count` numbers from base^start to base^stop, both included, with equal ratios.
NDArray logspace(double start, double stop, int64_t count, double base = 10, DType dtype = f32,
                 Context context = cpu(), std::source_location where = std::source_location::current());
/// `count` numbers from start to stop, both included and exact, with equal ratios. Throws InvalidArgument for
/// ends that are 0, not finite, or of different signs.
NDArray geomspace(double start, double stop, int64_t count, DType dtype = f32, Context context = cpu(),
                  std::source_location where = std::source_location::current());

}  // namespace mx
