#include "operators/reduction_custom.h"

#include <cstdint>

#include "operators/elementwise_binary.h"
#include "operators/reduce_gradient.h"
#include "operators/reduce_shape.h"

namespace mx::detail {

FoldJob::FoldJob(const Tensor& input, const Tensor& output, const Shape& axes)
    : in(input),
      out(output),
      plan(input, output, normalize_axes(axes, input.rank(), "reduce"), false),
      columns(plan.by_columns()),
      width(std::min(plan.kept.shape[0], kFoldTile)) {
  const int64_t line = std::max<int64_t>(1, plan.kept.shape[0]);
  tiles_per_line = (line + kFoldTile - 1) / kFoldTile;
  tiles = plan.kept_count / line * tiles_per_line;
  // Blocks consist of whole runs. Their size depends only on shape and layout, so results do not depend on
  // the number of threads.
  block = kFoldTask;
  while (columns && block > kFoldRun && block * width > kFoldTask) block /= 2;
  blocks = std::max<int64_t>(1, (plan.reduced_count + block - 1) / block);
}

void infer_reduction(InferContext& c, ReductionResult result, bool choosing) {
  const ReduceAttrs& attrs = c.attr<ReduceAttrs>();
  const DType number = is_floating(c.dtype(0)) ? c.dtype(0) : f32;
  c.output(reduced_shape(c, attrs.axes, attrs.keep_dims, choosing), result == ReductionResult::boolean ? bool_
                                                                    : result == ReductionResult::integer
                                                                        ? i64
                                                                        : number);
}

void set_reduced(GradientContext& g, NDArray (*derivative)(const NDArray& x, const NDArray& y)) {
  const NDArray& x = g.input(0);
  const NDArray head = with_reduced_dims(g, g.head());
  g.set(0, head.broadcast_to(x.shape()) * derivative(x, with_reduced_dims(g, g.output())));
}

std::vector<Sample> reduction_samples() {
  const NDArray x = array({{1.5f, -2.f, 0.25f}, {3.f, -0.5f, 2.f}});
  const NDArray y = (arange(-5., 7.) * 0.25f + 0.1f).reshape({2, 3, 2});
  return {{{x}, ReduceAttrs{}, "all of a matrix"},
          {{x}, ReduceAttrs{{0}}, "axes=(0,)"},
          {{x.transpose()}, ReduceAttrs{{-1}, true}, "the last axis of a transposed matrix, keep_dims"},
          {{y}, ReduceAttrs{{2, 0}}, "axes=(2, 0)"},
          {{y}, ReduceAttrs{{}, true}, "all, keep_dims"},
          {{x[0].select(0, 1)}, ReduceAttrs{}, "rank 0"}};
}

}  // namespace mx::detail
