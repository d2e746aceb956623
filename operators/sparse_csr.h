// SparseCSR: a sparse matrix in compressed sparse rows.
//
//   SparseCSR a = SparseCSR::from_coo(rows, columns, values, {4, 3});
//   NDArray y = matmul(a, x);                      // (4, n) for x (3, n)
//   NDArray back = matmul(a, y, true);             // a' y, without making a'
//
// A SparseCSR is a handle to three arrays, which are not changed after it was made; a copy shares them. If
// `values` require a gradient, products and to_dense() are recorded. operators/sparse.h describes the arrays.
// Errors of operations name the line that called the function here.
//
// Thread-safety: as NDArray; several threads may read one object.
#pragma once

#include <cstdint>
#include <source_location>

#include "ndarray/ndarray.h"

namespace mx {

class SparseCSR {
 public:
  /// An empty handle, which may only be assigned.
  SparseCSR() = default;
  /// Makes the matrix of these arrays: pointers (rows + 1,) and columns (entries,) of an integer type, and
  /// values (entries,) in floating point. Throws InvalidArgument for shapes and types that do not fit, and
  /// for arrays on several devices. Does not wait: wrong pointers and columns are found by the operations
  /// that read them, and by check().
  SparseCSR(const NDArray& pointers, const NDArray& columns, const NDArray& values, const Shape& shape,
            std::source_location where = std::source_location::current());

  /// Makes the matrix of the entries (rows[k], columns[k]) with the given values, in any order. Entries at
  /// the same place are added up. Waits for the indices. Throws InvalidArgument for an index out of range.
  static SparseCSR from_coo(const NDArray& rows, const NDArray& columns, const NDArray& values,
                            const Shape& shape, std::source_location where = std::source_location::current());
  /// The same with 1 (f32) for all values; an edge that is listed twice counts once.
  static SparseCSR from_edges(const NDArray& rows, const NDArray& columns, const Shape& shape,
                              std::source_location where = std::source_location::current());
  /// Makes the matrix of the elements of x (rows, columns) that are not 0. Waits for x.
  static SparseCSR from_dense(const NDArray& x, std::source_location where = std::source_location::current());

  bool defined() const { return values_.defined(); }
  Shape shape() const { return {rows(), width_}; }
  int64_t rows() const { return pointers_.numel() - 1; }
  int64_t width() const { return width_; }  ///< number of columns
  int64_t entries() const { return values_.numel(); }
  DType dtype() const { return values_.dtype(); }
  Context context() const { return values_.context(); }
  const NDArray& pointers() const { return pointers_; }
  const NDArray& columns() const { return columns_; }
  const NDArray& values() const { return values_; }

  /// Returns the row of each entry, i64 (entries,): with columns() and values() the coordinate form.
  NDArray row_indices(std::source_location where = std::source_location::current()) const;
  /// Throws OutOfMemory when it is waited for, or InvalidArgument, if the dense form does not fit.
  NDArray to_dense(std::source_location where = std::source_location::current()) const;
  /// Returns the transposed matrix, with ascending columns in each row. Waits for the indices.
  SparseCSR transpose(std::source_location where = std::source_location::current()) const;
  /// Returns the matrix with the same entries and other values (entries,).
  SparseCSR with_values(const NDArray& values,
                        std::source_location where = std::source_location::current()) const;
  SparseCSR to(Context context, std::source_location where = std::source_location::current()) const;
  SparseCSR to(DType dtype, std::source_location where = std::source_location::current()) const;
  /// Waits, and throws InvalidArgument unless pointers and columns are valid.
  void check(std::source_location where = std::source_location::current()) const;

  /// For hooks of modules (nn/detail/call_arrays.h).
  template <class V>
  void arrays(V&& visit) {
    visit(pointers_);
    visit(columns_);
    visit(values_);
  }

 private:
  NDArray pointers_, columns_, values_;
  int64_t width_ = 0;
};

/// Returns a x, or a' x if `transposed`, for x of rank 1 or 2.
NDArray matmul(const SparseCSR& a, const NDArray& x, bool transposed = false,
               std::source_location where = std::source_location::current());

}  // namespace mx
