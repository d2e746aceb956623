// Operators that move elements: joining, splitting, padding, repeating.
//
// Functions marked "view" share memory with their argument; the others return new arrays. Different types are
// promoted as in PyTorch. All throw InvalidArgument for axes, sizes and shapes that do not fit; axes may be
// negative.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <source_location>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "ndarray/axes.h"
#include "operators/operator.h"

namespace mx {

/// Joins arrays along an existing axis; the other sizes must be equal.
NDArray concat(std::span<const NDArray> arrays, IntArg axis = 0,
               std::source_location where = std::source_location::current());
/// Joins arrays along a new axis; the shapes must be equal.
NDArray stack(std::span<const NDArray> arrays, IntArg axis = 0,
              std::source_location where = std::source_location::current());
/// As in NumPy. hstack joins along the second axis, vectors along the first. vstack joins along the first
/// axis; vectors become rows.
NDArray hstack(std::span<const NDArray> arrays, std::source_location where = std::source_location::current());
NDArray vstack(std::span<const NDArray> arrays, std::source_location where = std::source_location::current());

// Lists in braces: concat({a, b}, 1).
NDArray concat(std::initializer_list<NDArray> arrays, IntArg axis = 0,
               std::source_location where = std::source_location::current());
NDArray stack(std::initializer_list<NDArray> arrays, IntArg axis = 0,
              std::source_location where = std::source_location::current());
NDArray hstack(std::initializer_list<NDArray> arrays,
               std::source_location where = std::source_location::current());
NDArray vstack(std::initializer_list<NDArray> arrays,
               std::source_location where = std::source_location::current());

// Two arrays: concat(a, b), concat(a, b, 1).
NDArray concat(const NDArray& a, const NDArray& b, IntArg axis = 0,
               std::source_location where = std::source_location::current());
NDArray stack(const NDArray& a, const NDArray& b, IntArg axis = 0,
              std::source_location where = std::source_location::current());
NDArray hstack(const NDArray& a, const NDArray& b,
               std::source_location where = std::source_location::current());
NDArray vstack(const NDArray& a, const NDArray& b,
               std::source_location where = std::source_location::current());

/// Splits into `parts` equal pieces; the size must be a multiple of `parts`. The pieces are copies, made by
/// one operation; slice() returns views.
std::vector<NDArray> split(const Arg& x, int64_t parts, IntArg axis = 0);
template <std::same_as<bool> B>
std::vector<NDArray> split(const Arg& x, B parts, IntArg axis = 0) = delete;
/// Splits into pieces of these sizes, which must add up to the size of the axis.
std::vector<NDArray> split(const Arg& x, const std::vector<int64_t>& sizes, IntArg axis = 0);
/// Splits into at most `parts` pieces of equal size; the last one may be smaller. As torch.chunk.
std::vector<NDArray> chunk(const Arg& x, IntArg parts, IntArg axis = 0);

/// The source of the padding, as in numpy.pad. constant: a value; edge: the outermost element; reflect:
/// mirrored without the outermost element; symmetric: mirrored with it; wrap: elements from the other side.
/// All modes but `constant` need a dimension that is not empty.
enum class PadMode : uint8_t { constant, edge, reflect, symmetric, wrap };
std::string to_string(PadMode mode);
/// Pads x. `widths`: the numbers of elements before and after, for each dimension: {before0, after0, before1,
/// ..}.
NDArray pad(const Arg& x, const std::vector<int64_t>& widths, PadMode mode = PadMode::constant,
            Scalar value = 0);
/// The same widths as one pair for each dimension: pad(x, {{1, 1}, {0, 2}}).
NDArray pad(const Arg& x, std::initializer_list<std::pair<IntArg, IntArg>> widths,
            PadMode mode = PadMode::constant, Scalar value = 0);

/// View. Reverses the order along these axes; empty `axes`: all.
NDArray flip(const NDArray& x, const Axes& axes = {},
             std::source_location where = std::source_location::current());
/// Repeats x along each dimension, as numpy.tile. The shorter of shape and `repeats` is extended with 1 in
/// front.
NDArray tile(const Arg& x, const Shape& repeats);
/// tile(x, 2). A template so that a list of one number means the function for lists.
template <detail::IntegerNumber T>
NDArray tile(const Arg& x, T repeats) {
  return tile(x, Shape{repeats});
}
/// Repeats each entry along the axis `count` times, as numpy.repeat.
NDArray repeat(const Arg& x, int64_t count, IntArg axis = 0);
template <std::same_as<bool> B>
NDArray repeat(const Arg& x, B count, IntArg axis = 0) = delete;
/// Repeats entry i counts[i] times.
NDArray repeat(const Arg& x, const std::vector<int64_t>& counts, IntArg axis = 0);
/// The same with the counts in an array; waits for it.
NDArray repeat(const Arg& x, const NDArray& counts, IntArg axis = 0);
/// Shifts elements cyclically towards the end, as numpy.roll. Empty `axes`: x is shifted as if it were flat.
NDArray roll(const Arg& x, const Shape& shifts, const Shape& axes = {});
/// roll(x, 1), roll(x, 1, 0).
template <detail::IntegerNumber T>
NDArray roll(const Arg& x, T shift, const Axes& axes = {}) {
  return roll(x, Shape{shift}, axes);
}

/// tril: the part of each matrix (the last two dimensions) on and below diagonal `k`, with 0 elsewhere. triu:
/// the part on and above it. k is positive above the main diagonal.
NDArray tril(const Arg& x, IntArg k = 0);
NDArray triu(const Arg& x, IntArg k = 0);

/// Views of the arrays, all broadcast to one shape. Do not write to them.
std::vector<NDArray> broadcast_arrays(std::span<const NDArray> arrays,
                                      std::source_location where = std::source_location::current());
/// Views: the coordinates of a grid made of vectors, as numpy.meshgrid. "ij" keeps the order of the
/// dimensions, "xy" swaps the first two. Do not write to them.
std::vector<NDArray> meshgrid(std::span<const NDArray> vectors, const std::string& indexing = "xy",
                              std::source_location where = std::source_location::current());

// Members as functions.
NDArray reshape(const NDArray& x, const Shape& shape,
                std::source_location where = std::source_location::current());
NDArray flatten(const NDArray& x, std::source_location where = std::source_location::current());
NDArray transpose(const NDArray& x, const Shape& axes = {},
                  std::source_location where = std::source_location::current());
NDArray swap_axes(const NDArray& x, IntArg a, IntArg b,
                  std::source_location where = std::source_location::current());
NDArray move_axis(const NDArray& x, IntArg from, IntArg to,
                  std::source_location where = std::source_location::current());
NDArray squeeze(const NDArray& x);
NDArray squeeze(const NDArray& x, IntArg axis, std::source_location where = std::source_location::current());
NDArray expand_dims(const NDArray& x, IntArg axis,
                    std::source_location where = std::source_location::current());
NDArray broadcast_to(const NDArray& x, const Shape& shape,
                     std::source_location where = std::source_location::current());

}  // namespace mx
