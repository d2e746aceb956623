// Differences, diagonals, windows, and more ways to split, join and rotate arrays, with NumPy's names.
// Functions marked "view" share memory with their argument. All throw InvalidArgument for axes and shapes
// that do not fit; axes may be negative.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <span>
#include <vector>

#include "operators/operator.h"

namespace mx {

/// Returns x[i + 1] - x[i] along the axis, `n` times, as numpy.diff. For bool, x[i + 1] != x[i]. Integers
/// wrap. `prepend` and `append` are first joined to x along the axis.
NDArray diff(const Arg& x, IntArg n = 1, IntArg axis = -1, const NDArray& prepend = {},
             const NDArray& append = {});

/// For a vector: returns the matrix with the vector on diagonal k and 0 elsewhere. For a matrix: returns a
/// copy of diagonal k. k is positive above the main diagonal. x.diagonal() returns views, for any rank.
NDArray diag(const Arg& x, IntArg k = 0);

/// View. All windows of `window` elements along an axis, as a new last dimension; the size of the axis
/// becomes `size - window + 1`. As numpy.lib.stride_tricks.sliding_window_view. Windows overlap, so
/// writing to them throws InvalidArgument.
NDArray sliding_window(const NDArray& x, int64_t window, IntArg axis = -1,
                       std::source_location where = std::source_location::current());
template <std::same_as<bool> B>
NDArray sliding_window(const NDArray& x, B window, IntArg axis = -1) = delete;
/// View. Windows over several axes, with one new dimension for each; empty `axes`: all of them.
NDArray sliding_window(const NDArray& x, const Shape& window, const Shape& axes = {},
                       std::source_location where = std::source_location::current());

/// Views: the entries along an axis, as torch.unbind.
std::vector<NDArray> unbind(const NDArray& x, IntArg axis = 0,
                            std::source_location where = std::source_location::current());
/// Splits into `parts` pieces, as numpy.array_split. If the size is not a multiple of `parts`, the first
/// pieces are one larger. The pieces are copies, made by one operation, as with split().
std::vector<NDArray> array_split(const Arg& x, IntArg parts, IntArg axis = 0);

/// Joins vectors as the columns of a matrix, and matrices along the second axis.
NDArray column_stack(std::span<const NDArray> arrays,
                     std::source_location where = std::source_location::current());
NDArray column_stack(std::initializer_list<NDArray> arrays,
                     std::source_location where = std::source_location::current());

/// View. Rotated by `k` times 90 degrees, from the first of the two axes towards the second.
NDArray rot90(const NDArray& x, IntArg k = 1, const Shape& axes = {0, 1},
              std::source_location where = std::source_location::current());

/// Returns `count` numbers from base^start to base^stop, both included, in a geometric sequence.
NDArray logspace(double start, double stop, IntArg count, double base = 10, DType dtype = f32,
                 Context context = cpu(), std::source_location where = std::source_location::current());
/// Returns `count` numbers from start to stop, both included and exact, in a geometric sequence. Throws
/// InvalidArgument if an end is 0 or not finite, or if the ends have different signs.
NDArray geomspace(double start, double stop, IntArg count, DType dtype = f32, Context context = cpu(),
                  std::source_location where = std::source_location::current());

}  // namespace mx
