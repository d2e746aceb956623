// Row-sparse gradients: the gradient of a table of which a batch has read only some rows.
//
// With `sparse` set, the backward pass of embedding() sets such a gradient. It is an NDArray of the table's
// shape, but it holds only the rows that were taken. Its dense form is computed when something reads it, as
// every function on arrays does. So all code that handles gradients works; code that asks for row_sparse()
// first, such as the optimisers, does work for the rows alone:
//
//   nn::Embedding table(1000000, 64, {.sparse = true});
//   ...
//   if (auto part = row_sparse(table.weight.grad())) use(part->rows, part->values);
//
// Thread-safety: as NDArray.
#pragma once

#include <cstdint>
#include <optional>
#include <source_location>
#include <span>

#include "operators/operator.h"

namespace mx {

struct RowSparse {
  /// i64 (n,): the rows that may differ from 0, ascending, each once. The number of rows of the table stands
  /// for no row: the last elements may have it.
  NDArray rows;
  NDArray values;  ///< (n, width): these rows; 0 for no row
};

/// Returns the rows of a row-sparse array; nullopt for any other array, and for one that has been read. Does
/// not wait.
std::optional<RowSparse> row_sparse(const NDArray& array);

/// Sums the rows of `values` (n, width) that belong to the same row of a table of `size` rows. `indices` (n,)
/// names these rows; a negative one counts from the end, and `size` stands for no row. Row skip_row (-1:
/// none) is left out.
RowSparse sum_rows(const Arg& indices, const NDArray& values, IntArg size, IntArg skip_row = -1);

/// Copies the rows to their places in `target` (size, width). The other rows stay. No gradient flows through
/// this function: throws InvalidState if the thread records and the target or the values are recorded
/// (index_copy_() is recorded). Throws InvalidArgument for shapes that do not fit.
void put_rows(NDArray& target, const RowSparse& rows,
              std::source_location where = std::source_location::current());

namespace detail {

/// Makes a row-sparse array (size, width).
NDArray make_row_sparse(const RowSparse& rows, int64_t size);
/// Returns the sum of row-sparse arrays as a row-sparse array on a device, added in their order. Returns an
/// empty handle if one of them is not row-sparse, or if the dense form would not be larger.
NDArray sum_row_sparse(std::span<const NDArray> arrays, Context context);
/// Returns false for a device whose kernels cannot compute row-sparse gradients.
bool has_row_sparse(Context context);

}  // namespace detail
}  // namespace mx
