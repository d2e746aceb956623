// Reading at indices: take, gather, embedding, gather_nd, one_hot (operators/kernels/index.h).
//
// An index out of range is an error, which is noted by a pass of its own. It counts as the nearest one that
// is in range, so that nothing beyond an array is read.
#include <span>

#include "ndarray/cuda/strided.cuh"
#include "operators/cuda/index.cuh"
#include "operators/cuda_kernels.h"
#include "operators/indexing.h"
#include "operators/indexing_records.h"

namespace mx::cuda {
namespace {

using kernels::IndexMode;
using kernels::detail::Advanced;

/// target[e] = source[e + index[e] * step].
template <class Bits>
__global__ void __launch_bounds__(kLoopThreads)
    gather_elements(Bits* target, const Bits* source, Elements index, Loop<3> loop, ResolveIndex resolve,
                    int64_t step) {
  for (int64_t i = global_index(); i < loop.plan.numel; i += global_size()) {
    int64_t at[3];
    element_offsets(loop.plan, loop.narrow, i, at);
    target[at[0]] = source[at[1] + resolve(load<int64_t>(index, at[2])) * step];
  }
}

/// The three tensors have the target's shape; see operators/kernels/gather.cc. The indices have been checked.
void gather_from(const KernelArgs& args, const Tensor& target, const Tensor& source, const Tensor& index,
                 int64_t step, const ResolveIndex& resolve) {
  const Loop<3> loop({&target, &source, &index});
  if (loop.empty()) return;
  const unsigned blocks = blocks_for(loop.plan.numel, kLoopThreads, 1 << 16);
  visit_size(target.dtype, [&](auto tag) {
    using Bits = typename decltype(tag)::type;
    launch(stream_of(args), blocks, kLoopThreads, 0, gather_elements<Bits>, target.as<Bits>(),
           static_cast<const Bits*>(source.as<Bits>()), elements_of(index), loop, resolve, step);
  });
}

Tensor along_rest(const Tensor& source, const Advanced& way, const Shape& target) {
  return {source.data, source.dtype, target, way.with(source.strides, Shape::filled(way.shape.rank(), 0))};
}

Tensor along_indices(const Tensor& indices, const Tensor& source, const Advanced& way, const Shape& target) {
  const Tensor wide = indices.broadcast(way.shape);
  return {wide.data, wide.dtype, target, way.with(Shape::filled(source.rank(), 0), wide.strides)};
}

void take_along(const KernelArgs& args, int64_t axis, IndexMode mode, const char* op, bool from_end = true) {
  const Tensor &target = args.out[0], &source = args.in[0], &indices = args.in[1];
  const Advanced way(source.shape, {&indices, 1}, {axis}, -1, op);
  const int at = static_cast<int>(way.axes[0]);
  const int64_t size = source.shape[at];
  check_indices(args, op, indices, from_end ? -size : 0, size, at, mode);
  gather_from(args, target, along_rest(source, way, target.shape),
              along_indices(indices, source, way, target.shape), source.strides[at], {size, mode});
}

__global__ void __launch_bounds__(kLoopThreads)
    one_hot_elements(Elements target, Dims<1> dims, Elements indices, Dims<1> index_dims, int64_t n,
                     int64_t classes) {
  for (int64_t i = global_index(); i < n; i += global_size()) {
    const int64_t row = i / classes, c = i - row * classes;
    const int64_t index = load<int64_t>(indices, index_dims.offset(0, row));
    store(target, dims.offset(0, i), int64_t{index == c});
  }
}

}  // namespace

void take(const KernelArgs& args) {
  const auto& attrs = args.attr<mx::detail::TakeAttrs>();
  take_along(args, attrs.axis, mx::detail::index_mode(attrs.mode, "take"), "take");
}

void embedding(const KernelArgs& args) {
  take_along(args, 0, IndexMode::raise, "embedding", args.attr<detail::EmbeddingAttrs>().from_end);
}

void gather(const KernelArgs& args) {
  const Tensor &target = args.out[0], &source = args.in[0], &indices = args.in[1];
  const int at = normalize_axis(args.attr<mx::detail::GatherAttrs>().axis, source.rank(), "gather");
  Tensor from{source.data, source.dtype, target.shape, source.strides};
  from.strides[at] = 0;
  const int64_t size = source.shape[at];
  check_indices(args, "gather", indices, -size, size, at);
  gather_from(args, target, from, indices, source.strides[at], {size, IndexMode::raise});
}

void gather_nd(const KernelArgs& args) {
  const auto& attrs = args.attr<mx::detail::GatherNdAttrs>();
  const Tensor &target = args.out[0], &source = args.in[0];
  const std::span<const Tensor> indices = args.in.subspan(1);
  const Advanced way(source.shape, indices, attrs.axes, attrs.position, "gather_nd");
  check_advanced(args, way, source, indices, "gather_nd");
  if (target.numel() == 0) return;
  const Scratch memory(args, static_cast<size_t>(way.shape.numel()) * sizeof(int64_t));
  const Tensor offsets = locate(args, way, source, indices, memory.as<int64_t>());
  gather_from(args, target, along_rest(source, way, target.shape),
              along_indices(offsets, source, way, target.shape), 1, {kOffsets, IndexMode::raise});
}

void one_hot(const KernelArgs& args) {
  const Tensor &target = args.out[0], &indices = args.in[0];
  const int64_t n = target.numel(), classes = target.shape.back();
  check_indices(args, "one_hot", indices, 0, classes, indices.rank());
  if (n == 0) return;
  launch(stream_of(args), blocks_for(n, kLoopThreads, 1 << 16), kLoopThreads, 0, one_hot_elements,
         elements_of(target), dims_of<1>({&target}), elements_of(indices), dims_of<1>({&indices}), n,
         classes);
}

}  // namespace mx::cuda
