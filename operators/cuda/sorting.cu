// sort, argsort, topk, argpartition, argselect, unique, searchsorted.
//
// All rows are sorted at once, by keys that begin with the number of the row: one radix sort for elements of
// up to 32 bits, two for larger ones. The order is that of the CPU: stable, NaN last, -0 equal to 0.
#include <algorithm>
#include <bit>

#include "engine/base/check.h"
#include "ndarray/cuda/copy.h"
#include "ndarray/cuda/element.cuh"
#include "ndarray/cuda/kernel_errors.cuh"
#include "operators/cuda/group.cuh"
#include "operators/cuda/prim.h"
#include "operators/cuda_kernels.h"
#include "operators/kernels/bad_values.h"
#include "operators/kernels/sort_key.h"
#include "operators/scratch.h"
#include "operators/sorting_attrs.h"

namespace mx::cuda {
namespace {

constexpr int kSortThreads = 256;

/// The key of an element. Elements of b bits have keys below 2^b.
__device__ inline uint64_t sort_key(const Elements& x, int64_t at, bool descending) {
  using kernels::key_of;
  switch (x.type) {
    case DType::f32:
      return key_of(static_cast<const float*>(x.data)[at], descending);
    case DType::f64:
      return key_of(static_cast<const double*>(x.data)[at], descending);
    case DType::f16:
      return key_of(static_cast<const float16*>(x.data)[at], descending);
    case DType::bf16:
      return key_of(static_cast<const bfloat16*>(x.data)[at], descending);
    case DType::i8:
      return key_of(static_cast<const int8_t*>(x.data)[at], descending);
    case DType::i32:
      return key_of(static_cast<const int32_t*>(x.data)[at], descending);
    case DType::i64:
      return key_of(static_cast<const int64_t*>(x.data)[at], descending);
    default:  // u8 and bool
      return key_of(static_cast<const uint8_t*>(x.data)[at], descending);
  }
}

int key_bits(DType type) { return static_cast<int>(8 * size_of(type)); }
int bits_of(int64_t count) { return std::bit_width(static_cast<uint64_t>(std::max<int64_t>(count - 1, 0))); }

unsigned sort_blocks(int64_t n) { return blocks_for(n, kSortThreads, 1 << 16); }

template <class... P, class... A>
void launch_for(const KernelArgs& args, int64_t n, void (*kernel)(P...), const A&... rest) {
  if (n > 0) launch(stream_of(args), sort_blocks(n), kSortThreads, 0, kernel, rest...);
}

/// `row_shift`: where the number of the row begins in a key; 64: it is not part of it.
__global__ void make_keys(Elements x, Rows<1> rows, bool descending, int row_shift, uint64_t* keys,
                          int64_t* places, int64_t n) {
  for (int64_t at = global_index(); at < n; at += global_size()) {
    const int64_t row = at / rows.n, i = at % rows.n;
    uint64_t key = sort_key(x, rows.outer.offset(0, row) + i * rows.step[0], descending);
    if (row_shift < 64) key |= static_cast<uint64_t>(row) << row_shift;
    keys[at] = key;
    places[at] = at;
  }
}

__global__ void keys_from_rows(const int64_t* places, int64_t row_size, uint64_t* keys, int64_t n) {
  for (int64_t at = global_index(); at < n; at += global_size())
    keys[at] = static_cast<uint64_t>(places[at] / row_size);
}

/// The places of all elements of an array, sorted within each row: place row * n + i is element i of a row.
class SortedPlaces {
 public:
  SortedPlaces(const KernelArgs& args, const Tensor& x, int axis, bool descending)
      : rows_(rows_of<1>({&x}, axis)),
        count_(x.numel()),
        memory_(args, static_cast<size_t>(count_) * 2 * (sizeof(uint64_t) + sizeof(int64_t))) {
    if (count_ == 0) return;
    auto* const keys = memory_.as<uint64_t>();
    uint64_t* const sorted_keys = keys + count_;
    auto* const places = reinterpret_cast<int64_t*>(sorted_keys + count_);
    int64_t* const sorted_places = places + count_;
    const int bits = key_bits(x.dtype), row_bits = bits_of(rows_.rows);
    const bool joined = bits + row_bits <= 64;
    launch_for(args, count_, make_keys, elements_of(x), rows_, descending, joined ? bits : 64, keys, places,
               count_);
    sort_pairs(args, keys, sorted_keys, places, sorted_places, count_, 0, joined ? bits + row_bits : bits);
    keys_ = sorted_keys;
    places_ = sorted_places;
    if (joined) return;
    launch_for(args, count_, keys_from_rows, static_cast<const int64_t*>(sorted_places), rows_.n, keys,
               count_);
    sort_pairs(args, keys, sorted_keys, sorted_places, places, count_, 0, row_bits);
    places_ = places;
    keys_ = nullptr;
  }

  const Rows<1>& rows() const { return rows_; }
  const int64_t* places() const { return places_; }
  /// The sorted keys, if there is one row only.
  const uint64_t* keys() const { return keys_; }

 private:
  Rows<1> rows_;
  int64_t count_;
  Scratch memory_;
  const uint64_t* keys_ = nullptr;
  const int64_t* places_ = nullptr;
};

template <class Bits>
__global__ void take_elements(const Bits* x, Rows<1> rows, const int64_t* places, Bits* out, Rows<1> out_rows,
                              int64_t n) {
  for (int64_t at = global_index(); at < n; at += global_size()) {
    const int64_t row = at / out_rows.n, i = at % out_rows.n;
    const int64_t from = places[row * rows.n + i] % rows.n;
    out[out_rows.outer.offset(0, row) + i * out_rows.step[0]] =
        x[rows.outer.offset(0, row) + from * rows.step[0]];
  }
}

__global__ void take_indices(const int64_t* places, int64_t row_size, int64_t* out, Rows<1> out_rows,
                             int64_t n) {
  for (int64_t at = global_index(); at < n; at += global_size()) {
    const int64_t row = at / out_rows.n, i = at % out_rows.n;
    out[out_rows.outer.offset(0, row) + i * out_rows.step[0]] = places[row * row_size + i] % row_size;
  }
}

void take_values(const KernelArgs& args, const Tensor& out, const Tensor& x, const SortedPlaces& sorted,
                 int axis) {
  const Rows<1> rows = rows_of<1>({&out}, axis);
  visit_size(x.dtype, [&](auto size) {
    using Bits = typename decltype(size)::type;
    launch_for(args, out.numel(), take_elements<Bits>, static_cast<const Bits*>(x.as<Bits>()), sorted.rows(),
               sorted.places(), out.as<Bits>(), rows, out.numel());
  });
}

void take_places(const KernelArgs& args, const Tensor& out, const SortedPlaces& sorted, int axis) {
  launch_for(args, out.numel(), take_indices, sorted.places(), sorted.rows().n, out.as<int64_t>(),
             rows_of<1>({&out}, axis), out.numel());
}

/// For each element 0, 1 or 2: smaller than, equal to, or larger than the element at place kth of its row.
__global__ void make_classes(Elements x, Rows<1> rows, const int64_t* places, int64_t kth, uint64_t* keys,
                             int64_t* order, int64_t n) {
  for (int64_t at = global_index(); at < n; at += global_size()) {
    const int64_t row = at / rows.n, i = at % rows.n, start = rows.outer.offset(0, row);
    const uint64_t middle = sort_key(x, start + places[row * rows.n + kth] % rows.n * rows.step[0], false);
    const uint64_t key = sort_key(x, start + i * rows.step[0], false);
    keys[at] = static_cast<uint64_t>(row) << 2 | (key < middle ? 0u : key == middle ? 1u : 2u);
    order[at] = at;
  }
}

__global__ void select_places(const int64_t* places, int64_t row_size, const int64_t* wanted,
                              Rows<1> wanted_rows, int64_t* out, Rows<1> out_rows, int64_t n,
                              KernelError* bad) {
  for (int64_t at = global_index(); at < n; at += global_size()) {
    const int64_t row = at / out_rows.n, i = at % out_rows.n;
    int64_t place = wanted[wanted_rows.outer.offset(0, row) + i * wanted_rows.step[0]];
    if (place < 0 || place >= row_size) note_error(bad, at, place);
    place = place < 0 ? 0 : place >= row_size ? row_size - 1 : place;
    out[out_rows.outer.offset(0, row) + i * out_rows.step[0]] = places[row * row_size + place] % row_size;
  }
}

__global__ void mark_new(const uint64_t* keys, int64_t* marks, int64_t n) {
  for (int64_t at = global_index(); at < n; at += global_size())
    marks[at] = at == 0 || keys[at] != keys[at - 1] ? 1 : 0;
}

/// numbers[i]: how many distinct elements there are among the first i + 1 sorted ones.
template <class Bits>
__global__ void store_unique(const Bits* x, Dims<1> x_dims, const int64_t* places, const int64_t* numbers,
                             Bits* values, int64_t values_step, int64_t* first, int64_t first_step,
                             int64_t* inverse, Dims<1> inverse_dims, int64_t* starts, int64_t* size,
                             int64_t n) {
  for (int64_t at = global_index(); at < n; at += global_size()) {
    const int64_t number = numbers[at] - 1, place = places[at];
    inverse[inverse_dims.offset(0, place)] = number;
    if (at == 0 || numbers[at - 1] <= number) {
      values[number * values_step] = x[x_dims.offset(0, place)];
      first[number * first_step] = place;
      starts[number] = at;
    }
    if (at == n - 1) *size = number + 1;
  }
}

/// Sets the counts, and zeros in the unused elements of the outputs.
template <class Bits>
__global__ void finish_unique(Bits* values, int64_t values_step, int64_t* first, int64_t first_step,
                              int64_t* counts, int64_t counts_step, const int64_t* starts,
                              const int64_t* size, int64_t n) {
  for (int64_t at = global_index(); at < n; at += global_size()) {
    const int64_t used = *size;
    if (at < used) {
      counts[at * counts_step] = (at + 1 < used ? starts[at + 1] : n) - starts[at];
    } else {
      values[at * values_step] = Bits{0};
      first[at * first_step] = 0;
      counts[at * counts_step] = 0;
    }
  }
}

__global__ void set_number(int64_t* to, int64_t value) {
  if (global_index() == 0) *to = value;
}

__global__ void search_elements(Elements sorted, int64_t step, int64_t count, Elements values, Dims<2> dims,
                                int64_t* out, bool behind, int64_t n) {
  for (int64_t index = global_index(); index < n; index += global_size()) {
    const uint64_t key = sort_key(values, dims.offset(1, index), false);
    int64_t low = 0, high = count;  // the result is in [low, high]
    while (low < high) {
      const int64_t middle = low + (high - low) / 2;
      const uint64_t there = sort_key(sorted, middle * step, false);
      if (behind ? there <= key : there < key) {
        low = middle + 1;
      } else {
        high = middle;
      }
    }
    out[dims.offset(0, index)] = low;
  }
}

int sorted_axis(int64_t axis, const Tensor& x, const char* op) {
  return normalize_axis(axis, std::max(x.rank(), 1), op);
}

/// Returns x, or for rank 0 a vector of its element.
Tensor with_axis(const Tensor& x) { return x.rank() > 0 ? x : Tensor{x.data, x.dtype, {1}, {1}}; }

}  // namespace

void sort(const KernelArgs& args) {
  const auto& attrs = args.attr<detail::SortAttrs>();
  const Tensor x = with_axis(args.in[0]);
  const int axis = sorted_axis(attrs.axis, x, "sort");
  const SortedPlaces sorted(args, x, axis, attrs.descending);
  take_values(args, with_axis(args.out[0]), x, sorted, axis);
}

void argsort(const KernelArgs& args) {
  const auto& attrs = args.attr<detail::SortAttrs>();
  const Tensor x = with_axis(args.in[0]);
  const int axis = sorted_axis(attrs.axis, x, "argsort");
  const SortedPlaces sorted(args, x, axis, attrs.descending);
  take_places(args, with_axis(args.out[0]), sorted, axis);
}

void topk(const KernelArgs& args) {
  const auto& attrs = args.attr<detail::TopKAttrs>();
  const Tensor x = with_axis(args.in[0]), values = with_axis(args.out[0]), indices = with_axis(args.out[1]);
  const int axis = sorted_axis(attrs.axis, x, "topk");
  if (values.numel() == 0) return;
  const SortedPlaces sorted(args, x, axis, attrs.largest);
  take_values(args, values, x, sorted, axis);
  take_places(args, indices, sorted, axis);
}

void argpartition(const KernelArgs& args) {
  const auto& attrs = args.attr<detail::PartitionAttrs>();
  const Tensor& x = args.in[0];
  const int64_t n = x.numel();
  if (n == 0) return;
  const int axis = sorted_axis(attrs.axis, x, "argpartition");
  const SortedPlaces sorted(args, x, axis, false);
  const Rows<1>& rows = sorted.rows();
  const Scratch memory(args, static_cast<size_t>(n) * 2 * (sizeof(uint64_t) + sizeof(int64_t)));
  auto* const keys = memory.as<uint64_t>();
  auto* const order = reinterpret_cast<int64_t*>(keys + 2 * n);
  launch_for(args, n, make_classes, elements_of(x), rows, sorted.places(),
             attrs.kth < 0 ? attrs.kth + rows.n : attrs.kth, keys, order, n);
  sort_pairs(args, keys, keys + n, order, order + n, n, 0, 2 + bits_of(rows.rows));
  launch_for(args, n, take_indices, static_cast<const int64_t*>(order + n), rows.n, args.out[0].as<int64_t>(),
             rows_of<1>({&args.out[0]}, axis), n);
}

void argselect(const KernelArgs& args) {
  const Tensor &x = args.in[0], &places = args.in[1], &out = args.out[0];
  if (out.numel() == 0) return;
  const int axis = x.rank() - 1;
  if (x.shape[axis] == 0)
    throw InvalidArgument(kernels::detail::no_place_for_indices("argselect", axis, places.numel()));
  const SortedPlaces sorted(args, x, axis, false);
  BadValues bad(args, [axis, size = x.shape[axis], shape = places.shape](const KernelError& e) {
    return kernels::detail::bad_index("argselect", 0, size, axis, e.value,
                                      kernels::detail::position_of(e.place, shape));
  });
  launch_for(args, out.numel(), select_places, sorted.places(), sorted.rows().n,
             static_cast<const int64_t*>(places.as<int64_t>()), rows_of<1>({&places}, axis),
             out.as<int64_t>(), rows_of<1>({&out}, axis), out.numel(), bad.word());
  bad.check();
}

void unique(const KernelArgs& args) {
  const Tensor &x = args.in[0], &values = args.out[0], &first = args.out[1], &inverse = args.out[2],
               &counts = args.out[3], &size = args.out[4];
  const int64_t n = x.numel();
  if (n == 0) return launch(stream_of(args), 1, 1, 0, set_number, size.as<int64_t>(), int64_t{0});
  // All elements as one row: their places are their row-major indices.
  const Scratch copy(args, static_cast<size_t>(n) * size_of(x.dtype));
  const Tensor row{copy.data(), x.dtype, {n}, {1}};
  copy_elements(stream_of(args), {copy.data(), x.dtype, x.shape, contiguous_strides(x.shape)}, x);
  const SortedPlaces sorted(args, row, 0, false);
  const Scratch memory(args, static_cast<size_t>(n) * 3 * sizeof(int64_t));
  auto* const marks = memory.as<int64_t>();
  int64_t *const numbers = marks + n, *const starts = numbers + n;
  launch_for(args, n, mark_new, sorted.keys(), marks, n);
  running_sums(args, marks, numbers, n);
  visit_size(x.dtype, [&](auto width) {
    using Bits = typename decltype(width)::type;
    launch_for(args, n, store_unique<Bits>, static_cast<const Bits*>(copy.as<Bits>()), dims_of<1>({&row}),
               sorted.places(), static_cast<const int64_t*>(numbers), values.as<Bits>(), values.strides[0],
               first.as<int64_t>(), first.strides[0], inverse.as<int64_t>(), dims_of<1>({&inverse}), starts,
               size.as<int64_t>(), n);
    launch_for(args, n, finish_unique<Bits>, values.as<Bits>(), values.strides[0], first.as<int64_t>(),
               first.strides[0], counts.as<int64_t>(), counts.strides[0], static_cast<const int64_t*>(starts),
               static_cast<const int64_t*>(size.as<int64_t>()), n);
  });
}

void searchsorted(const KernelArgs& args) {
  const Tensor &sorted = args.in[0], &values = args.in[1], &out = args.out[0];
  launch_for(args, out.numel(), search_elements, elements_of(sorted), sorted.strides[0], sorted.shape[0],
             elements_of(values), dims_of<2>({&out, &values}), out.as<int64_t>(),
             args.attr<detail::SearchAttrs>().behind, out.numel());
}

}  // namespace mx::cuda
