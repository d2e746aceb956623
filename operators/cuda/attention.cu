// Scaled dot-product attention, with or without a dropout of the weights, as defined in
// operators/kernels/attention.h. A block computes a tile of rows: it meets one tile of keys after the other,
// and carries along the maximum and the sum of the exponentials of each row.
#include "operators/cuda/attention.cuh"
#include "operators/cuda/group.cuh"
#include "operators/cuda_kernels.h"

namespace mx::cuda {
namespace {

using namespace attention_tiles;

/// The value combined over the threads beside each other.
template <class A, class F>
__device__ A over_row(A value, const F& combine) {
  for (int distance = 1; distance < kAcross; distance *= 2)
    value = combine(value, shuffle_xor(value, distance));
  return value;
}

/// Blocks have kColumns columns of y. If y has more of them, several blocks compute the same weights.
/// `keeps`: the rows of q stay in shared memory.
template <class A, int kRowsOfThread, int kColumns>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce<A, kColumns>)
    attention_rows(Problem p, Array4 y, Array4 sums, int64_t chunks, bool keeps) {
  using L = Layout<A, kRowsOfThread>;
  const BlockPlace block(chunks, parts(p.rows, L::kRows), p.heads, p.causal);
  const int64_t b = block.batch, h = block.head, g = p.group_of(h), first = block.tile * L::kRows;
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
  const int64_t end = p.keys_before(first + rows);
  for (int64_t j = 0; j < end; j += kOthers) {
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
      const A factor = now == top[i] ? A(1) : exp(top[i] - now);
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

  result.store({y, y.at(b, h, first), rows, p.values}, column,
               [&](int i, A sum) { return total[i] == A(0) ? A(0) : sum / total[i]; });
  if (block.chunk != 0 || across() != 0) return;
  unrolled<kRowsOfThread>([&](int i) {
    const int64_t row = first + down() + i * kDown;
    const A shift = is_out(top[i]) ? A(0) : top[i];
    if (row < p.rows) store(sums.elements, sums.at(b, h, row), shift + log(total[i]));
  });
}

template <class A, int kRowsOfThread, int kColumns>
void start(const KernelArgs& args, const Problem& p) {
  using L = Layout<A, kRowsOfThread>;
  const int64_t chunks = std::max<int64_t>(1, parts(p.values, kColumns));
  const bool keeps = L::bytes(L::slices(p.width)) <= kMostShared;
  launch(stream_of(args), whole_grid(p.batches * p.heads * parts(p.rows, L::kRows) * chunks), kThreads,
         L::bytes(keeps ? L::slices(p.width) : 1), attention_rows<A, kRowsOfThread, kColumns>, p,
         array_of(args.out[0]), array_of(args.out[1]), chunks, keeps);
}

void run(const KernelArgs& args, const Problem& p) {
  if (p.batches * p.heads * p.rows == 0) return;
  visit_real(args.in[0].dtype, [&]<class A>() {
    const bool few = p.rows <= kDown;  // such as the one row of the next token
    if (p.values <= 64 || kMostColumns<A> == 64)
      few ? start<A, 1, 64>(args, p) : start<A, kMostRows<A>, 64>(args, p);
    else
      few ? start<A, 1, kMostColumns<A>>(args, p) : start<A, kMostRows<A>, kMostColumns<A>>(args, p);
  });
}

}  // namespace

void attention(const KernelArgs& args) { run(args, problem_of(args, args.attr<AttentionAttrs>(), 0, 3)); }
void attention_dropout(const KernelArgs& args) { run(args, dropped_problem_of(args, 0, 3)); }

}  // namespace mx::cuda
