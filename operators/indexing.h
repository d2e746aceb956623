// Operators that read and write at indices, and select by masks.
//
// Including this header (or operators/operators.h) makes a[indices], a[{colon, indices}], a[mask] and
// assignments to them work as in NumPy: see NDArray::operator[].
//
// Indices are integers; negative ones count from the end. The call throws if shapes or types are wrong. An
// index out of range is found when the operation runs: waiting for the result then throws InvalidArgument,
// which names the first such index, its position, the axis and the axis's size, and nothing has been written.
// If several indices refer to one element, `set` keeps the last value in row-major order, and the other modes
// combine the values in that order, so results do not depend on the number of threads.
//
// Functions that end in `_` change their first argument; the others return a new array. Values are converted
// to the array's type. nonzero, argwhere and masked_select wait for their mask, because the size of their
// result depends on it.
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

/// Returns x[.., indices, ..], as numpy.take. The dimensions of `indices` replace the dimension `axis`.
NDArray take(const Arg& x, const NDArray& indices, IntArg axis = 0, IndexMode mode = IndexMode::raise);
/// Returns y[.., j, ..] = x[.., indices[.., j, ..], ..], as torch.gather. `indices` has x's rank, and may be
/// larger than x only along `axis`.
NDArray gather(const Arg& x, const NDArray& indices, IntArg axis);
/// The same, but x and `indices` broadcast in all dimensions except `axis`; as numpy.take_along_axis.
NDArray take_along_axis(const Arg& x, const NDArray& indices, IntArg axis);

/// Returns x with x[.., indices[.., j, ..], ..] set to updates[.., j, ..] or combined with it, as
/// torch.scatter. `updates` broadcasts to the shape of `indices`.
NDArray scatter(const Arg& x, const NDArray& indices, const NDArray& updates, IntArg axis,
                Scatter how = Scatter::set);
NDArray& scatter_(NDArray& x, const NDArray& indices, const NDArray& updates, IntArg axis,
                  Scatter how = Scatter::set, std::source_location where = std::source_location::current());

/// Returns x with updates[.., j, ..] combined into x[.., indices[j], ..]. `indices` is (n,); `updates`
/// broadcasts to x's shape with n along `axis`.
NDArray index_update(const Arg& x, const NDArray& indices, const NDArray& updates, IntArg axis, Scatter how);
NDArray index_add(const Arg& x, const NDArray& indices, const NDArray& updates, IntArg axis = 0);
NDArray index_copy(const Arg& x, const NDArray& indices, const NDArray& updates, IntArg axis = 0);
NDArray& index_add_(NDArray& x, const NDArray& indices, const NDArray& updates, IntArg axis = 0,
                    std::source_location where = std::source_location::current());
NDArray& index_copy_(NDArray& x, const NDArray& indices, const NDArray& updates, IntArg axis = 0,
                     std::source_location where = std::source_location::current());

/// Returns an array (.., classes) that is 1 where the last index equals indices[..], and 0 elsewhere. Indices
/// must not be negative.
NDArray one_hot(const Arg& indices, IntArg classes, DType dtype = f32);
/// Returns table[indices[..], :] for a table (rows, width). The gradient of row `padding` (-1: none) is 0.
/// With `sparse`, the table's gradient is row-sparse (operators/row_sparse.h), if there are fewer indices
/// than rows and the gradient is not recorded itself. Without `from_end`, negative indices are out of range,
/// as in PyTorch; nn::Embedding calls it so.
NDArray embedding(const Arg& table, const NDArray& indices, IntArg padding = -1, bool sparse = false,
                  bool from_end = true);
/// Returns the gradient of embedding with respect to a table of `rows` rows: each row is the sum of `head`
/// over the positions where that row was taken. Row `skip_row` (padding; -1: none) gets 0.
NDArray embedding_gradient(const Arg& indices, const NDArray& head, IntArg rows, IntArg skip_row = -1);

/// Returns x[..] with arrays of indices at `axes` (ascending) and ":" elsewhere; x[{..}] calls it. The
/// indices are broadcast together. If `axes` are adjacent, the dimensions of the indices replace them;
/// otherwise they come first. `position` >= 0 puts them before that dimension of the remaining ones.
NDArray gather_nd(const Arg& x, std::span<const NDArray> indices, const Shape& axes, IntArg position = -1);
/// Returns x with values written at these indices; `values` broadcasts to the shape of gather_nd's result.
NDArray put_nd(const Arg& x, std::span<const NDArray> indices, const Shape& axes, const NDArray& values,
               Scatter how = Scatter::set, IntArg position = -1);
NDArray& put_nd_(NDArray& x, std::span<const NDArray> indices, const Shape& axes, const NDArray& values,
                 Scatter how = Scatter::set, IntArg position = -1,
                 std::source_location where = std::source_location::current());

/// Returns the elements of x where the mask is true, (n,), in row-major order. x and the mask broadcast.
/// Waits for the mask.
NDArray masked_select(const Arg& x, const NDArray& mask);
/// Returns x with the elements where the mask is true replaced by the elements of `source`, in order. The
/// mask broadcasts to x. `source` may have more elements than are used; if it has too few, the operation
/// fails.
NDArray masked_scatter(const Arg& x, const NDArray& mask, const NDArray& source);
NDArray& masked_scatter_(NDArray& x, const NDArray& mask, const NDArray& source,
                         std::source_location where = std::source_location::current());

/// Returns the indices of the elements that are not 0, in row-major order: i64 (n, rank). Waits for x.
NDArray argwhere(const Arg& x);
/// The same as one array (n,) per dimension, as numpy.nonzero. Waits for x.
std::vector<NDArray> nonzero(const Arg& x);

std::string to_string(IndexMode mode);
std::string to_string(Scatter how);

namespace detail {

/// Convert an operator's attribute. Throw InvalidArgument, naming `op`, if the text is not a mode.
IndexMode index_mode(const std::string& text, const char* op);
Scatter scatter_how(const std::string& text, const char* op);

/// Returns indices in a type that the kernels take, i32 or i64. Throws InvalidArgument for bool and
/// floating-point numbers.
NDArray as_indices(const NDArray& indices, const char* op,
                   std::source_location where = std::source_location::current());
/// Throws InvalidArgument if input i is not i32 or i64. For infer functions.
void check_index_type(const InferContext& c, size_t i);

/// Installs the hooks for indexing with arrays (ndarray/hooks.h). May be called again.
bool install_indexing();
/// Defined in the header, so that every program that includes it installs the hooks, even if it links a
/// static library.
inline const bool kIndexingInstalled = install_indexing();

}  // namespace detail
}  // namespace mx
