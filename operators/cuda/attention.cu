// Scaled dot-product attention and its gradients, with or without a dropout of the weights, as defined in
// operators/kernels/attention.h: a plain version, in which a block computes the scores of one row of q (or of
// one key) with all keys (or rows) at a time.
#include <algorithm>
#include <cmath>

#include "operators/attention.h"
#include "operators/cuda/group.cuh"
#include "operators/cuda/random.cuh"
#include "operators/cuda_kernels.h"
#include "operators/scratch.h"

namespace mx::cuda {
namespace {

/// An array of rank 4 or less; missing dimensions at the end have strides of 0.
struct Array4 {
  Elements elements{nullptr, DType::f32};
  int64_t strides[4] = {0, 0, 0, 0};

  __device__ int64_t at(int64_t a, int64_t b, int64_t c, int64_t d = 0) const {
    return a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3];
  }
};

Array4 array_of(const Tensor& t) {
  Array4 a;
  a.elements = elements_of(t);
  for (int d = 0; d < t.rank(); ++d) a.strides[d] = t.strides[d];
  return a;
}

/// The choices of a dropout: those of operators/kernels/attention.h.
struct Dropout {
  const int64_t* key = nullptr;  ///< null: every weight is kept as it is
  int64_t step = 0;
  double kept = 1;
};

struct Problem {
  Array4 q, k, v, mask;
  Dropout dropout;
  int64_t batches, heads, groups, rows, keys, width, values;
  double scale;
  bool causal, has_mask, bool_mask;
  int64_t offset;

  __device__ int64_t group_of(int64_t head) const { return head / (heads / groups); }
  /// Returns the factor of the weight of a row and a key: 0 if the dropout does not keep the weight.
  template <class A>
  __device__ A kept(int64_t b, int64_t h, int64_t row, int64_t key) const {
    if (dropout.key == nullptr) return A(1);
    const KeyPlace place{dropout.key, dropout.step};
    const uint64_t at = place.offset() + static_cast<uint64_t>(((b * heads + h) * rows + row) * keys + key);
    const PhiloxWords words = philox_block(place.seed(), at / 2, 2);
    const bool keeps = uniform53(pair_of(words, static_cast<int>(at % 2))) < dropout.kept;
    return keeps ? static_cast<A>(1 / dropout.kept) : A(0);
  }
};

/// The score of a row and a key; -infinity if the key does not take part.
template <class A>
__device__ A score(const Problem& p, int64_t b, int64_t h, int64_t row, int64_t key) {
  if (p.causal && key > row + p.offset) return static_cast<A>(-INFINITY);
  const int64_t mask = p.mask.at(b, h, row, key);
  if (p.bool_mask && load<A>(p.mask.elements, mask) == A(0)) return static_cast<A>(-INFINITY);
  const int64_t q = p.q.at(b, h, row), k = p.k.at(b, p.group_of(h), key);
  A sum = 0;
  for (int64_t e = 0; e < p.width; ++e)
    sum += load<A>(p.q.elements, q + e * p.q.strides[3]) * load<A>(p.k.elements, k + e * p.k.strides[3]);
  sum *= static_cast<A>(p.scale);
  if (p.has_mask && !p.bool_mask) sum += load<A>(p.mask.elements, mask);
  return sum;
}

template <class A>
__global__ void __launch_bounds__(kBlock) attention_rows(Problem p, Array4 y, Array4 sums, A* memory) {
  using G = Group<kBlock>;
  const int64_t total = p.batches * p.heads * p.rows;
  A* const weights = memory + static_cast<int64_t>(blockIdx.x) * p.keys;
  for (int64_t r = blockIdx.x; r < total; r += gridDim.x) {
    const int64_t row = r % p.rows, h = r / p.rows % p.heads, b = r / p.rows / p.heads;
    A top = static_cast<A>(-INFINITY), sum = 0;
    for (int64_t j = G::lane(); j < p.keys; j += kBlock) {
      weights[j] = score<A>(p, b, h, row, j);
      top = Larger()(top, weights[j]);
    }
    top = G::all(top, Larger());
    // A row without keys has no exponentials; NaN stays NaN.
    const A shift = isinf(top) && top < 0 ? A(0) : top;
    for (int64_t j = G::lane(); j < p.keys; j += kBlock) {
      const A weight = exp(weights[j] - shift), kept = p.kept<A>(b, h, row, j);
      sum += weight;
      weights[j] = kept == A(0) ? A(0) : weight * kept;
    }
    sum = G::all(sum, Add());
    barrier();  // all weights have been written
    for (int64_t f = G::lane(); f < p.values; f += kBlock) {
      const int64_t v = p.v.at(b, p.group_of(h), 0, f);
      A value = 0;
      for (int64_t j = 0; j < p.keys; ++j)
        if (weights[j] != A(0)) value += weights[j] * load<A>(p.v.elements, v + j * p.v.strides[2]);
      store(y.elements, y.at(b, h, row, f), sum == A(0) ? A(0) : value / sum);
    }
    if (G::lane() == 0) store(sums.elements, sums.at(b, h, row), shift + log(sum));
    barrier();  // the weights are read no more
  }
}

/// The weight of a key behind the dropout, and the gradient of its score.
template <class A>
struct Slope {
  A weight, gradient;
};

template <class A>
__device__ Slope<A> slope(const Problem& p, const Array4& dy, const Array4& sums, const Array4& delta,
                          int64_t b, int64_t h, int64_t row, int64_t key) {
  const A level = load<A>(sums.elements, sums.at(b, h, row)), s = score<A>(p, b, h, row, key);
  if ((isinf(s) && s < 0) || (isinf(level) && level < 0)) return {A(0), A(0)};
  const int64_t head = dy.at(b, h, row), v = p.v.at(b, p.group_of(h), key);
  A product = 0;
  for (int64_t f = 0; f < p.values; ++f)
    product += load<A>(dy.elements, head + f * dy.strides[3]) * load<A>(p.v.elements, v + f * p.v.strides[3]);
  const A weight = exp(s - level), kept = p.kept<A>(b, h, row, key);
  const A change = (kept == A(0) ? A(0) : product * kept) - load<A>(delta.elements, delta.at(b, h, row));
  return {kept == A(0) ? A(0) : weight * kept, weight * change};
}

template <class A>
__global__ void __launch_bounds__(kBlock)
    query_gradient(Problem p, Array4 dy, Array4 sums, Array4 delta, Array4 dq, A* memory) {
  const int64_t total = p.batches * p.heads * p.rows;
  A* const slopes = memory + static_cast<int64_t>(blockIdx.x) * p.keys;
  for (int64_t r = blockIdx.x; r < total; r += gridDim.x) {
    const int64_t row = r % p.rows, h = r / p.rows % p.heads, b = r / p.rows / p.heads;
    for (int64_t j = threadIdx.x; j < p.keys; j += kBlock)
      slopes[j] = slope<A>(p, dy, sums, delta, b, h, row, j).gradient;
    barrier();
    for (int64_t e = threadIdx.x; e < p.width; e += kBlock) {
      const int64_t k = p.k.at(b, p.group_of(h), 0, e);
      A value = 0;
      for (int64_t j = 0; j < p.keys; ++j)
        if (slopes[j] != A(0)) value += slopes[j] * load<A>(p.k.elements, k + j * p.k.strides[2]);
      store(dq.elements, dq.at(b, h, row, e), value * static_cast<A>(p.scale));
    }
    barrier();  // the slopes are read no more
  }
}

template <class A>
__global__ void __launch_bounds__(kBlock)
    key_gradients(Problem p, Array4 dy, Array4 sums, Array4 delta, Array4 dk, Array4 dv, A* memory) {
  const int64_t total = p.batches * p.groups * p.keys, shared = p.heads / p.groups, each = shared * p.rows;
  A* const weights = memory + static_cast<int64_t>(blockIdx.x) * 2 * each;
  A* const slopes = weights + each;
  for (int64_t r = blockIdx.x; r < total; r += gridDim.x) {
    const int64_t key = r % p.keys, g = r / p.keys % p.groups, b = r / p.keys / p.groups;
    for (int64_t i = threadIdx.x; i < each; i += kBlock) {
      const Slope<A> s = slope<A>(p, dy, sums, delta, b, g * shared + i / p.rows, i % p.rows, key);
      weights[i] = s.weight;
      slopes[i] = s.gradient;
    }
    barrier();
    for (int64_t c = threadIdx.x; c < p.width + p.values; c += kBlock) {
      const bool of_key = c < p.width;
      const int64_t column = of_key ? c : c - p.width;
      const Array4& from = of_key ? p.q : dy;
      const A* const factors = of_key ? slopes : weights;
      A value = 0;
      for (int64_t h = 0; h < shared; ++h) {
        const int64_t first = from.at(b, g * shared + h, 0, column);
        for (int64_t i = 0; i < p.rows; ++i) {
          const A factor = factors[h * p.rows + i];
          if (factor != A(0)) value += factor * load<A>(from.elements, first + i * from.strides[2]);
        }
      }
      if (of_key)
        store(dk.elements, dk.at(b, g, key, column), value * static_cast<A>(p.scale));
      else
        store(dv.elements, dv.at(b, g, key, column), value);
    }
    barrier();  // weights and slopes are read no more
  }
}

/// The inputs begin with q at `first`. `mask` is the place of the mask, if there is one.
Problem problem_of(const KernelArgs& args, const AttentionAttrs& attrs, size_t first, size_t mask) {
  const Tensor &q = args.in[first], &k = args.in[first + 1], &v = args.in[first + 2];
  Problem p{};
  p.q = array_of(q);
  p.k = array_of(k);
  p.v = array_of(v);
  p.batches = q.shape[0];
  p.heads = q.shape[1];
  p.groups = k.shape[1];
  p.rows = q.shape[2];
  p.keys = k.shape[2];
  p.width = q.shape[3];
  p.values = v.shape[3];
  p.scale = attrs.scale != 0 ? attrs.scale : p.width > 0 ? 1 / std::sqrt(static_cast<double>(p.width)) : 1;
  p.causal = attrs.causal;
  p.offset = attrs.causal_offset;
  p.has_mask = args.in.size() > mask;
  if (p.has_mask) {
    p.mask = array_of(args.in[mask].broadcast({p.batches, p.heads, p.rows, p.keys}));
    p.bool_mask = args.in[mask].dtype == bool_;
  }
  return p;
}

/// With a dropout by the key at input `key`, behind which a mask may follow.
Problem dropped_problem_of(const KernelArgs& args, size_t first, size_t key) {
  const auto& attrs = args.attr<AttentionDropoutAttrs>();
  Problem p = problem_of(args, {attrs.scale, attrs.causal, attrs.causal_offset}, first, key + 1);
  if (attrs.p > 0) p.dropout = {args.in[key].as<int64_t>(), args.in[key].strides[0], 1 - attrs.p};
  return p;
}

/// Blocks of a loop over `count` rows or keys. They need memory each.
unsigned loop_blocks(int64_t count) { return static_cast<unsigned>(std::min<int64_t>(count, 1024)); }

void run_forward(const KernelArgs& args, const Problem& p) {
  const int64_t count = p.batches * p.heads * p.rows;
  if (count == 0) return;
  const unsigned blocks = loop_blocks(count);
  visit_real(args.in[0].dtype, [&]<class A>() {
    const Scratch memory(args, static_cast<size_t>(std::max<int64_t>(p.keys, 1)) * blocks * sizeof(A));
    launch(stream_of(args), blocks, kBlock, 0, attention_rows<A>, p, array_of(args.out[0]),
           array_of(args.out[1]), memory.as<A>());
  });
}

void run_backward(const KernelArgs& args, const Problem& p) {
  const Array4 dy = array_of(args.in[0]), sums = array_of(args.in[4]), delta = array_of(args.in[5]);
  visit_real(args.in[1].dtype, [&]<class A>() {
    if (const int64_t count = p.batches * p.heads * p.rows; count > 0) {
      const unsigned blocks = loop_blocks(count);
      const Scratch memory(args, static_cast<size_t>(std::max<int64_t>(p.keys, 1)) * blocks * sizeof(A));
      launch(stream_of(args), blocks, kBlock, 0, query_gradient<A>, p, dy, sums, delta, array_of(args.out[0]),
             memory.as<A>());
    }
    if (const int64_t count = p.batches * p.groups * p.keys; count > 0) {
      const unsigned blocks = loop_blocks(count);
      const int64_t each = std::max<int64_t>(1, 2 * p.heads / p.groups * p.rows);
      const Scratch memory(args, static_cast<size_t>(each) * blocks * sizeof(A));
      launch(stream_of(args), blocks, kBlock, 0, key_gradients<A>, p, dy, sums, delta, array_of(args.out[1]),
             array_of(args.out[2]), memory.as<A>());
    }
  });
}

}  // namespace

void attention(const KernelArgs& args) {
  run_forward(args, problem_of(args, args.attr<AttentionAttrs>(), 0, 3));
}
void attention_backward(const KernelArgs& args) {
  run_backward(args, problem_of(args, args.attr<AttentionAttrs>(), 1, 6));
}
void attention_dropout(const KernelArgs& args) { run_forward(args, dropped_problem_of(args, 0, 3)); }
void attention_dropout_backward(const KernelArgs& args) {
  run_backward(args, dropped_problem_of(args, 1, 6));
}

}  // namespace mx::cuda
