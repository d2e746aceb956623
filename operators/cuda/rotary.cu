// Rotary position embedding: operators/kernels/rotary.h. The angles' cosines and sines are computed once for
// each position, in double.
#include "operators/kernels/rotary.h"

#include "operators/cuda/group.cuh"
#include "operators/cuda_kernels.h"
#include "operators/rotary.h"
#include "operators/scratch.h"

namespace mx::cuda {
namespace {

using Rotary = kernels::RotaryParams;

/// Row l of the tables: the cosines of all pairs, then their sines.
template <class A>
__global__ void __launch_bounds__(kBlock) rotary_tables(A* tables, int64_t length, Rotary o) {
  const int64_t pairs = o.dims / 2;
  for (int64_t index = global_index(); index < length * pairs; index += global_size()) {
    const int64_t l = index / pairs, pair = index - l * pairs;
    const double angle = kernels::rotary_angle(static_cast<double>(o.offset + l), pair, o.dims, o.theta);
    const double sine = std::sin(angle);
    tables[l * o.dims + pair] = static_cast<A>(std::cos(angle));
    tables[l * o.dims + pairs + pair] = static_cast<A>(o.inverse ? -sine : sine);
  }
}

/// A thread turns one pair, or copies one number that does not turn. It reads before it writes, so y may be
/// x.
template <class A>
__global__ void __launch_bounds__(kBlock)
    rotary_rows(Elements x, Elements y, Rows<2> rows, const A* tables, int64_t length, Rotary o) {
  const int64_t pairs = o.dims / 2, work = rows.n - pairs;  // of a row
  for (int64_t index = global_index(); index < rows.rows * work; index += global_size()) {
    const int64_t row = index / work, k = index - row * work;
    const int64_t from = rows.outer.offset(0, row), to = rows.outer.offset(1, row);
    if (k >= pairs) {
      const int64_t i = k + pairs;
      store(y, to + i * rows.step[1], load<A>(x, from + i * rows.step[0]));
      continue;
    }
    const int64_t first = o.interleaved ? 2 * k : k, second = o.interleaved ? first + 1 : k + pairs;
    const A* const table = tables + row % length * o.dims;
    const A cosine = table[k], sine = table[pairs + k];
    const A a = load<A>(x, from + first * rows.step[0]), b = load<A>(x, from + second * rows.step[0]);
    store(y, to + first * rows.step[1], a * cosine - b * sine);
    store(y, to + second * rows.step[1], b * cosine + a * sine);
  }
}

}  // namespace

void rotary_embedding(const KernelArgs& args) {
  const auto& attrs = args.attr<RotaryAttrs>();
  const Tensor &x = args.in[0], &y = args.out[0];
  if (x.numel() == 0) return;
  const int rank = x.rank();
  const int64_t length = x.shape[rank - 2];
  const Rotary options{.theta = attrs.theta,
                       .offset = attrs.offset,
                       .dims = attrs.dims == 0 ? x.shape[rank - 1] : attrs.dims,
                       .interleaved = attrs.interleaved,
                       .inverse = attrs.inverse};
  const Rows<2> rows = rows_of<2>({&x, &y}, rank - 1);
  visit_real(x.dtype, [&]<class A>() {
    const Scratch tables(args, sizeof(A) * static_cast<size_t>(length * options.dims));
    const int64_t entries = length * (options.dims / 2);
    if (entries > 0)
      launch(stream_of(args), blocks_for(entries, kBlock, 1 << 16), kBlock, 0, rotary_tables<A>,
             tables.as<A>(), length, options);
    launch(stream_of(args), blocks_for(rows.rows * (rows.n - options.dims / 2), kBlock, 1 << 16), kBlock, 0,
           rotary_rows<A>, elements_of(x), elements_of(y), rows, static_cast<const A*>(tables.as<A>()),
           length, options);
  });
}

}  // namespace mx::cuda
