// Sums and copies of some rows of a table: operators/kernels/row_sparse.h. The indices are sorted, and the
// rows with the same index are added in their order.
#include "engine/base/check.h"
#include "ndarray/cuda/kernel_errors.cuh"
#include "operators/cuda/group.cuh"
#include "operators/cuda/operand.h"
#include "operators/cuda/prim.h"
#include "operators/cuda/search.cuh"
#include "operators/cuda_kernels.h"
#include "operators/kernels/bad_values.h"
#include "operators/row_sparse_attrs.h"
#include "operators/scratch.h"

namespace mx::cuda {
namespace {

/// Indices that do not count get the largest key, `size`. The index `size` itself is that of a row that does
/// not count.
__global__ void __launch_bounds__(kBlock) row_keys(Integers indices, int64_t size, int64_t skip_row,
                                                   uint64_t* keys, int64_t* places, KernelError* bad) {
  for (int64_t i = global_index(); i < indices.count; i += global_size()) {
    const int64_t given = indices[i], index = given < 0 ? given + size : given;
    if (index < 0 || index > size) note_error(bad, i, given);
    const bool counts = index >= 0 && index < size && index != skip_row;
    keys[i] = static_cast<uint64_t>(counts ? index : size);
    places[i] = i;
  }
}

__global__ void __launch_bounds__(kBlock)
    mark_rows(const uint64_t* keys, int64_t size, int64_t* marks, int64_t n) {
  for (int64_t i = global_index(); i < n; i += global_size())
    marks[i] = static_cast<int64_t>(keys[i]) < size && (i == 0 || keys[i] != keys[i - 1]) ? 1 : 0;
}

struct RowArray {
  Elements data;
  int64_t row_step, column_step, width;

  explicit RowArray(const Tensor& t)
      : data(elements_of(t)), row_step(t.strides[0]), column_step(t.strides[1]), width(t.shape[1]) {}
};

/// numbers[i]: how many different rows there are among the first i + 1 keys.
template <class A>
__global__ void __launch_bounds__(kBlock)
    sum_rows_of_groups(const uint64_t* keys, const int64_t* places, const int64_t* numbers, int64_t count,
                       RowArray values, int64_t* rows, int64_t rows_step, RowArray sums, int64_t size) {
  const int64_t used = numbers[count - 1];
  for (int64_t index = global_index(); index < count * values.width; index += global_size()) {
    const int64_t group = index / values.width, j = index - group * values.width;
    A sum = 0;
    int64_t row = size;
    if (group < used) {
      int64_t at = count_below(numbers, count, group + 1);
      row = static_cast<int64_t>(keys[at]);
      for (; at < count && static_cast<int64_t>(keys[at]) == row; ++at)
        sum += load<A>(values.data, places[at] * values.row_step + j * values.column_step);
    }
    store(sums.data, group * sums.row_step + j * sums.column_step, sum);
    if (j == 0) rows[group * rows_step] = row;
  }
}

/// The rows alone, for sums without elements.
__global__ void __launch_bounds__(kBlock)
    list_rows(const uint64_t* keys, const int64_t* numbers, int64_t count, int64_t* rows, int64_t rows_step,
              int64_t size) {
  const int64_t used = numbers[count - 1];
  for (int64_t group = global_index(); group < count; group += global_size())
    rows[group * rows_step] =
        group < used ? static_cast<int64_t>(keys[count_below(numbers, count, group + 1)]) : size;
}

template <class Bits>
__global__ void __launch_bounds__(kBlock)
    copy_rows(Bits* target, int64_t row_step, int64_t column_step, int64_t size, const int64_t* rows,
              int64_t rows_step, const Bits* values, int64_t value_row, int64_t value_column, int64_t width,
              int64_t n, KernelError* bad) {
  for (int64_t index = global_index(); index < n; index += global_size()) {
    const int64_t k = index / width, j = index - k * width, row = rows[k * rows_step];
    if (row < 0 || row > size) note_error(bad, k, row);
    if (row >= 0 && row < size)
      target[row * row_step + j * column_step] = values[k * value_row + j * value_column];
  }
}

}  // namespace

void sum_rows(const KernelArgs& args) {
  const auto& attrs = args.attr<mx::detail::SumRowsAttrs>();
  const Tensor &indices = args.in[0], &values = args.in[1], &rows = args.out[0], &sums = args.out[1];
  const int64_t n = indices.shape[0];
  if (n == 0) return;
  const Scratch memory(args, static_cast<size_t>(n) * 4 * sizeof(int64_t));
  auto* const keys = memory.as<uint64_t>();
  uint64_t* const sorted = keys + n;
  auto* const places = reinterpret_cast<int64_t*>(sorted + n);
  int64_t* const sorted_places = places + n;
  const unsigned blocks = blocks_for(n, kBlock, 1 << 16);
  BadValues bad(args, [size = attrs.size](const KernelError& e) {
    return kernels::detail::bad_index("sum_rows", -size, size + 1, 0, e.value, {e.place});
  });
  launch(stream_of(args), blocks, kBlock, 0, row_keys, Integers(indices), attrs.size, attrs.skip_row, keys,
         places, bad.word());
  bad.check();
  sort_pairs(args, keys, sorted, places, sorted_places, n, 0, bits_for(attrs.size + 1));
  // The unsorted lists are no longer needed.
  auto* const marks = reinterpret_cast<int64_t*>(keys);
  int64_t* const numbers = places;
  launch(stream_of(args), blocks, kBlock, 0, mark_rows, static_cast<const uint64_t*>(sorted), attrs.size,
         marks, n);
  running_sums(args, marks, numbers, n);
  if (values.shape[1] == 0)
    return launch(stream_of(args), blocks, kBlock, 0, list_rows, static_cast<const uint64_t*>(sorted),
                  static_cast<const int64_t*>(numbers), n, rows.as<int64_t>(), rows.strides[0], attrs.size);
  visit_real(values.dtype, [&]<class A>() {
    launch(stream_of(args), blocks_for(values.numel(), kBlock, 1 << 16), kBlock, 0, sum_rows_of_groups<A>,
           static_cast<const uint64_t*>(sorted), static_cast<const int64_t*>(sorted_places),
           static_cast<const int64_t*>(numbers), n, RowArray(values), rows.as<int64_t>(), rows.strides[0],
           RowArray(sums), attrs.size);
  });
}

void put_rows(const KernelArgs& args) {
  const Tensor &rows = args.in[0], &values = args.in[1], &target = args.out[0];
  if (values.numel() == 0) return;
  const Operand from(args, values, target.dtype);
  BadValues bad(args, [size = target.shape[0]](const KernelError& e) {
    return kernels::detail::bad_row(size, e.value, e.place);
  });
  visit_size(target.dtype, [&](auto tag) {
    using Bits = typename decltype(tag)::type;
    launch(stream_of(args), blocks_for(from->numel(), kBlock, 1 << 16), kBlock, 0, copy_rows<Bits>,
           target.as<Bits>(), target.strides[0], target.strides[1], target.shape[0],
           static_cast<const int64_t*>(rows.as<int64_t>()), rows.strides[0],
           static_cast<const Bits*>(from->as<Bits>()), from->strides[0], from->strides[1], from->shape[1],
           from->numel(), bad.word());
  });
  bad.check();
}

}  // namespace mx::cuda
