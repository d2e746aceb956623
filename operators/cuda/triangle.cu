// tril and triu.
#include "ndarray/cuda/strided.cuh"
#include "operators/fill_records.h"

namespace mx::cuda {
namespace {

// The first array of the loop is the row-major order, so an index of the loop says row and column.
template <class Bits>
__global__ void copy_triangle(Bits* to, const Bits* from, Loop<3> loop, int64_t rows, int64_t columns,
                              int64_t k, bool lower) {
  for (int64_t i = global_index(); i < loop.plan.numel; i += global_size()) {
    int64_t at[3];
    element_offsets(loop.plan, loop.narrow, i, at);
    const int64_t column = i % columns, row = i / columns % rows;
    // Without overflow for any k: both differences lie between -rows and columns.
    const bool keep = lower ? column - row <= k : column - row >= k;
    to[at[1]] = keep ? from[at[2]] : Bits{0};
  }
}

void run_triangle(const KernelArgs& args, bool lower) {
  const Tensor &out = args.out[0], &x = args.in[0];
  const Tensor order = kernels::row_major_order(out.shape);
  const Loop<3> loop({&order, &out, &x});
  if (loop.empty()) return;
  visit_size(out.dtype, [&](auto size) {
    using Bits = typename decltype(size)::type;
    launch(stream_of(args), blocks_for(loop.plan.numel, kLoopThreads, 1 << 16), kLoopThreads, 0,
           copy_triangle<Bits>, out.as<Bits>(), static_cast<const Bits*>(x.as<Bits>()), loop,
           x.shape[x.rank() - 2], x.shape.back(), args.attr<detail::TriangleAttrs>().k, lower);
  });
}

}  // namespace

void tril(const KernelArgs& args) { run_triangle(args, true); }
void triu(const KernelArgs& args) { run_triangle(args, false); }

}  // namespace mx::cuda
