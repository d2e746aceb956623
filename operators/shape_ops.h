// Operators that move elements: joining, cutting, padding, repeating.
//
// Functions marked "view" share memory with their argument; the others return new arrays. Types that differ
// are promoted as in PyTorch. All throw InvalidArgument for axes, sizes and shapes that do not fit; axes may
// be negative.
#pragma once

#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "operators/operator.h"

namespace mx {

/// One behind the other along an axis that exists; the other sizes must be equal.
NDArray concat(std::span<const NDArray> arrays, IntArg axis = 0,
               std::source_location where = std::source_location::current());
/// One behind the other along a new axis; the shapes must be equal.
NDArray stack(std::span<const NDArray> arrays, IntArg axis = 0,
              std::source_location where = std::source_location::current());
/// As in NumPy: concat along the second axis, of vectors along the first; concat of at least matrices.
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

/// `parts` equal pieces; the size must be a multiple. Copies, made by one operation; slice() gives views.
std::vector<NDArray> split(const Arg& x, int64_t parts, IntArg axis = 0);
/// Pieces of those sizes, which must add up.
std::vector<NDArray> split(const Arg& x, const std::vector<int64_t>& sizes, IntArg axis = 0);
/// At most `parts` pieces of equal size, but for the last, which may be smaller; as torch.chunk.
std::vector<NDArray> chunk(const Arg& x, int64_t parts, IntArg axis = 0);

/// What stands beyond the edge. constant: a value; edge: the outermost element; reflect: mirrored without it;
/// symmetric: mirrored with it; wrap: from the other side. As numpy.pad; but for `constant` the dimension
/// must not be empty.
enum class PadMode : uint8_t { constant, edge, reflect, symmetric, wrap };
std::string to_string(PadMode mode);
/// `widths`: how much before and after, for each dimension: {before0, after0, before1, ..}.
NDArray pad(const Arg& x, const std::vector<int64_t>& widths, PadMode mode = PadMode::constant,
            Scalar value = 0);

/// View. In reverse along those axes; none given: all.
NDArray flip(const NDArray& x, const Shape& axes = {});
/// As often along each dimension as `repeats` says; the shorter of shape and repeats is filled up with 1 in
/// front; as numpy.tile.
NDArray tile(const Arg& x, const Shape& repeats);
/// Each entry along the axis that often, as numpy.repeat.
NDArray repeat(const Arg& x, int64_t count, IntArg axis = 0);
/// Entry i counts[i] times.
NDArray repeat(const Arg& x, const std::vector<int64_t>& counts, IntArg axis = 0);
/// The same with counts in an array, for which it waits.
NDArray repeat(const Arg& x, const NDArray& counts, IntArg axis = 0);
/// Shifted towards the end, what falls off comes in at the beginning; no axes: as if flat. As numpy.roll.
NDArray roll(const Arg& x, const Shape& shifts, const Shape& axes = {});

/// The part of each matrix (the last two dimensions) on and below the diagonal `k` (above is positive), with
/// 0 elsewhere; and on and above.
NDArray tril(const Arg& x, IntArg k = 0);
NDArray triu(const Arg& x, IntArg k = 0);

/// Views of one shape, that to which all broadcast. Not for writing.
std::vector<NDArray> broadcast_arrays(std::span<const NDArray> arrays);
/// Views: the coordinates of a grid made of vectors. With "xy" the first two dimensions change places; "ij"
/// keeps the order. As numpy.meshgrid. Not for writing.
std::vector<NDArray> meshgrid(std::span<const NDArray> vectors, const std::string& indexing = "xy");

// Members as functions.
NDArray reshape(const NDArray& x, const Shape& shape);
NDArray flatten(const NDArray& x);
NDArray transpose(const NDArray& x, const Shape& axes = {});
NDArray swap_axes(const NDArray& x, int64_t a, int64_t b);
NDArray move_axis(const NDArray& x, int64_t from, int64_t to);
NDArray squeeze(const NDArray& x);
NDArray squeeze(const NDArray& x, int64_t axis);
NDArray expand_dims(const NDArray& x, int64_t axis);
NDArray broadcast_to(const NDArray& x, const Shape& shape);

}  // namespace mx
