#include "operators/kernels/row_sparse.h"

#include <algorithm>
#include <cstring>
#include <memory>

#include "engine/base/check.h"
#include "ndarray/kernels/copy.h"
#include "ndarray/kernels/parallel.h"
#include "operators/kernels/bad_values.h"
#include "operators/kernels/index_check.h"
#include "operators/kernels/row_convert.h"
#include "operators/kernels/sparse_rows.h"
#include "operators/scratch.h"
#include "operators/temporary.h"

namespace mx::kernels {
namespace {

struct IndexedRow {
  int64_t index, place;
  bool operator<(const IndexedRow& other) const {
    return index != other.index ? index < other.index : place < other.place;
  }
};

/// Reads the indices, leaves out those that do not count, and sorts. Returns their number.
int64_t sort_indices(const Tensor& indices, int64_t size, int64_t skip_row, IndexedRow* sorted) {
  const int64_t n = indices.shape[0], step = indices.strides[0];
  int64_t count = 0;
  detail::visit_index(indices.dtype, [&](auto tag) {
    using I = typename decltype(tag)::type;
    for (int64_t i = 0; i < n; ++i) {
      const auto given = static_cast<int64_t>(indices.as<I>()[i * step]);
      const int64_t index = given < 0 ? given + size : given;
      if (index != size && index != skip_row) sorted[count++] = {index, i};
    }
  });
  std::sort(sorted, sorted + count);
  return count;
}

/// Sums rows in A, the type in which they are computed.
template <class A>
void sum_group(const Tensor& values, const IndexedRow* first, const IndexedRow* last, A* sum, A* row) {
  const int64_t width = values.shape[1];
  load_run(sum, values.data, values.dtype, first->place * values.strides[0], values.strides[1], width);
  for (const IndexedRow* r = first + 1; r != last; ++r) {
    load_run(row, values.data, values.dtype, r->place * values.strides[0], values.strides[1], width);
    detail::add_row(row, sum, width);
  }
}

template <class A>
void sum_groups(const Tensor& sums, const Tensor& values, const IndexedRow* sorted, const int64_t* groups,
                int64_t count) {
  const int64_t width = values.shape[1];
  if (width == 0) return;  // there is no memory to copy from
  parallel_for(
      count, std::max<int64_t>(1, 16384 / std::max<int64_t>(width, 1)), [&](int64_t begin, int64_t end) {
        const auto buffer = std::make_unique<A[]>(static_cast<size_t>(2 * width));
        for (int64_t g = begin; g < end; ++g) {
          sum_group(values, sorted + groups[g], sorted + groups[g + 1], buffer.get(), buffer.get() + width);
          store_run(sums.data, sums.dtype, g * sums.strides[0], sums.strides[1], buffer.get(), width);
        }
      });
}

}  // namespace

void sum_rows(const KernelArgs& args, const Tensor& rows, const Tensor& sums, const Tensor& indices,
              const Tensor& values, int64_t size, int64_t skip_row) {
  MX_CHECK(size < INT64_MAX, InvalidArgument, "[sum_rows] expected a table of fewer than 2^63 - 1 rows, got ",
           size);
  detail::check_indices(indices, -size, size + 1, 0, IndexMode::raise, "sum_rows");
  const int64_t n = indices.shape[0];
  const Scratch sorted_memory(args, static_cast<size_t>(n) * sizeof(IndexedRow)),
      group_memory(args, static_cast<size_t>(n + 1) * sizeof(int64_t));
  auto* const sorted = sorted_memory.as<IndexedRow>();
  auto* const groups = group_memory.as<int64_t>();
  const int64_t used = sort_indices(indices, size, skip_row, sorted);
  int64_t count = 0;
  for (int64_t k = 0; k < used; ++k) {
    if (k > 0 && sorted[k].index == sorted[k - 1].index) continue;
    rows.as<int64_t>()[count * rows.strides[0]] = sorted[k].index;
    groups[count++] = k;
  }
  groups[count] = used;
  for (int64_t k = count; k < n; ++k) rows.as<int64_t>()[k * rows.strides[0]] = size;
  if (values.dtype == f64)
    sum_groups<double>(sums, values, sorted, groups, count);
  else
    sum_groups<float>(sums, values, sorted, groups, count);
  if (count < n) fill(sums.narrowed(0, count, n - count), int64_t{0});
}

void put_rows(const Tensor& target, const Tensor& rows, const Tensor& values) {
  const int64_t size = target.shape[0], width = target.shape[1];
  const mx::detail::Converted from(values, target.dtype);
  const bool plain = width > 0 && target.contiguous() && from->contiguous();
  parallel_for(rows.shape[0], std::max<int64_t>(1, 16384 / std::max<int64_t>(width, 1)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t k = begin; k < end; ++k) {
                   const int64_t row = rows.as<int64_t>()[k * rows.strides[0]];
                   if (row == size) break;
                   if (row < 0 || row > size) throw InvalidArgument(detail::bad_row(size, row, k));
                   const Tensor to = target.narrowed(0, row, 1), source = from->narrowed(0, k, 1);
                   if (plain)
                     std::memcpy(to.data, source.data, static_cast<size_t>(width) * size_of(target.dtype));
                   else
                     copy(to, source);
                 }
               });
}

}  // namespace mx::kernels
