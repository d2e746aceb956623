// Reading at indices: take, gather, embedding, gather_nd, one_hot (operators/kernels/index.h).
//
// An index out of range is an error (kernel_errors.cuh). It counts as the nearest one that is in range, so
// that nothing beyond an array is read.
#include <optional>
#include <span>
#include <utility>

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
                    int64_t step, KernelError* bad) {
  for (int64_t i = global_index(); i < loop.plan.numel; i += global_size()) {
    int64_t at[3];
    element_offsets(loop.plan, loop.narrow, i, at);
    const int64_t value = load<int64_t>(index, at[2]);
    if (resolve.refuses(value)) note_error(bad, i, value);
    target[at[0]] = source[at[1] + resolve(value) * step];
  }
}

/// The three tensors have the target's shape; see operators/kernels/gather.cc. `text` makes the message for a
/// bad index, whose place is that of the first element of the target that it selects.
void gather_from(const KernelArgs& args, const Tensor& target, const Tensor& source, const Tensor& index,
                 int64_t step, const ResolveIndex& resolve, BadValues::Text text) {
  const Loop<3> loop({&target, &source, &index});
  if (loop.empty()) return;
  check_axis("take", resolve.size, loop.plan.numel);
  const unsigned blocks = blocks_for(loop.plan.numel, kLoopThreads, 1 << 16);
  std::optional<BadValues> bad;
  if (resolve.mode == IndexMode::raise && resolve.size != kOffsets) bad.emplace(args, std::move(text));
  visit_size(target.dtype, [&](auto tag) {
    using Bits = typename decltype(tag)::type;
    launch(stream_of(args), blocks, kLoopThreads, 0, gather_elements<Bits>, target.as<Bits>(),
           static_cast<const Bits*>(source.as<Bits>()), elements_of(index), loop, resolve, step,
           bad ? bad->word() : nullptr);
  });
  if (bad) bad->check();
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
  // Of the target's position, the dimensions of the indices.
  const auto text = [=, size = source.shape[at], all = target.shape, first = way.position,
                     rank = indices.rank()](const KernelError& e) {
    const Shape position = kernels::detail::position_of(e.place, all);
    Shape own;
    for (int d = 0; d < rank; ++d) own.push_back(position[first + d]);
    return kernels::detail::bad_index(op, from_end ? -size : 0, size, at, e.value, own);
  };
  gather_from(args, target, along_rest(source, way, target.shape),
              along_indices(indices, source, way, target.shape), source.strides[at],
              {source.shape[at], mode, from_end}, text);
}

__global__ void __launch_bounds__(kLoopThreads)
    one_hot_elements(Elements target, Dims<1> dims, Elements indices, Dims<1> index_dims, int64_t n,
                     int64_t classes, KernelError* bad) {
  for (int64_t i = global_index(); i < n; i += global_size()) {
    const int64_t row = i / classes, c = i - row * classes;
    const int64_t index = load<int64_t>(indices, index_dims.offset(0, row));
    if (c == 0 && (index < 0 || index >= classes)) note_error(bad, row, index);
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
  gather_from(args, target, from, indices, source.strides[at], {source.shape[at], IndexMode::raise},
              bad_indices("gather", source.shape[at], at, indices.shape));
}

void gather_nd(const KernelArgs& args) {
  const auto& attrs = args.attr<mx::detail::GatherNdAttrs>();
  const Tensor &target = args.out[0], &source = args.in[0];
  const std::span<const Tensor> indices = args.in.subspan(1);
  const Advanced way(source.shape, indices, attrs.axes, attrs.position, "gather_nd");
  if (target.numel() == 0) return;
  const Scratch memory(args, static_cast<size_t>(way.shape.numel()) * sizeof(int64_t));
  const Tensor offsets =
      locate(args, way, source, indices, IndexMode::raise, memory.as<int64_t>(), "gather_nd");
  gather_from(args, target, along_rest(source, way, target.shape),
              along_indices(offsets, source, way, target.shape), 1, {kOffsets, IndexMode::raise}, {});
}

void one_hot(const KernelArgs& args) {
  const Tensor &target = args.out[0], &indices = args.in[0];
  const int64_t n = target.numel();
  if (n == 0) return;
  const int64_t classes = target.shape.back();
  BadValues bad(args, [classes, shape = indices.shape](const KernelError& e) {
    return kernels::detail::bad_index("one_hot", 0, classes, shape.rank(), e.value,
                                      kernels::detail::position_of(e.place, shape));
  });
  launch(stream_of(args), blocks_for(n, kLoopThreads, 1 << 16), kLoopThreads, 0, one_hot_elements,
         elements_of(target), dims_of<1>({&target}), elements_of(indices), dims_of<1>({&indices}), n, classes,
         bad.word());
  bad.check();
}

}  // namespace mx::cuda
