// Scaled dot-product attention, with or without a dropout of the weights, as defined in
// operators/kernels/attention.h. A block computes a tile of rows: it meets one tile of keys after the other,
// and carries along the maximum and the sum of the exponentials of each row.
//
// If there are few rows and heads, but many keys, several blocks share the keys of a tile
// (attention_parts.h). Each leaves the maximum, the sum and the weighted values of its part in memory, and a
// second kernel joins the parts in their order.
#include <algorithm>

#include "operators/cuda/attention.cuh"
#include "operators/cuda/attention_parts.h"
#include "operators/cuda/group.cuh"
#include "operators/cuda_kernels.h"
#include "operators/scratch.h"

namespace mx::cuda {
namespace {

using namespace attention_tiles;

/// Returns the factor that makes sums of exponentials less `top` those of exponentials less `now`.
template <class A>
__device__ A rescaled(A top, A now) {
  return now == top ? A(1) : exp(top - now);
}

/// Blocks have kColumns columns of y. If y has more of them, several blocks compute the same weights.
/// `keeps`: the rows of q stay in shared memory. With kInParts, all rows are in one tile, and a block has one
/// of the parts of the keys. It writes the sums of the weighted values to `y`, and to `sums` the maximum and
/// the sum of the exponentials; both have these for one part after the other.
template <class A, int kRowsOfThread, int kColumns, bool kInParts>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce<A, kColumns>)
    attention_rows(Problem p, Array4 y, Array4 sums, int64_t chunks, bool keeps, KeyParts divided) {
  using L = Layout<A, kRowsOfThread>;
  const BlockPlace block(chunks, kInParts ? divided.count : parts(p.rows, L::kRows), p.heads,
                         !kInParts && p.causal);
  const int64_t b = block.batch, h = block.head, g = p.group_of(h);
  const int64_t part = kInParts ? block.tile : 0, first = kInParts ? 0 : block.tile * L::kRows;
  const int64_t column = block.chunk * kColumns;
  const int64_t rows = p.rows - first < L::kRows ? p.rows - first : L::kRows;
  A* const slice = dynamic_shared<A>();
  A* const weights = slice + L::kOtherSlice;
  const OwnRows<A, kRowsOfThread> own{
      {p.q, p.q.at(b, h, first), rows, p.width}, weights + L::kWeights, keeps};
  own.load_all();

  A top[kRowsOfThread], total[kRowsOfThread];
  unrolled<kRowsOfThread>([&](int i) {
    top[i] = static_cast<A>(-INFINITY);
    total[i] = A(0);
  });
  Result<A, kRowsOfThread, kColumns> result;
  result.clear();
  int64_t begin = 0, end = p.keys_before(first + rows);
  if constexpr (kInParts) {
    begin = part * divided.keys;
    end = begin + divided.keys < end ? begin + divided.keys : end;
  }
  for (int64_t j = begin; j < end; j += kOthers) {
    A scores[kRowsOfThread][kEach];
    contract(scores, own, {p.k, p.k.at(b, g, j), end - j, p.width}, slice);
    Scores<A, kRowsOfThread, false> tile{p, b, h, first, j, weights};
    tile.choose();
    unrolled<kRowsOfThread>([&](int i) {
      A now = top[i];
      unrolled<kEach>([&](int n) {
        scores[i][n] = tile.score(scores[i][n], i, n);
        now = Larger()(now, scores[i][n]);
      });
      now = over_row(now, Larger());
      // A row without keys has no exponentials; NaN stays NaN.
      const A shift = is_out(now) ? A(0) : now;
      const A factor = rescaled(top[i], now);
      A sum = 0;
      unrolled<kEach>([&](int n) {
        const A weight = exp(scores[i][n] - shift);
        sum += weight;
        tile.weight(i, n) = tile.dropped(weight, i, n);
      });
      total[i] = total[i] * factor + over_row(sum, Add());
      top[i] = now;
      // A weight that has become 0 takes infinite values with it.
      unrolled<decltype(result)::kPerRow>(
          [&](int c) { result.sums[i][c] = factor == A(0) ? A(0) : result.sums[i][c] * factor; });
    });
    result.multiply(weights, {p.v, p.v.at(b, g, j), end - j, p.values}, column, slice);
  }

  if constexpr (kInParts) {
    result.store({y, y.at(b, h, 0, part * p.values), rows, p.values}, column,
                 [&](int, A sum) { return sum; });
    if (block.chunk != 0 || across() != 0) return;
    unrolled<kRowsOfThread>([&](int i) {
      const int64_t row = down() + i * kDown, at = sums.at(b, h, row, 2 * part);
      if (row >= p.rows) return;
      store_real(sums.elements, at, top[i]);
      store_real(sums.elements, at + 1, total[i]);
    });
    return;
  }
  result.store({y, y.at(b, h, first), rows, p.values}, column,
               [&](int i, A sum) { return total[i] == A(0) ? A(0) : sum / total[i]; });
  if (block.chunk != 0 || across() != 0) return;
  unrolled<kRowsOfThread>([&](int i) {
    const int64_t row = first + down() + i * kDown;
    const A shift = is_out(top[i]) ? A(0) : top[i];
    if (row < p.rows) store(sums.elements, sums.at(b, h, row), shift + log(total[i]));
  });
}

/// Computes a row of y from the parts of its keys, which attention_rows() has written. A block has a row.
template <class A>
__global__ void __launch_bounds__(kThreads)
    join_parts(Problem p, int64_t count, const A* of_parts, const A* weighted, Array4 y, Array4 sums) {
  const auto number = static_cast<int64_t>(blockIdx.x);
  const int64_t row = number % p.rows, h = number / p.rows % p.heads, b = number / p.rows / p.heads;
  const A* const pairs = of_parts + number * count * 2;
  A top = static_cast<A>(-INFINITY), total = 0;
  for (int64_t part = 0; part < count; ++part) top = Larger()(top, pairs[2 * part]);
  for (int64_t part = 0; part < count; ++part) total += pairs[2 * part + 1] * rescaled(pairs[2 * part], top);
  for (int64_t c = threadIdx.x; c < p.values; c += kThreads) {
    const A* const values = weighted + number * count * p.values + c;
    A sum = 0;
    for (int64_t part = 0; part < count; ++part) {
      const A factor = rescaled(pairs[2 * part], top);
      // A weight that has become 0 takes infinite values with it.
      if (factor != A(0)) sum += values[part * p.values] * factor;
    }
    store_real(y.elements, y.at(b, h, row, c), total == A(0) ? A(0) : sum / total);
  }
  if (threadIdx.x == 0) store(sums.elements, sums.at(b, h, row), (is_out(top) ? A(0) : top) + log(total));
}

/// A contiguous array (batch, head, row, n) of type A.
template <class A>
Array4 scratch_array(const Problem& p, A* data, int64_t n) {
  Array4 a;
  a.elements = {data, dtype_of<A>};
  const int64_t strides[] = {p.heads * p.rows * n, p.rows * n, n, 1};
  std::copy_n(strides, 4, a.strides);
  return a;
}

template <class A, int kRowsOfThread, int kColumns>
void start(const KernelArgs& args, const Problem& p, const Array4& y, const Array4& sums) {
  using L = Layout<A, kRowsOfThread>;
  const int64_t chunks = std::max<int64_t>(1, parts(p.values, kColumns));
  const bool keeps = L::bytes(L::slices(p.width)) <= kMostShared;
  const size_t shared = L::bytes(keeps ? L::slices(p.width) : 1);
  const int64_t blocks = p.batches * p.heads * parts(p.rows, L::kRows) * chunks;
  if constexpr (kRowsOfThread == 1) {
    // One tile has all rows, so it depends on the shapes, and with `causal` on the offset, only.
    const KeyParts divided = parts_of_keys(blocks, p.keys_before(p.rows));
    if (p.rows <= L::kRows && divided.count > 1) {
      const int64_t rows = p.batches * p.heads * p.rows;
      const Scratch memory(args, static_cast<size_t>(rows * divided.count * (p.values + 2)) * sizeof(A));
      A *const of_parts = memory.as<A>(), *const weighted = of_parts + rows * divided.count * 2;
      launch(stream_of(args), whole_grid(blocks * divided.count), kThreads, shared,
             attention_rows<A, kRowsOfThread, kColumns, true>, p,
             scratch_array(p, weighted, divided.count * p.values),
             scratch_array(p, of_parts, divided.count * 2), chunks, keeps, divided);
      launch(stream_of(args), whole_grid(rows), kThreads, 0, join_parts<A>, p, divided.count,
             static_cast<const A*>(of_parts), static_cast<const A*>(weighted), y, sums);
      return;
    }
  }
  launch(stream_of(args), whole_grid(blocks), kThreads, shared,
         attention_rows<A, kRowsOfThread, kColumns, false>, p, y, sums, chunks, keeps, KeyParts{1, p.keys});
}

void run(const KernelArgs& args, const Problem& p, const Tensor& result) {
  const Array4 y = array_of(result), sums = array_of(args.out[1]);
  if (p.batches * p.heads * p.rows == 0) return;
  visit_real(args.in[0].dtype, [&]<class A>() {
    const bool few = p.rows <= kDown;  // such as the one row of the next token
    if (p.values <= 64 || kMostColumns<A> == 64)
      few ? start<A, 1, 64>(args, p, y, sums) : start<A, kMostRows<A>, 64>(args, p, y, sums);
    else
      few ? start<A, 1, kMostColumns<A>>(args, p, y, sums)
          : start<A, kMostRows<A>, kMostColumns<A>>(args, p, y, sums);
  });
}

}  // namespace

void attention(const KernelArgs& args) {
  run(args, problem_of(args, args.attr<AttentionAttrs>(), 0, 3), args.out[0]);
}
void attention_dropout(const KernelArgs& args) { run(args, dropped_problem_of(args, 0, 3), args.out[0]); }
void attention_packed(const KernelArgs& args) {
  const detail::PackedSizes n(args.attr<AttentionPackedAttrs>(), args.in[0].shape);
  run(args, packed_problem_of(args, n, 0, 1), n.queries(args.out[0]));
}

}  // namespace mx::cuda
