#include "operators/sparse_csr.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "engine/base/check.h"
#include "engine/base/host_list.h"
#include "ndarray/detail/place.h"
#include "operators/elementwise_binary.h"
#include "operators/indexing.h"
#include "operators/segment.h"
#include "operators/select.h"
#include "operators/sparse.h"

namespace mx {
namespace {

void check_matrix_shape(const Shape& shape) {
  MX_CHECK(shape.rank() == 2 && shape[0] >= 0 && shape[1] >= 0 && shape[0] < INT64_MAX, InvalidArgument,
           "[SparseCSR] expected the shape of a matrix, with fewer than 2^63 - 1 rows, got ", shape);
}

std::vector<int64_t> checked_indices(const NDArray& indices, int64_t size, const char* what) {
  const auto list = indices.to_vector<int64_t>();
  for (size_t k = 0; k < list.size(); ++k)
    MX_CHECK(list[k] >= 0 && list[k] < size, InvalidArgument, "[SparseCSR] expected ", what, " from 0 to ",
             size - 1, ", got ", list[k], " at position ", k);
  return list;
}

/// The entries of a matrix, sorted by row and column; those at the same place form a group.
struct SortedEntries {
  std::vector<int64_t> order;    // numbers of the entries
  std::vector<int64_t> groups;   // offsets in `order`
  std::vector<int64_t> columns;  // of each group
  std::vector<int64_t> pointers;
};

SortedEntries sort_entries(const NDArray& rows, const NDArray& columns, const Shape& shape) {
  check_matrix_shape(shape);
  MX_CHECK(rows.rank() == 1 && columns.shape() == rows.shape() && is_integral(rows.dtype()) &&
               is_integral(columns.dtype()),
           InvalidArgument,
           "[SparseCSR] expected rows and columns of an integer type and of one shape (entries,), got ",
           rows.dtype(), ' ', rows.shape(), " and ", columns.dtype(), ' ', columns.shape());
  const auto row = checked_indices(rows, shape[0], "rows"),
             column = checked_indices(columns, shape[1], "columns");
  SortedEntries sorted;
  sorted.order.resize(row.size());
  std::iota(sorted.order.begin(), sorted.order.end(), int64_t{0});
  const auto place = [&](int64_t k) {
    return std::pair(row[static_cast<size_t>(k)], column[static_cast<size_t>(k)]);
  };
  std::stable_sort(sorted.order.begin(), sorted.order.end(),
                   [&](int64_t a, int64_t b) { return place(a) < place(b); });
  sorted.pointers = host_list<int64_t>(shape[0] + 1, "SparseCSR");
  for (size_t i = 0; i < sorted.order.size(); ++i) {
    const auto [r, c] = place(sorted.order[i]);
    if (i > 0 && place(sorted.order[i - 1]) == std::pair(r, c)) continue;
    sorted.groups.push_back(static_cast<int64_t>(i));
    sorted.columns.push_back(c);
    ++sorted.pointers[static_cast<size_t>(r) + 1];
  }
  sorted.groups.push_back(static_cast<int64_t>(sorted.order.size()));
  std::partial_sum(sorted.pointers.begin(), sorted.pointers.end(), sorted.pointers.begin());
  return sorted;
}

NDArray index_array(const std::vector<int64_t>& list, Context context) { return array(list, context); }

}  // namespace

SparseCSR::SparseCSR(const NDArray& pointers, const NDArray& columns, const NDArray& values,
                     const Shape& shape, std::source_location where) try
    : pointers_(detail::as_indices(pointers, "SparseCSR", where)),
      columns_(detail::as_indices(columns, "SparseCSR", where)),
      values_(values),
      width_(shape.rank() == 2 ? shape[1] : 0) {
  check_matrix_shape(shape);
  MX_CHECK(pointers.shape() == Shape{shape[0] + 1}, InvalidArgument, "[SparseCSR] expected pointers ",
           Shape{shape[0] + 1}, " for a matrix ", shape, ", got shape ", pointers.shape());
  MX_CHECK(columns.rank() == 1 && values.shape() == columns.shape() && is_floating(values.dtype()),
           InvalidArgument,
           "[SparseCSR] expected columns (entries,) and as many values in floating point, got shape ",
           columns.shape(), " and ", values.dtype(), ' ', values.shape());
  MX_CHECK(pointers.context() == values.context() && columns.context() == values.context(), InvalidArgument,
           "[SparseCSR] expected pointers, columns and values on one device, got ", pointers.context(), ", ",
           columns.context(), " and ", values.context());
} catch (const Error&) {
  detail::rethrow_at(where);
}

SparseCSR SparseCSR::from_coo(const NDArray& rows, const NDArray& columns, const NDArray& values,
                              const Shape& shape, std::source_location where) try {
  MX_CHECK(values.shape() == rows.shape(), InvalidArgument,
           "[SparseCSR] expected a value for each row index, ", rows.shape(), ", got shape ", values.shape());
  const SortedEntries sorted = sort_entries(rows, columns, shape);
  const Context context = values.context();
  NDArray sums = take({values, where}, index_array(sorted.order, context));
  if (sorted.columns.size() < sorted.order.size())
    sums = segment_sum({sums, where}, index_array(sorted.groups, context));
  return {index_array(sorted.pointers, context), index_array(sorted.columns, context), sums, shape, where};
} catch (const Error&) {
  detail::rethrow_at(where);
}

SparseCSR SparseCSR::from_edges(const NDArray& rows, const NDArray& columns, const Shape& shape,
                                std::source_location where) try {
  const SortedEntries sorted = sort_entries(rows, columns, shape);
  const Context context = rows.context();
  return {index_array(sorted.pointers, context), index_array(sorted.columns, context),
          ones({static_cast<int64_t>(sorted.columns.size())}, f32, context), shape, where};
} catch (const Error&) {
  detail::rethrow_at(where);
}

SparseCSR SparseCSR::from_dense(const NDArray& x, std::source_location where) try {
  check_matrix_shape(x.shape());
  const std::vector<NDArray> places = nonzero({x.detach(), where});
  const Shape axes{0, 1};
  return {segment_offsets({places[0], where}, x.shape()[0]), places[1], gather_nd({x, where}, places, axes),
          x.shape(), where};
} catch (const Error&) {
  detail::rethrow_at(where);
}

NDArray SparseCSR::row_indices(std::source_location where) const {
  return segment_expand({arange(0, rows(), 1, i64, context()), where}, pointers_, entries());
}

NDArray SparseCSR::to_dense(std::source_location where) const try {
  checked_numel(shape(), size_of(dtype()), "to_dense");
  // A column that does not exist becomes a place behind the last one, at which the addition fails.
  const NDArray columns = columns_.to(i64), end = row_indices(where) * width_;
  const NDArray places =
      mx::where(logical_and(columns >= 0, columns < width_), end + columns, rows() * width_);
  return index_add({zeros({rows() * width_}, dtype(), context()), where}, places, values_).reshape(shape());
} catch (const Error&) {
  detail::rethrow_at(where);
}

SparseCSR SparseCSR::transpose(std::source_location where) const {
  return from_coo(columns_, row_indices(where), values_, {width_, rows()}, where);
}

SparseCSR SparseCSR::with_values(const NDArray& values, std::source_location where) const {
  return {pointers_, columns_, values, shape(), where};
}

SparseCSR SparseCSR::to(Context context, std::source_location where) const {
  return {pointers_.to(context, where), columns_.to(context, where), values_.to(context, where), shape(),
          where};
}

SparseCSR SparseCSR::to(DType dtype, std::source_location where) const {
  return with_values(values_.to(dtype, where), where);
}

void SparseCSR::check(std::source_location where) const {
  // A product with no columns reads the structure only. Kernels of GPUs do not check it.
  csr_matmul({values_.detach().to(cpu()), where}, columns_.to(cpu()), pointers_.to(cpu()),
             zeros({width_, 0}, dtype()))
      .wait();
}

NDArray matmul(const SparseCSR& a, const NDArray& x, bool transposed, std::source_location where) try {
  MX_CHECK(a.defined(), InvalidArgument, "[matmul] expected a sparse matrix, got an empty handle");
  const int64_t inner = transposed ? a.rows() : a.width();
  MX_CHECK((x.rank() == 1 || x.rank() == 2) && x.shape()[0] == inner, InvalidArgument,
           "[matmul] expected an array (", inner, ", n) or (", inner, ",) for a ",
           transposed ? "transposed " : "", "sparse matrix ", a.shape(), ", got shape ", x.shape());
  return transposed ? csr_matmul_transposed({a.values(), where}, a.columns(), a.pointers(), x, a.width())
                    : csr_matmul({a.values(), where}, a.columns(), a.pointers(), x);
} catch (const Error&) {
  detail::rethrow_at(where);
}

}  // namespace mx
