// Writing at indices: scatter, index_update, put_nd, and the gradient of embedding
// (operators/kernels/index.h).
//
// Updates of one place are combined in their order, without atomic operations, so results repeat bit for bit.
// Every update is linked to the next one of the same place: by a search among the updates that may have the
// same place, or, if those are many, by sorting all updates by their place. Then the threads of the first
// update of each place follow this chain. An index out of range is an error; it counts as the nearest one in
// range.
#include <algorithm>

#include "ndarray/cuda/copy.h"
#include "operators/cuda/index.cuh"
#include "operators/cuda/prim.h"
#include "operators/cuda_kernels.h"
#include "operators/indexing.h"
#include "operators/indexing_records.h"

namespace mx::cuda {
namespace {

using kernels::IndexMode;
using kernels::Scatter;
using kernels::detail::Advanced;

__global__ void __launch_bounds__(kBlock) clear_marks(int32_t* marks, int64_t n) {
  const int64_t i = global_index();
  if (i < n) marks[i] = 0;
}

/// next[i] = the next update of the place of update i, n if there is none; and later[next[i]] = 1. `period`:
/// the updates of one place are among the elements i, i + stride, ... of a run of `period * stride` elements.
__global__ void __launch_bounds__(kBlock) find_next(const int64_t* places, int64_t n, int64_t period,
                                                    int64_t stride, int64_t* next, int32_t* later) {
  const int64_t i = global_index();
  if (i >= n) return;
  const int64_t place = places[i], end = (i / (period * stride) + 1) * (period * stride);
  int64_t j = i + stride;
  while (j < end && places[j] != place) j += stride;
  next[i] = j < end ? j : n;
  if (j < end) later[j] = 1;  // only this thread writes it
}

/// The keys have the order of the places, of which the lowest is `lowest`.
__global__ void __launch_bounds__(kBlock)
    place_keys(const int64_t* places, int64_t lowest, uint64_t* keys, int64_t* updates, int64_t n) {
  for (int64_t i = global_index(); i < n; i += global_size()) {
    keys[i] = static_cast<uint64_t>(places[i] - lowest);
    updates[i] = i;
  }
}

/// As find_next(), from the updates in the order of their places. Updates of one place are in their own
/// order.
__global__ void __launch_bounds__(kBlock)
    link_sorted(const uint64_t* keys, const int64_t* updates, int64_t n, int64_t* next, int32_t* later) {
  for (int64_t k = global_index(); k < n; k += global_size()) {
    const bool linked = k + 1 < n && keys[k + 1] == keys[k];
    next[updates[k]] = linked ? updates[k + 1] : n;
    later[updates[k]] = k > 0 && keys[k - 1] == keys[k] ? 1 : 0;
  }
}

template <class A>
__device__ A combined(Scatter how, A a, A b) {
  constexpr bool kInteger = static_cast<A>(0.5) == 0;
  switch (how) {
    case Scatter::set:
      return b;
    case Scatter::add:
      if constexpr (kInteger)
        return static_cast<A>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
      else
        return a + b;
    case Scatter::mul:
      if constexpr (kInteger)
        return static_cast<A>(static_cast<uint64_t>(a) * static_cast<uint64_t>(b));
      else
        return a * b;
    case Scatter::max:
      return a != a || a >= b ? a : b;
    case Scatter::min:
      break;
  }
  return a != a || a <= b ? a : b;
}

/// A block of elements for each update: number 0 of `block` is the target, 1 the updates.
template <class A>
__global__ void __launch_bounds__(kBlock)
    apply_updates(Elements target, Elements updates, const int64_t* places, Dims<1> starts, Dims<2> block,
                  int64_t size, const int64_t* next, const int32_t* later, int64_t n, Scatter how) {
  for (int64_t at = global_index(); at < n * size; at += global_size()) {
    int64_t i = at / size;
    if (later[i] != 0) continue;
    const int64_t element = at - i * size;
    const int64_t to = places[i] + block.offset(0, element), from = block.offset(1, element);
    A value = how == Scatter::set ? A(0) : load<A>(target, to);
    for (; i < n; i = next[i]) value = combined(how, value, load<A>(updates, from + starts.offset(0, i)));
    store(target, to, value);
  }
}

/// More updates than this that may have the same place are sorted. The search reads half of them for each
/// update; sorting reads and writes each a few times for every 8 bits of the largest place.
constexpr int64_t kSearched = 256;

/// Sets next and later as find_next() does.
void link_by_sorting(const KernelArgs& args, const Tensor& target, const int64_t* places, int64_t n,
                     int64_t* next, int32_t* later) {
  int64_t lowest = 0, highest = 0;
  for (int d = 0; d < target.rank(); ++d) {
    const int64_t reach = (target.shape[d] - 1) * target.strides[d];
    (reach < 0 ? lowest : highest) += reach;
  }
  const Scratch memory(args, static_cast<size_t>(n) * 4 * sizeof(int64_t));
  auto* const keys = memory.as<uint64_t>();
  uint64_t* const sorted = keys + n;
  auto* const updates = reinterpret_cast<int64_t*>(sorted + n);
  int64_t* const sorted_updates = updates + n;
  const unsigned blocks = blocks_for(n, kBlock, 1 << 16);
  launch(stream_of(args), blocks, kBlock, 0, place_keys, places, lowest, keys, updates, n);
  sort_pairs(args, keys, sorted, updates, sorted_updates, n, 0, std::max(1, bits_for(highest - lowest + 1)));
  launch(stream_of(args), blocks, kBlock, 0, link_sorted, static_cast<const uint64_t*>(sorted),
         static_cast<const int64_t*>(sorted_updates), n, next, later);
}

/// Combines block i of the updates, which begins at starts.offset(i), with the block of the target at
/// places[i].
void update(const KernelArgs& args, const Tensor& target, const Tensor& updates, const int64_t* places,
            const Dims<1>& starts, const Dims<2>& block, int64_t size, int64_t n, int64_t period,
            int64_t stride, Scatter how) {
  if (n == 0 || size == 0) return;
  const auto stream = stream_of(args);
  const Scratch memory(args, static_cast<size_t>(n) * (sizeof(int64_t) + sizeof(int32_t)));
  int64_t* const next = memory.as<int64_t>();
  int32_t* const later = reinterpret_cast<int32_t*>(next + n);
  if (period > kSearched) {
    link_by_sorting(args, target, places, n, next, later);
  } else {
    const unsigned blocks = whole_grid(n, kBlock);
    launch(stream, blocks, kBlock, 0, clear_marks, later, n);
    launch(stream, blocks, kBlock, 0, find_next, places, n, period, stride, next, later);
  }
  const auto apply = [&](auto kernel) {
    launch(stream, blocks_for(n * size, kBlock, 1 << 20), kBlock, 0, kernel, elements_of(target),
           elements_of(updates), places, starts, block, size, static_cast<const int64_t*>(next),
           static_cast<const int32_t*>(later), n, how);
  };
  if (!is_floating(target.dtype)) return apply(apply_updates<int64_t>);
  target.dtype == f64 ? apply(apply_updates<double>) : apply(apply_updates<float>);
}

/// Updates with the blocks that the indices `way` name: put_nd, index_update and embedding_gradient.
void update_at(const KernelArgs& args, const Tensor& target, const Advanced& way,
               std::span<const Tensor> indices, const Tensor& updates, Scatter how, const char* op) {
  const int64_t n = way.shape.numel();
  check_advanced(args, way, target, indices, op);
  if (n == 0 || updates.numel() == 0) return;
  const Scratch memory(args, static_cast<size_t>(n) * sizeof(int64_t));
  const Tensor places = locate(args, way, target, indices, memory.as<int64_t>());
  const Tensor to{target.data, target.dtype, way.rest(target.shape), way.rest(target.strides)};
  // The dimensions of the indices are at `position` of the updates.
  Tensor from = updates, start = updates;
  for (int d = 0; d < way.shape.rank(); ++d) {
    from.shape.erase(way.position);
    from.strides.erase(way.position);
  }
  start.shape = way.shape;
  start.strides = Strides::filled(way.shape.rank(), 0);
  for (int d = 0; d < way.shape.rank(); ++d) start.strides[d] = updates.strides[way.position + d];
  update(args, target, updates, places.as<int64_t>(), dims_of<1>({&start}), dims_of<2>({&to, &from}),
         to.numel(), n, n, 1, how);
}

void start_from(const KernelArgs& args) {
  if (args.out[0].data != args.in[0].data) copy_elements(stream_of(args), args.out[0], args.in[0]);
}

/// places[i] = offset of element i of the indices in the target, without the dimension `axis`, + index *
/// step.
__global__ void __launch_bounds__(kBlock) locate_lanes(int64_t* places, Elements index, Dims<2> dims,
                                                       int64_t n, ResolveIndex resolve, int64_t step) {
  for (int64_t i = global_index(); i < n; i += global_size())
    places[i] = dims.offset(1, i) + resolve(load<int64_t>(index, dims.offset(0, i))) * step;
}

__global__ void __launch_bounds__(kBlock) clear_elements(Elements target, Dims<1> dims, int64_t n) {
  for (int64_t i = global_index(); i < n; i += global_size()) store(target, dims.offset(0, i), int64_t{0});
}

void clear(const KernelArgs& args, const Tensor& target) {
  const int64_t n = target.numel();
  if (n == 0) return;
  launch(stream_of(args), blocks_for(n, kBlock, 1 << 16), kBlock, 0, clear_elements, elements_of(target),
         dims_of<1>({&target}), n);
}

}  // namespace

void scatter(const KernelArgs& args) {
  const auto& attrs = args.attr<mx::detail::UpdateAttrs>();
  start_from(args);
  const Tensor &target = args.out[0], &indices = args.in[1], updates = args.in[2].broadcast(indices.shape);
  const int axis = normalize_axis(attrs.axis, target.rank(), "scatter");
  const int64_t n = indices.numel(), size = target.shape[axis];
  check_indices(args, "scatter", indices, -size, size, axis);
  if (n == 0) return;
  Tensor lanes{target.data, target.dtype, indices.shape, target.strides};
  lanes.strides[axis] = 0;
  const Scratch memory(args, static_cast<size_t>(n) * sizeof(int64_t));
  launch(stream_of(args), blocks_for(n, kBlock, 1 << 16), kBlock, 0, locate_lanes, memory.as<int64_t>(),
         elements_of(indices), dims_of<2>({&indices, &lanes}), n, ResolveIndex{size, IndexMode::raise},
         target.strides[axis]);
  int64_t stride = 1;
  for (int d = axis + 1; d < indices.rank(); ++d) stride *= indices.shape[d];
  update(args, target, updates, memory.as<int64_t>(), dims_of<1>({&updates}), {}, 1, n, indices.shape[axis],
         stride, mx::detail::scatter_how(attrs.how, "scatter"));
}

void index_update(const KernelArgs& args) {
  const auto& attrs = args.attr<mx::detail::UpdateAttrs>();
  start_from(args);
  const Tensor &target = args.out[0], &indices = args.in[1];
  const int axis = normalize_axis(attrs.axis, target.rank(), "index_update");
  const Advanced way(target.shape, {&indices, 1}, {axis}, -1, "index_update");
  update_at(args, target, way, {&indices, 1}, args.in[2].broadcast(way.with(target.shape, indices.shape)),
            mx::detail::scatter_how(attrs.how, "index_update"), "index_update");
}

void put_nd(const KernelArgs& args) {
  const auto& attrs = args.attr<mx::detail::PutNdAttrs>();
  start_from(args);
  const Tensor& target = args.out[0];
  const std::span<const Tensor> indices = args.in.subspan(2);
  const Advanced way(target.shape, indices, attrs.axes, attrs.position, "put_nd");
  update_at(args, target, way, indices, args.in[1].broadcast(way.with(target.shape, way.shape)),
            mx::detail::scatter_how(attrs.how, "put_nd"), "put_nd");
}

void embedding_gradient(const KernelArgs& args) {
  const Tensor &target = args.out[0], &indices = args.in[0];
  const int64_t skip = args.attr<mx::detail::EmbeddingGradientAttrs>().skip_row;
  const Advanced way(target.shape, {&indices, 1}, {0}, -1, "embedding_gradient");
  check_indices(args, "embedding_gradient", indices, -target.shape[0], target.shape[0], 0);
  clear(args, target);
  update_at(args, target, way, {&indices, 1}, args.in[1], Scatter::add, "embedding_gradient");
  if (skip >= 0) clear(args, target.narrowed(0, skip, 1));
}

}  // namespace mx::cuda
