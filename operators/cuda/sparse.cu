// Products with matrices in compressed sparse rows: operators/kernels/sparse.h. The terms of a sum are added
// in the order of the entries; for a transposed matrix the entries are sorted by column first.
#include "operators/kernels/sparse.h"

#include "operators/cuda/group.cuh"
#include "operators/cuda/offsets.cuh"
#include "operators/cuda/prim.h"
#include "operators/cuda/search.cuh"
#include "operators/cuda_kernels.h"
#include "operators/scratch.h"
#include "operators/sparse_attrs.h"

namespace mx::cuda {
namespace {

struct SparseMatrix {
  Elements data;
  int64_t row_step, column_step, columns;

  explicit SparseMatrix(const Tensor& t)
      : data(elements_of(t)), row_step(t.strides[0]), column_step(t.strides[1]), columns(t.shape[1]) {}
  __device__ int64_t place(int64_t row, int64_t column) const {
    return row * row_step + column * column_step;
  }
};

struct SparseValues {
  Elements data;
  int64_t step;

  explicit SparseValues(const Tensor& t) : data(elements_of(t)), step(t.strides[0]) {}
};

/// y[i, j] = sum of values[k] dense[columns[k], j] over the entries of row i.
template <class A>
__global__ void __launch_bounds__(kBlock)
    csr_product(SparseValues values, Integers columns, Integers pointers, SparseMatrix dense, SparseMatrix y,
                int64_t width, int64_t n) {
  for (int64_t index = global_index(); index < n; index += global_size()) {
    const int64_t i = index / y.columns, j = index - i * y.columns;
    const EntryRange range(pointers, i, columns.count);
    A sum = 0;
    if (width > 0)
      for (int64_t k = range.first; k < range.end; ++k)
        sum += load<A>(values.data, k * values.step) *
               load<A>(dense.data, dense.place(limited(columns[k], 0, width - 1), j));
    store(y.data, y.place(i, j), sum);
  }
}

/// For each entry its column as a key, its number, and its row.
__global__ void __launch_bounds__(kBlock) entry_keys(Integers columns, Integers pointers, int64_t width,
                                                     uint64_t* keys, int64_t* entries, int64_t* rows) {
  for (int64_t k = global_index(); k < columns.count; k += global_size()) {
    keys[k] = static_cast<uint64_t>(limited(columns[k], 0, width - 1));
    entries[k] = k;
    rows[k] = limited(count_below(pointers, pointers.count, k + 1) - 1, 0, pointers.count - 2);
  }
}

/// y[c, j] = sum of values[k] dense[row of k, j] over the entries k of column c.
template <class A>
__global__ void __launch_bounds__(kBlock)
    csr_product_of_columns(SparseValues values, const uint64_t* keys, const int64_t* entries,
                           const int64_t* rows, int64_t count, SparseMatrix dense, SparseMatrix y,
                           int64_t n) {
  for (int64_t index = global_index(); index < n; index += global_size()) {
    const int64_t c = index / y.columns, j = index - c * y.columns;
    A sum = 0;
    for (int64_t at = count_below(keys, count, c); at < count && static_cast<int64_t>(keys[at]) == c; ++at) {
      const int64_t k = entries[at];
      sum += load<A>(values.data, k * values.step) * load<A>(dense.data, dense.place(rows[k], j));
    }
    store(y.data, y.place(c, j), sum);
  }
}

/// y[k] = dot(left[row of k, :], right[columns[k], :]); one group for each entry.
template <class A, int kLanes>
__global__ void __launch_bounds__(kBlock) csr_dots(SparseMatrix left, SparseMatrix right, Integers columns,
                                                   Integers pointers, SparseValues y, int64_t width) {
  using G = Group<kLanes>;
  const int64_t k = G::row();
  if (k >= columns.count) return;
  const int64_t row = limited(count_below(pointers, pointers.count, k + 1) - 1, 0, pointers.count - 2);
  const int64_t column = limited(columns[k], 0, width - 1);
  A sum = 0;
  for (int64_t j = G::lane(); j < left.columns; j += kLanes)
    sum += load<A>(left.data, left.place(row, j)) * load<A>(right.data, right.place(column, j));
  sum = G::all(sum, Add());
  if (G::lane() == 0) store(y.data, k * y.step, sum);
}

/// Returns whether the kernel of `op` has more to do. Entries of a matrix without rows or columns are an
/// error, which is noted.
bool check_matrix(const KernelArgs& args, const char* op, const Tensor& columns, const Tensor& pointers,
                  int64_t width) {
  const int64_t entries = columns.shape[0];
  const EntryCheck check{pointers, entries, &columns, width};
  BadValues bad(args, bad_entries(op, "row pointers", check));
  note_bad_entries(args, check, bad.word());
  bad.check();
  return entries == 0 || (pointers.shape[0] > 1 && width > 0);
}

void multiply_transposed(const KernelArgs& args) {
  const Tensor &values = args.in[0], &columns = args.in[1], &pointers = args.in[2], &dense = args.in[3],
               &y = args.out[0];
  const int64_t n = y.numel(), entries = columns.shape[0];
  if (!check_matrix(args, "csr_matmul", columns, pointers, y.shape[0]) || n == 0) return;
  const Scratch memory(args, static_cast<size_t>(entries) * 5 * sizeof(int64_t));
  auto* const keys = memory.as<uint64_t>();
  uint64_t* const sorted = keys + entries;
  auto* const numbers = reinterpret_cast<int64_t*>(sorted + entries);
  int64_t *const sorted_numbers = numbers + entries, *const rows = sorted_numbers + entries;
  if (entries > 0) {
    launch(stream_of(args), blocks_for(entries, kBlock, 1 << 16), kBlock, 0, entry_keys, Integers(columns),
           Integers(pointers), y.shape[0], keys, numbers, rows);
    sort_pairs(args, keys, sorted, numbers, sorted_numbers, entries, 0, bits_for(y.shape[0]));
  }
  visit_real(y.dtype, [&]<class A>() {
    launch(stream_of(args), blocks_for(n, kBlock, 1 << 16), kBlock, 0, csr_product_of_columns<A>,
           SparseValues(values), static_cast<const uint64_t*>(sorted),
           static_cast<const int64_t*>(sorted_numbers), static_cast<const int64_t*>(rows), entries,
           SparseMatrix(dense), SparseMatrix(y), n);
  });
}

}  // namespace

void csr_matmul(const KernelArgs& args) {
  if (args.attr<mx::detail::CsrAttrs>().transposed) return multiply_transposed(args);
  const Tensor &values = args.in[0], &columns = args.in[1], &pointers = args.in[2], &dense = args.in[3],
               &y = args.out[0];
  const int64_t n = y.numel();
  if (!check_matrix(args, "csr_matmul", columns, pointers, dense.shape[0]) || n == 0) return;
  visit_real(y.dtype, [&]<class A>() {
    launch(stream_of(args), blocks_for(n, kBlock, 1 << 16), kBlock, 0, csr_product<A>, SparseValues(values),
           Integers(columns), Integers(pointers), SparseMatrix(dense), SparseMatrix(y), dense.shape[0], n);
  });
}

void csr_sample(const KernelArgs& args) {
  const Tensor &left = args.in[0], &right = args.in[1], &columns = args.in[2], &pointers = args.in[3],
               &y = args.out[0];
  const int64_t entries = y.shape[0];
  if (!check_matrix(args, "csr_sample", columns, pointers, right.shape[0]) || entries == 0) return;
  visit_real(y.dtype, [&]<class A>() {
    const auto run = [&](int lanes, auto kernel) {
      launch(stream_of(args), whole_grid(entries, kBlock / lanes), kBlock, 0, kernel, SparseMatrix(left),
             SparseMatrix(right), Integers(columns), Integers(pointers), SparseValues(y), right.shape[0]);
    };
    left.shape[1] < kWarp / 2 ? run(1, csr_dots<A, 1>) : run(kWarp, csr_dots<A, kWarp>);
  });
}

}  // namespace mx::cuda
