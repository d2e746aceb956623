// Operators that read and write at indices, and choose by masks.
//
// Including this header (or operators/operators.h) makes a[indices], a[{colon, indices}], a[mask] and
// assignments to them work as in NumPy: see NDArray::operator[].
//
// Indices are integers; negative ones count from the end. What is wrong with shapes and types is thrown at
// the call; an index out of range is found when the operation runs, so the error comes out of waiting for the
// result (InvalidArgument; it names the first such index, its position, the axis and the axis's size), and
// nothing has been written then. Where several indices name one element, `set` leaves the last in row-major
// order, and the others combine in that order: results do not depend on threads.
//
// Functions that end in `_` change their first argument; the others return a new array. Values are converted
// to the array's type. nonzero, argwhere and masked_select wait for their mask, because the size of what they
// return depends on it.
#pragma once

#include <cstdint>
#include <source_location>
#include <span>
#include <string>
#include <vector>

#include "operators/kernels/index.h"
#include "operators/operator.h"

namespace mx {

using kernels::IndexMode;
using kernels::Scatter;

/// x[.., indices, ..] along `axis`, whose place the dimensions of `indices` take; as numpy.take.
NDArray take(const Arg& x, const NDArray& indices, int64_t axis = 0, IndexMode mode = IndexMode::raise);
/// y[.., j, ..] = x[.., indices[.., j, ..], ..], as torch.gather: `indices` has x's rank and is nowhere
/// larger but along `axis`.
NDArray gather(const Arg& x, const NDArray& indices, int64_t axis);
/// The same, where x and `indices` broadcast but along `axis`; as numpy.take_along_axis.
NDArray take_along_axis(const Arg& x, const NDArray& indices, int64_t axis);

/// x with x[.., indices[.., j, ..], ..] set to updates[.., j, ..] or combined with it, as torch.scatter;
/// `updates` broadcasts to the shape of `indices`.
NDArray scatter(const Arg& x, const NDArray& indices, const NDArray& updates, int64_t axis,
                Scatter how = Scatter::set);
NDArray& scatter_(NDArray& x, const NDArray& indices, const NDArray& updates, int64_t axis,
                  Scatter how = Scatter::set, std::source_location where = std::source_location::current());

/// x with updates[.., j, ..] combined into x[.., indices[j], ..]; `indices` (n,), `updates` broadcasts to x's
/// shape with n along `axis`.
NDArray index_update(const Arg& x, const NDArray& indices, const NDArray& updates, int64_t axis, Scatter how);
NDArray index_add(const Arg& x, const NDArray& indices, const NDArray& updates, int64_t axis = 0);
NDArray index_copy(const Arg& x, const NDArray& indices, const NDArray& updates, int64_t axis = 0);
NDArray& index_add_(NDArray& x, const NDArray& indices, const NDArray& updates, int64_t axis = 0,
                    std::source_location where = std::source_location::current());
NDArray& index_copy_(NDArray& x, const NDArray& indices, const NDArray& updates, int64_t axis = 0,
                     std::source_location where = std::source_location::current());

/// (.., classes): 1 where the last index is indices[..], else 0. Indices must not be negative.
NDArray one_hot(const Arg& indices, int64_t classes, DType dtype = f32);
/// table[indices[..], :] of a table (rows, width).
NDArray embedding(const Arg& table, const NDArray& indices);
/// The gradient of embedding with respect to a table of that many rows: the sum, for each row, of `head`
/// where the row was taken. Row `skip_row` (padding; -1: none) gets 0.
NDArray embedding_gradient(const Arg& indices, const NDArray& head, int64_t rows, int64_t skip_row = -1);

/// x[..] with arrays of indices at `axes` (ascending) and ":" elsewhere: what x[{..}] is made of. The
/// dimensions of the indices, broadcast together, come where the axes are if those are neighbours, else
/// first; `position` >= 0 puts them before that dimension of the rest.
NDArray gather_nd(const Arg& x, std::span<const NDArray> indices, const Shape& axes, int64_t position = -1);
/// x with values written there; `values` broadcasts to the shape of gather_nd's result.
NDArray put_nd(const Arg& x, std::span<const NDArray> indices, const Shape& axes, const NDArray& values,
               Scatter how = Scatter::set, int64_t position = -1);
NDArray& put_nd_(NDArray& x, std::span<const NDArray> indices, const Shape& axes, const NDArray& values,
                 Scatter how = Scatter::set, int64_t position = -1,
                 std::source_location where = std::source_location::current());

/// The elements of x where the mask is true, in row-major order, (n,). Broadcasts both. Waits for the mask.
NDArray masked_select(const Arg& x, const NDArray& mask);
/// x with the elements where the mask is true replaced by those of `source`, taken one after the other; the
/// mask broadcasts to x. More elements than are used may be there; too few fail the operation.
NDArray masked_scatter(const Arg& x, const NDArray& mask, const NDArray& source);
NDArray& masked_scatter_(NDArray& x, const NDArray& mask, const NDArray& source,
                         std::source_location where = std::source_location::current());

/// The indices of the elements that are not 0, in row-major order: i64 (n, rank). Waits.
NDArray argwhere(const Arg& x);
/// The same as one array (n,) per dimension, as numpy.nonzero. Waits.
std::vector<NDArray> nonzero(const Arg& x);

std::string to_string(IndexMode mode);
std::string to_string(Scatter how);

namespace detail {

/// From an operator's attribute. Throw InvalidArgument, naming `op`, for another text.
IndexMode index_mode(const std::string& text, const char* op);
Scatter scatter_how(const std::string& text, const char* op);

/// Indices as the kernels take them: i32 or i64. Throws InvalidArgument for bool and floating-point numbers.
NDArray as_indices(const NDArray& indices, const char* op,
                   std::source_location where = std::source_location::current());
/// For infer functions: input i must be i32 or i64.
void check_index_type(const InferContext& c, size_t i);

/// Fills the hooks for indexing with arrays (ndarray/hooks.h). May be called again.
bool install_indexing();
/// Here, so that a program that includes this has them, from a static library too.
inline const bool kIndexingInstalled = install_indexing();

}  // namespace detail
}  // namespace mx
