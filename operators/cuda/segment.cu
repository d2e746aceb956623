// Segments of rows: operators/kernels/sparse.h. The rows of a segment combine in a fixed order.
#include "ndarray/cuda/copy.h"
#include "operators/cuda/group.cuh"
#include "operators/cuda/offsets.cuh"
#include "operators/cuda/search.cuh"
#include "operators/cuda_kernels.h"
#include "operators/kernels/sparse.h"

namespace mx::cuda {
namespace {

using kernels::SegmentReduce;

/// The dimensions after the first one, of x and of the result, and the strides of the first one.
struct SegmentRows {
  Dims<2> inner;
  int64_t n = 1, x_step, y_step;

  SegmentRows(const Tensor& x, const Tensor& y) : x_step(x.strides[0]), y_step(y.strides[0]) {
    for (int d = x.rank() - 1; d > 0; --d) {
      inner.add(x.shape[d], {x.strides[d], y.strides[d]});
      n *= x.shape[d];
    }
  }
};

template <class A>
struct SegmentFold {
  SegmentReduce how;

  __device__ A start() const {
    if (how == SegmentReduce::max) return static_cast<A>(-INFINITY);
    return how == SegmentReduce::min ? static_cast<A>(INFINITY) : A{0};
  }
  __device__ A operator()(A a, A x) const {
    if (how == SegmentReduce::max) return x > a || x != x ? x : a;
    if (how == SegmentReduce::min) return x < a || x != x ? x : a;
    return a + x;
  }
  /// NaN of a maximum stays.
  __device__ A kept(A a, A x) const { return how >= SegmentReduce::max && a != a ? a : (*this)(a, x); }
};

/// A group computes one element of the result.
template <class A, int kLanes>
__global__ void __launch_bounds__(kBlock)
    fold_segments(Elements x, Elements y, Integers offsets, SegmentRows rows, int64_t entries, int64_t n,
                  SegmentFold<A> fold) {
  using G = Group<kLanes>;
  const int64_t index = G::row();
  if (index >= n) return;
  const int64_t s = index / rows.n, j = index - s * rows.n;
  const EntryRange range(offsets, s, entries);
  const int64_t from = rows.inner.offset(0, j);
  A value = fold.start();
  for (int64_t i = range.first + G::lane(); i < range.end; i += kLanes)
    value = fold.kept(value, load<A>(x, from + i * rows.x_step));
  value = G::all(value, [&](A a, A b) { return fold.kept(a, b); });
  const int64_t count = range.end - range.first;
  if (count == 0) value = A{0};
  if (fold.how == SegmentReduce::mean && count > 0) value = value / static_cast<A>(count);
  if (G::lane() == 0) store(y, rows.inner.offset(1, j) + s * rows.y_step, value);
}

/// A group computes one column of a segment.
template <class A, int kLanes>
__global__ void __launch_bounds__(kBlock)
    softmax_segments(Elements x, Elements y, Integers offsets, SegmentRows rows, int64_t entries, int64_t n) {
  using G = Group<kLanes>;
  const int64_t index = G::row();
  if (index >= n) return;
  const int64_t s = index / rows.n, j = index - s * rows.n;
  const EntryRange range(offsets, s, entries);
  const int64_t from = rows.inner.offset(0, j), to = rows.inner.offset(1, j);
  const SegmentFold<A> larger{SegmentReduce::max};
  A top = larger.start();
  for (int64_t i = range.first + G::lane(); i < range.end; i += kLanes)
    top = larger.kept(top, load<A>(x, from + i * rows.x_step));
  top = G::all(top, [&](A a, A b) { return larger.kept(a, b); });
  A total{0};
  for (int64_t i = range.first + G::lane(); i < range.end; i += kLanes)
    total += std::exp(load<A>(x, from + i * rows.x_step) - top);
  const A scale = A{1} / G::all(total, Add());
  for (int64_t i = range.first + G::lane(); i < range.end; i += kLanes)
    store(y, to + i * rows.y_step, std::exp(load<A>(x, from + i * rows.x_step) - top) * scale);
}

void check_segments(const KernelArgs& args, const char* op, const Tensor& offsets, int64_t rows) {
  const EntryCheck check{offsets, rows};
  BadValues bad(args, bad_entries(op, "offsets", check));
  note_bad_entries(args, check, bad.word());
  bad.check();
}

void fold_all(const KernelArgs& args, SegmentReduce how) {
  const Tensor &x = args.in[0], &offsets = args.in[1], &y = args.out[0];
  const int64_t n = y.numel();
  check_segments(args, name_of(how), offsets, x.shape[0]);
  if (n == 0) return;
  const SegmentRows rows(x, y);
  visit_real(x.dtype, [&]<class A>() {
    const auto run = [&](int lanes, auto kernel) {
      launch(stream_of(args), whole_grid(n, kBlock / lanes), kBlock, 0, kernel, elements_of(x),
             elements_of(y), Integers(offsets), rows, x.shape[0], n, SegmentFold<A>{how});
    };
    // Threads with one element each read neighbouring elements if the rows are long.
    rows.n >= kWarp / 2 ? run(1, fold_segments<A, 1>) : run(kWarp, fold_segments<A, kWarp>);
  });
}

template <class Bits>
__global__ void __launch_bounds__(kBlock)
    expand_segments(const Bits* x, Bits* y, Integers offsets, SegmentRows rows, int64_t segments, int64_t n) {
  for (int64_t index = global_index(); index < n; index += global_size()) {
    const int64_t i = index / rows.n, j = index - i * rows.n;
    // Empty segments have the same offset as the next one.
    const int64_t s = limited(count_below(offsets, segments + 1, i + 1) - 1, 0, segments - 1);
    y[rows.inner.offset(1, j) + i * rows.y_step] = x[rows.inner.offset(0, j) + s * rows.x_step];
  }
}

/// An id out of range is noted at its place, one that is below the id before it at ids.count + its place.
__global__ void __launch_bounds__(kBlock) check_ids(Integers ids, int64_t segments, KernelError* bad) {
  for (int64_t i = global_index(); i < ids.count; i += global_size()) {
    const int64_t id = ids[i], before = i > 0 ? ids[i - 1] : id;
    if (id < 0 || id >= segments) note_error(bad, i, id);
    if (before > id) note_error(bad, ids.count + i, id, before);
  }
}

__global__ void __launch_bounds__(kBlock)
    find_offsets(Integers ids, int64_t* offsets, int64_t step, int64_t n) {
  for (int64_t s = global_index(); s < n; s += global_size())
    offsets[s * step] = count_below(ids, ids.count, s);
}

}  // namespace

void segment_sum(const KernelArgs& args) { fold_all(args, SegmentReduce::sum); }
void segment_mean(const KernelArgs& args) { fold_all(args, SegmentReduce::mean); }
void segment_max(const KernelArgs& args) { fold_all(args, SegmentReduce::max); }
void segment_min(const KernelArgs& args) { fold_all(args, SegmentReduce::min); }

void segment_softmax(const KernelArgs& args) {
  const Tensor &x = args.in[0], &offsets = args.in[1], &y = args.out[0];
  check_segments(args, "segment_softmax", offsets, x.shape[0]);
  const SegmentRows rows(x, y);
  const int64_t n = (offsets.shape[0] - 1) * rows.n;
  if (n == 0) return;
  visit_real(x.dtype, [&]<class A>() {
    const auto run = [&](int lanes, auto kernel) {
      launch(stream_of(args), whole_grid(n, kBlock / lanes), kBlock, 0, kernel, elements_of(x),
             elements_of(y), Integers(offsets), rows, x.shape[0], n);
    };
    rows.n >= kWarp / 2 ? run(1, softmax_segments<A, 1>) : run(kWarp, softmax_segments<A, kWarp>);
  });
}

void segment_expand(const KernelArgs& args) {
  const Tensor &x = args.in[0], &offsets = args.in[1], &y = args.out[0];
  const int64_t n = y.numel(), segments = x.shape[0];
  check_segments(args, "segment_expand", offsets, y.shape[0]);
  if (n == 0 || segments == 0) return;  // rows of no segment are an error, which is noted
  visit_size(x.dtype, [&](auto tag) {
    using Bits = typename decltype(tag)::type;
    launch(stream_of(args), blocks_for(n, kBlock, 1 << 16), kBlock, 0, expand_segments<Bits>,
           static_cast<const Bits*>(x.as<Bits>()), y.as<Bits>(), Integers(offsets), SegmentRows(x, y),
           segments, n);
  });
}

void segment_offsets(const KernelArgs& args) {
  const Tensor &ids = args.in[0], &offsets = args.out[0];
  const int64_t n = ids.shape[0], segments = offsets.shape[0] - 1;
  BadValues bad(args, [n, segments](const KernelError& e) {
    constexpr const char* kOp = "segment_offsets";
    if (e.place >= n) return kernels::detail::bad_order(kOp, "ids", e.other, e.value, e.place - n);
    return segments == 0 ? kernels::detail::no_place_for_indices(kOp, 0, n)
                         : kernels::detail::bad_index(kOp, 0, segments, 0, e.value, {e.place});
  });
  if (n > 0)
    launch(stream_of(args), blocks_for(n, kBlock, 1 << 16), kBlock, 0, check_ids, Integers(ids), segments,
           bad.word());
  bad.check();
  launch(stream_of(args), blocks_for(offsets.shape[0], kBlock, 1 << 16), kBlock, 0, find_offsets,
         Integers(ids), offsets.as<int64_t>(), offsets.strides[0], offsets.shape[0]);
}

}  // namespace mx::cuda
