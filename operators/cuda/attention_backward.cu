// The gradients of scaled dot-product attention, as defined in operators/kernels/attention.h. The weights are
// computed again from the sums of the forward pass: once by the blocks that add up dq, a tile of rows each,
// and once by those that add up dk and dv, a tile of keys each.
#include "operators/cuda/attention.cuh"
#include "operators/cuda_kernels.h"
#include "operators/scratch.h"

namespace mx::cuda {
namespace {

using namespace attention_tiles;

/// The values of a row that its gradients need: dy, the logarithm of the row's sum, and the sum of dy * y.
struct Heads {
  Array4 dy, sums, delta;
};

/// Puts the weights of a tile in their places. `products`: of q and k. Weights that the dropout does not keep
/// get a sign, those of keys that do not take part are -infinity.
template <class A, int kRowsOfThread, bool kKeysAreOwn>
__device__ void put_weights(const Scores<A, kRowsOfThread, kKeysAreOwn>& tile, const Array4& sums,
                            const A (&products)[kRowsOfThread][kEach]) {
  tile.with_rows(sums, [&](int i, int n, A sum) {
    const A score = tile.score(products[i][n], i, n);
    A weight = static_cast<A>(-INFINITY);
    if (!is_out(score) && !is_out(sum))
      weight = std::copysign(exp(score - sum), tile.keeps(i, n) ? A(1) : A(-1));
    tile.weight(i, n) = weight;
  });
}

/// Replaces the weights by the gradients of the scores. `products`: of dy and v.
template <class A, int kRowsOfThread, bool kKeysAreOwn>
__device__ void put_gradients(const Scores<A, kRowsOfThread, kKeysAreOwn>& tile, const Array4& delta,
                              const A (&products)[kRowsOfThread][kEach]) {
  tile.with_rows(delta, [&](int i, int n, A less) {
    A& place = tile.weight(i, n);
    const A weight = place;
    place = is_out(weight) ? A(0) : std::fabs(weight) * (tile.dropped(products[i][n], i, n) - less);
  });
}

/// Writes the columns of a gradient from `column` on. `to`: the rows of the result.
template <class A, int kRowsOfThread, int kColumns>
__device__ void store_gradient(const Rows& to, int64_t column, A factor,
                               const Result<A, kRowsOfThread, kColumns>& result) {
  result.store(to, column, [factor](int, A sum) { return sum * factor; });
}

template <class A, int kRowsOfThread, int kColumns>
__global__ void __launch_bounds__(kThreads, kBlocksAtOnce<A, kColumns>)
    query_gradient(Problem p, Heads heads, Array4 dq, int64_t chunks, bool keeps) {
  using L = Layout<A, kRowsOfThread>;
  const BlockPlace block(chunks, parts(p.rows, L::kRows), p.heads, p.causal);
  const int64_t b = block.batch, h = block.head, g = p.group_of(h), first = block.tile * L::kRows;
  const int64_t column = block.chunk * kColumns;
  const int64_t rows = p.rows - first < L::kRows ? p.rows - first : L::kRows;
  A* const slice = dynamic_shared<A>();
  A* const slopes = slice + L::kOtherSlice;
  A* const slices = slopes + L::kWeights;
  const OwnRows<A, kRowsOfThread> q{{p.q, p.q.at(b, h, first), rows, p.width}, slices, keeps};
  const OwnRows<A, kRowsOfThread> dy{{heads.dy, heads.dy.at(b, h, first), rows, p.values},
                                     keeps ? slices + parts(p.width, L::kSlice) * L::kOwnSlice : slices,
                                     keeps};
  q.load_all();
  dy.load_all();

  Result<A, kRowsOfThread, kColumns> result;
  result.clear();
  const int64_t end = p.keys_before(first + rows);
  for (int64_t j = 0; j < end; j += kOthers) {
    const Rows keys{p.k, p.k.at(b, g, j), end - j, p.width};
    A products[kRowsOfThread][kEach];
    contract(products, q, keys, slice);
    Scores<A, kRowsOfThread, false> tile{p, b, h, first, j, slopes};
    tile.choose();
    put_weights(tile, heads.sums, products);
    contract(products, dy, {p.v, p.v.at(b, g, j), end - j, p.values}, slice);
    put_gradients(tile, heads.delta, products);
    result.multiply(slopes, keys, column, slice);
  }
  store_gradient({dq, dq.at(b, h, first), rows, p.width}, column, static_cast<A>(p.scale), result);
}

template <class A, int kRowsOfThread, int kColumns>
__global__ void __launch_bounds__(kThreads)
    key_gradients(Problem p, Heads heads, Array4 dk, Array4 dv, int64_t chunks, bool keeps) {
  using L = Layout<A, kRowsOfThread>;
  const BlockPlace block(chunks, parts(p.keys, L::kRows), p.groups, false);
  const int64_t b = block.batch, g = block.head, first = block.tile * L::kRows, shared = p.heads_of_group();
  const int64_t column = block.chunk * kColumns;
  const int64_t count = p.keys - first < L::kRows ? p.keys - first : L::kRows;
  A* const slice = dynamic_shared<A>();
  A* const weights = slice + L::kOtherSlice;
  A* const slices = weights + L::kWeights;
  const OwnRows<A, kRowsOfThread> k{{p.k, p.k.at(b, g, first), count, p.width}, slices, keeps};
  const OwnRows<A, kRowsOfThread> v{{p.v, p.v.at(b, g, first), count, p.values},
                                    keeps ? slices + parts(p.width, L::kSlice) * L::kOwnSlice : slices,
                                    keeps};
  k.load_all();
  v.load_all();

  Result<A, kRowsOfThread, kColumns> of_keys, of_values;
  of_keys.clear();
  of_values.clear();
  for (int64_t h = g * shared; h < (g + 1) * shared; ++h)
    for (int64_t r = p.first_row(first) / kOthers * kOthers; r < p.rows; r += kOthers) {
      const Rows q{p.q, p.q.at(b, h, r), p.rows - r, p.width};
      const Rows dy{heads.dy, heads.dy.at(b, h, r), p.rows - r, p.values};
      A products[kRowsOfThread][kEach];
      contract(products, k, q, slice);
      Scores<A, kRowsOfThread, true> tile{p, b, h, r, first, weights};
      tile.choose();
      put_weights(tile, heads.sums, products);
      of_values.template multiply<true>(weights, dy, column, slice);
      contract(products, v, dy, slice);
      put_gradients(tile, heads.delta, products);
      of_keys.multiply(weights, q, column, slice);
    }
  store_gradient({dk, dk.at(b, g, first), count, p.width}, column, static_cast<A>(p.scale), of_keys);
  store_gradient({dv, dv.at(b, g, first), count, p.values}, column, static_cast<A>(p.dropout.factor),
                 of_values);
}

/// delta = the sum of dy * y over each row. Threads beside each other have one row.
template <class A>
__global__ void __launch_bounds__(kThreads) row_products(Problem p, Array4 dy, Array4 y, Array4 delta) {
  const int64_t all = p.batches * p.heads * p.rows, place = static_cast<int64_t>(blockIdx.x) * kDown + down();
  const int64_t number = place < all ? place : all - 1;  // all threads of a warp take part in the sum
  const int64_t row = number % p.rows, h = number / p.rows % p.heads, b = number / p.rows / p.heads;
  A sum = 0;
  for (int64_t c = across(); c < p.values; c += kAcross)
    sum += load_real<A>(dy.elements, dy.at(b, h, row, c)) * load_real<A>(y.elements, y.at(b, h, row, c));
  sum = over_row(sum, [](A left, A right) { return left + right; });
  if (across() == 0 && place < all) store_real(delta.elements, delta.at(b, h, row), sum);
}

/// Where the gradients go.
struct Gradients {
  Array4 q, k, v;
};

template <class A, int kRowsOfThread, int kColumns>
void start(const KernelArgs& args, const Problem& p, const Heads& heads, const Gradients& to) {
  using L = Layout<A, kRowsOfThread>;
  const int64_t both = L::slices(p.width) + L::slices(p.values);
  const bool keeps = L::bytes(both) <= kMostShared;
  const size_t bytes = L::bytes(keeps ? both : 1);
  if (const int64_t heads_of_q = p.batches * p.heads; heads_of_q * p.rows > 0 && p.width > 0) {
    const int64_t chunks = parts(p.width, kColumns);
    launch(stream_of(args), whole_grid(heads_of_q * parts(p.rows, L::kRows) * chunks), kThreads, bytes,
           query_gradient<A, kRowsOfThread, kColumns>, p, heads, to.q, chunks, keeps);
  }
  const int64_t widest = std::max(p.width, p.values), groups = p.batches * p.groups;
  if (groups * p.keys > 0 && widest > 0) {
    const int64_t chunks = parts(widest, kColumns);
    launch(stream_of(args), whole_grid(groups * parts(p.keys, L::kRows) * chunks), kThreads, bytes,
           key_gradients<A, kRowsOfThread, kColumns>, p, heads, to.k, to.v, chunks, keeps);
  }
}

template <class A>
void start(const KernelArgs& args, const Problem& p, const Heads& heads, const Gradients& to) {
  if (std::max(p.width, p.values) <= 64)
    start<A, kMostRows<A>, 64>(args, p, heads, to);
  else
    start<A, kMostRows<A>, kMostColumns<A>>(args, p, heads, to);
}

void run(const KernelArgs& args, const Problem& p) {
  const Heads heads{array_of(args.in[0]), array_of(args.in[4]), array_of(args.in[5])};
  const Gradients to{array_of(args.out[0]), array_of(args.out[1]), array_of(args.out[2])};
  visit_real(args.in[1].dtype, [&]<class A>() { start<A>(args, p, heads, to); });
}

}  // namespace

void attention_backward(const KernelArgs& args) {
  run(args, problem_of(args, args.attr<AttentionAttrs>(), 1, 6));
}
void attention_dropout_backward(const KernelArgs& args) { run(args, dropped_problem_of(args, 1, 6)); }

void attention_packed_backward(const KernelArgs& args) {
  const detail::PackedSizes n(args.attr<AttentionPackedAttrs>(), args.in[1].shape);
  const Problem p = packed_problem_of(args, n, 1, 4);
  const Tensor &sums = args.in[3], &dqkv = args.out[0];
  const DType type = accumulation_type(dqkv.dtype);
  const Scratch memory(args, static_cast<size_t>(sums.numel()) * size_of(type));
  const Tensor delta{memory.data(), type, sums.shape, contiguous_strides(sums.shape)};
  const Heads heads{array_of(n.queries(args.in[0])), array_of(sums), array_of(delta)};
  const Gradients to{array_of(n.queries(dqkv)), array_of(n.keys(dqkv)), array_of(n.values(dqkv))};
  visit_real(args.in[1].dtype, [&]<class A>() {
    if (const int64_t rows = p.batches * p.heads * p.rows; rows > 0)
      launch(stream_of(args), whole_grid(parts(rows, kDown)), kThreads, 0, row_products<A>, p, heads.dy,
             array_of(n.queries(args.in[2])), heads.delta);
    start<A>(args, p, heads, to);
  });
}

}  // namespace mx::cuda
