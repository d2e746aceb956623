// Products of tiles, shared by the attention kernels. The rows of a tile are in shared memory; a block of
// threads multiplies them and holds the results in registers.
//
// Two kinds of products are needed. contract() gives the scores of a tile, C = L R', for the rows L of the
// block and other rows R: it walks the width in slices, so no head is too wide. multiply() adds W X, for the
// weights W that are computed from the scores, and a tile X of rows. The source of the scheme is
// FlashAttention-2 (Dao, 2023), without tensor cores.
//
// Repeatable: each element is added up by one thread in the order of the rows, without atomics.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <utility>

#include "ndarray/cuda/strided.cuh"
#include "operators/attention.h"
#include "operators/attention_form.h"
#include "operators/cuda/random.cuh"

namespace mx::cuda::attention_tiles {

constexpr int kThreads = 128;              ///< of a block
constexpr int kAcross = 16;                ///< threads beside each other: they have the same rows
constexpr int kDown = kThreads / kAcross;  ///< threads below each other
constexpr int kOthers = 64;                ///< other rows of a tile
constexpr int kEach = kOthers / kAcross;   ///< other rows of a thread
constexpr size_t kSliceBytes = 128;        ///< of a row, in a slice
constexpr size_t kVectorBytes = 16;        ///< that a thread reads of shared memory at once
constexpr size_t kPieceBytes = size_t{8} << 10;
/// Blocks may have as much shared memory on GPUs of compute capability 8.0 and newer.
constexpr size_t kMostShared = size_t{99} << 10;

/// Calls f(0) to f(kCount - 1), in code without a loop: what f indexes with its argument can be in registers.
template <int kCount, class F>
__device__ inline void unrolled(const F& f) {
  [&]<int... k>(std::integer_sequence<int, k...>) { (f(k), ...); }
  (std::make_integer_sequence<int, kCount>());
}

/// Elements that a thread reads from shared memory at once.
template <class A>
struct alignas(kVectorBytes) Pack {
  static constexpr int kCount = kVectorBytes / sizeof(A);
  A v[kCount];
};

/// The layout of the shared memory of a block: slices of the block's own rows, a slice of other rows or a
/// piece of rows, and the weights. The rows of a thread are kDown rows apart, its other rows kAcross rows
/// apart, and its columns of a piece are packs that are kAcross packs apart. Rows are longer by a pack than
/// what they hold, so that threads beside each other read different banks.
template <class A, int kRowsOfThread>
struct Layout {
  static constexpr int kPack = Pack<A>::kCount;
  static constexpr int kRows = kRowsOfThread * kDown;  ///< the block's own rows
  static constexpr int kSlice = kSliceBytes / sizeof(A);
  static constexpr int kPitch = kSlice + kPack;
  static constexpr int kOwnSlice = kRows * kPitch, kOtherSlice = kOthers * kPitch;
  static constexpr int kWeightPitch = kOthers + kPack;
  static constexpr int kWeights = kRows * kWeightPitch;
  static_assert(kPieceBytes <= kOtherSlice * sizeof(A));

  static int64_t slices(int64_t width) { return (width + kSlice - 1) / kSlice; }
  /// With slices for `own` slices of the block's own rows.
  static size_t bytes(int64_t own) {
    return (static_cast<size_t>(own) * kOwnSlice + kOtherSlice + kWeights) * sizeof(A);
  }
};

/// An array of rank 4 or less; missing dimensions at the end have strides of 0.
struct Array4 {
  Elements elements{nullptr, DType::f32};
  int64_t strides[4] = {0, 0, 0, 0};
  bool packed = false;  ///< a pack of neighbours in a row can be read at once

  __device__ int64_t at(int64_t a, int64_t b, int64_t c, int64_t d = 0) const {
    return a * strides[0] + b * strides[1] + c * strides[2] + d * strides[3];
  }
};

inline Array4 array_of(const Tensor& t) {
  Array4 a;
  a.elements = elements_of(t);
  for (int d = 0; d < t.rank(); ++d) a.strides[d] = t.strides[d];
  const int64_t pack = t.dtype == DType::f64 ? Pack<double>::kCount : Pack<float>::kCount;
  a.packed = t.rank() == 4 && t.strides[3] == 1 &&
             reinterpret_cast<uintptr_t>(t.data) % (static_cast<size_t>(pack) * size_of(t.dtype)) == 0;
  for (int d = 0; d + 1 < t.rank(); ++d) a.packed = a.packed && t.strides[d] % pack == 0;
  return a;
}

/// The choices of a dropout: those of operators/kernels/attention.h.
struct Dropout {
  const int64_t* key = nullptr;  ///< null: every weight is kept as it is
  int64_t step = 0;
  double kept = 1, factor = 1;
};

struct Problem {
  Array4 q, k, v, mask;
  Dropout dropout;
  int64_t batches, heads, groups, rows, keys, width, values;
  double scale;
  bool causal, has_mask, bool_mask;
  int64_t offset;

  // Grids have fewer than 2^31 blocks, so heads do too. Divisions of 64-bit numbers are slow.
  __device__ int64_t heads_of_group() const {
    return static_cast<uint32_t>(heads) / static_cast<uint32_t>(groups);
  }
  __device__ int64_t group_of(int64_t head) const {
    return static_cast<uint32_t>(head) / static_cast<uint32_t>(heads_of_group());
  }
  /// Returns the number of keys in which any row before `end` may take part.
  __host__ __device__ int64_t keys_before(int64_t end) const {
    if (!causal || end + offset >= keys) return keys;
    return end + offset > 0 ? end + offset : 0;
  }
  /// Returns the first row that may take part in a key.
  __device__ int64_t first_row(int64_t key) const { return causal && key > offset ? key - offset : 0; }

  /// Returns whether the dropout keeps the weight of a row and a key.
  __device__ bool keeps(int64_t b, int64_t h, int64_t row, int64_t key) const {
    const KeyPlace place{dropout.key, dropout.step};
    const uint64_t at = place.offset() + static_cast<uint64_t>(((b * heads + h) * rows + row) * keys + key);
    const PhiloxWords words = philox_block(place.seed(), at / 2, 2);
    const uint64_t bits = at % 2 == 0 ? pair_of(words, 0) : pair_of(words, 1);
    return uniform53(bits) < dropout.kept;
  }
};

template <class A>
__device__ inline bool is_out(A score) {
  return isinf(score) && score < 0;
}

/// Consecutive rows of one head, and what of them is in shared memory.
struct Rows {
  const Array4& array;
  int64_t at;  ///< the offset of the first of them
  int64_t count, width;
};

template <class A, class T>
__device__ inline A converted(T x) {
  if constexpr (sizeof(T) == 2)
    return static_cast<A>(to_float(x));
  else
    return static_cast<A>(x);
}

/// Calls f.template operator()<T>() with the type of the elements, which are computed as A.
template <class A, class F>
__device__ inline void visit_stored(DType type, const F& f) {
  if constexpr (sizeof(A) == 8)
    f.template operator()<double>();
  else if (type == DType::f32)
    f.template operator()<float>();
  else if (type == DType::f16)
    f.template operator()<float16>();
  else
    f.template operator()<bfloat16>();
}

/// As load() and store(), for the types of visit_stored().
template <class A>
__device__ inline A load_real(const Elements& from, int64_t at) {
  A x;
  visit_stored<A>(from.type, [&]<class T>() { x = converted<A>(static_cast<const T*>(from.data)[at]); });
  return x;
}
template <class A>
__device__ inline void store_real(const Elements& to, int64_t at, A x) {
  visit_stored<A>(to.type, [&]<class T>() {
    T* const place = static_cast<T*>(to.data) + at;
    if constexpr (sizeof(T) != 2)
      *place = x;
    else if constexpr (std::is_same_v<T, float16>)
      *place = to_half(x);
    else
      *place = to_bfloat(x);
  });
}

/// Neighbouring elements that are read at once.
template <class T, int kCount>
struct alignas(kCount * sizeof(T)) Stored {
  T v[kCount];
};

/// As load_tile(), for arrays whose packs can be read at once. All are read before the first is needed.
template <class A, class T, int kCount, int kWidth, int kPitch>
__device__ inline void load_packs(A* to, const Rows& rows, int row, int64_t column) {
  constexpr int kPack = Pack<A>::kCount, kPacks = kWidth / kPack;
  constexpr int kLoads = (kCount * kPacks + kThreads - 1) / kThreads;  // of a thread
  const int64_t below = rows.count - row, beside = rows.width - column, pitch = rows.array.strides[2];
  const T* const from = static_cast<const T*>(rows.array.elements.data) + rows.at + row * pitch + column;
  const auto number = [](int n) { return n * kThreads + static_cast<int>(threadIdx.x); };
  Stored<T, kPack> stored[kLoads];
  unrolled<kLoads>([&](int n) {
    const int r = number(n) / kPacks, c = number(n) % kPacks * kPack;
    stored[n] = {};
    if (r >= kCount || r >= below || c >= beside) return;
    check_aligned(from + r * pitch + c, alignof(Stored<T, kPack>));
    stored[n] = *reinterpret_cast<const Stored<T, kPack>*>(from + r * pitch + c);
  });
  unrolled<kLoads>([&](int n) {
    const int r = number(n) / kPacks, c = number(n) % kPacks * kPack;
    if (r >= kCount) return;
    Pack<A> pack;
    unrolled<kPack>([&](int e) { pack.v[e] = converted<A>(stored[n].v[e]); });
    *reinterpret_cast<Pack<A>*>(to + r * kPitch + c) = pack;
  });
}

/// Copies kCount rows from row `row` on, and their kWidth columns from column `column` on, to shared memory;
/// zeros beyond the array.
template <class A, int kCount, int kWidth, int kPitch>
__device__ inline void load_tile(A* to, const Rows& rows, int row, int64_t column) {
  const Array4& a = rows.array;
  if (a.packed && rows.width % Pack<A>::kCount == 0)
    return visit_stored<A>(
        a.elements.type, [&]<class T>() { load_packs<A, T, kCount, kWidth, kPitch>(to, rows, row, column); });
  const int64_t below = rows.count - row, beside = rows.width - column;
  // The step is not a constant, so the compiler does not unroll the loop.
  for (int i = static_cast<int>(threadIdx.x); i < kCount * kWidth; i += static_cast<int>(blockDim.x)) {
    const int r = i / kWidth, c = i % kWidth;
    const int64_t at = rows.at + (row + r) * a.strides[2] + (column + c) * a.strides[3];
    to[r * kPitch + c] = r < below && c < beside ? load_real<A>(a.elements, at) : A(0);
  }
}

__device__ inline int across() { return static_cast<int>(threadIdx.x) % kAcross; }
__device__ inline int down() { return static_cast<int>(threadIdx.x) / kAcross; }

/// The value combined over the threads beside each other.
template <class A, class F>
__device__ inline A over_row(A value, const F& combine) {
  for (int distance = 1; distance < kAcross; distance *= 2)
    value = combine(value, shuffle_xor(value, distance));
  return value;
}

/// The block's own rows, of which slices are kept in shared memory: all, or the one in use.
template <class A, int kRowsOfThread>
struct OwnRows {
  using L = Layout<A, kRowsOfThread>;
  Rows rows;
  A* slices;
  bool all;

  __device__ A* slice(int64_t column) const {
    return all ? slices + column / L::kSlice * L::kOwnSlice : slices;
  }
  __device__ void load(int64_t column) const {
    load_tile<A, L::kRows, L::kSlice, L::kPitch>(slice(column), rows, 0, column);
  }
  __device__ void load_all() const {
    if (!all) return;
    for (int64_t column = 0; column < rows.width; column += L::kSlice) load(column);
  }
};

/// sums[i][j] = the product of the block's row down() + i * kDown and the other row across() + j * kAcross,
/// for kOthers other rows. Begins with a barrier, so the weights before may be replaced afterwards.
template <class A, int kRowsOfThread>
__device__ inline void contract(A (&sums)[kRowsOfThread][kEach], const OwnRows<A, kRowsOfThread>& own,
                                const Rows& others, A* slice) {
  using L = Layout<A, kRowsOfThread>;
  unrolled<kRowsOfThread>([&](int i) { unrolled<kEach>([&](int j) { sums[i][j] = A(0); }); });
  barrier();  // the memory of slices, pieces and weights is read no more
  for (int64_t column = 0; column < others.width; column += L::kSlice) {
    if (column != 0) barrier();  // the slices are read no more
    if (!own.all) own.load(column);
    load_tile<A, kOthers, L::kSlice, L::kPitch>(slice, others, 0, column);
    barrier();  // the slices have been written
    const A* const left = own.slice(column) + down() * L::kPitch;
    const A* const right = slice + across() * L::kPitch;
    const int64_t rest = others.width - column;
    const int here = rest < L::kSlice ? static_cast<int>(rest) : L::kSlice;
    for (int e = 0; e < here; e += L::kPack) {
      Pack<A> r[kEach];
      unrolled<kEach>(
          [&](int j) { r[j] = *reinterpret_cast<const Pack<A>*>(right + j * kAcross * L::kPitch + e); });
      unrolled<kRowsOfThread>([&](int i) {
        const Pack<A> l = *reinterpret_cast<const Pack<A>*>(left + i * kDown * L::kPitch + e);
        unrolled<L::kPack>([&](int n) { unrolled<kEach>([&](int j) { sums[i][j] += l.v[n] * r[j].v[n]; }); });
      });
    }
  }
}

/// The sums of a thread for kColumns columns of the result.
template <class A, int kRowsOfThread, int kColumns>
struct Result {
  using L = Layout<A, kRowsOfThread>;
  static constexpr int kPacks = kColumns / kAcross / L::kPack;  ///< of a thread, in a row
  static constexpr int kPiece = kPieceBytes / sizeof(A) / kColumns;
  static constexpr int kPerRow = kPacks * L::kPack;
  A sums[kRowsOfThread][kPerRow];

  __device__ void clear() {
    unrolled<kRowsOfThread>([&](int i) { unrolled<kPerRow>([&](int c) { sums[i][c] = A(0); }); });
  }

  /// Adds the products of the weights in shared memory with the columns from `column` on of the other rows.
  /// A weight of 0 adds nothing, even if the element is infinite or NaN; nor does a weight with a sign, if
  /// kSignsSkip. Begins with a barrier.
  template <bool kSignsSkip = false>
  __device__ void multiply(const A* weights, const Rows& others, int64_t column, A* piece) {
    const int end = others.count < kOthers ? static_cast<int>(others.count) : kOthers;
    for (int first = 0; first < end; first += kPiece) {
      barrier();  // the piece before is read no more; the weights have been written
      load_tile<A, kPiece, kColumns, kColumns>(piece, others, first, column);
      barrier();  // the piece has been written
      const A* const left = weights + down() * L::kWeightPitch + first;
      const A* const right = piece + across() * L::kPack;
      const int here = end - first < kPiece ? end - first : kPiece;
      for (int k = 0; k < here; k += L::kPack) {
        Pack<A> x[L::kPack][kPacks];
        unrolled<L::kPack>([&](int n) {
          unrolled<kPacks>([&](int c) {
            x[n][c] = *reinterpret_cast<const Pack<A>*>(right + (k + n) * kColumns + c * kAcross * L::kPack);
          });
        });
        unrolled<kRowsOfThread>([&](int i) {
          const Pack<A> w = *reinterpret_cast<const Pack<A>*>(left + i * kDown * L::kWeightPitch + k);
          unrolled<L::kPack>([&](int n) {
            if (w.v[n] == A(0) || (kSignsSkip && std::signbit(w.v[n]))) return;
            unrolled<kPerRow>([&](int c) { sums[i][c] += w.v[n] * x[n][c / L::kPack].v[c % L::kPack]; });
          });
        });
      }
    }
  }

  /// Writes f(i, sum) for the sums of the thread's rows i to the columns from `column` on of `to`.
  template <class F>
  __device__ void store(const Rows& to, int64_t column, const F& f) const {
    const int64_t at = to.at + column * to.array.strides[3];
    unrolled<kRowsOfThread>([&](int i) {
      unrolled<kPerRow>([&](int c) {
        const int row = down() + i * kDown,
                  beside = (c / L::kPack * kAcross + across()) * L::kPack + c % L::kPack;
        if (row < to.count && column + beside < to.width)
          store_real(to.array.elements, at + row * to.array.strides[2] + beside * to.array.strides[3],
                     f(i, sums[i][c]));
      });
    });
  }
};

/// The scores of a tile of rows and keys, of which a thread has kRowsOfThread * kEach. The block's own rows
/// are rows of q, or keys if kKeysAreOwn.
template <class A, int kRowsOfThread, bool kKeysAreOwn>
struct Scores {
  using L = Layout<A, kRowsOfThread>;
  static constexpr int kCount = kRowsOfThread * kEach;
  static_assert(kCount <= 32);
  static constexpr int kRows = kKeysAreOwn ? kOthers : L::kRows, kKeys = kKeysAreOwn ? L::kRows : kOthers;

  const Problem& p;
  int64_t batch, head, first_row, first_key;
  A* weights;                     ///< kWeights elements of shared memory
  unsigned in = ~0u, kept = ~0u;  ///< bit i * kEach + n: the key takes part, the dropout keeps the weight

  __device__ int64_t row(int i, int n) const {
    return first_row + (kKeysAreOwn ? across() + n * kAcross : down() + i * kDown);
  }
  __device__ int64_t key(int i, int n) const {
    return first_key + (kKeysAreOwn ? down() + i * kDown : across() + n * kAcross);
  }
  /// The place of a weight of this thread.
  __device__ A& weight(int i, int n) const {
    return weights[(down() + i * kDown) * L::kWeightPitch + across() + n * kAcross];
  }

  /// Sets `in` and `kept`. Entries of a mask that is added go to the places of the weights. Loops that are
  /// not unrolled keep masks and dropouts out of the code of those that are.
  __device__ void choose() {
    const bool inside = first_row + kRows <= p.rows && first_key + kKeys <= p.keys;
    if (!inside || p.has_mask || (p.causal && first_key + kKeys - 1 > first_row + p.offset)) {
      in = 0;
      for (int e = 0; e < kCount; ++e) in |= takes_part(e / kEach, e % kEach) ? 1u << e : 0u;
    }
    if (p.dropout.key == nullptr) return;
    kept = 0;
    for (int e = 0; e < kCount; ++e)
      kept |= p.keeps(batch, head, row(e / kEach, e % kEach), key(e / kEach, e % kEach)) ? 1u << e : 0u;
  }

  /// Returns the score of a product; -infinity if the key does not take part.
  __device__ A score(A product, int i, int n) const {
    if ((in >> (i * kEach + n) & 1) == 0) return static_cast<A>(-INFINITY);
    const A score = product * static_cast<A>(p.scale);
    return p.has_mask && !p.bool_mask ? score + weight(i, n) : score;
  }
  __device__ bool keeps(int i, int n) const { return (kept >> (i * kEach + n) & 1) != 0; }
  /// Returns the weight, or its gradient, behind the dropout.
  __device__ A dropped(A value, int i, int n) const {
    return keeps(i, n) ? value * static_cast<A>(p.dropout.factor) : A(0);
  }

  /// Calls f(i, n, x) for each score of this thread, where x is the element of its row; 0 beyond the last
  /// row.
  template <class F>
  __device__ void with_rows(const Array4& of_rows, const F& f) const {
    const auto element = [&](int64_t r) {
      return r < p.rows ? load_real<A>(of_rows.elements, of_rows.at(batch, head, r)) : A(0);
    };
    if constexpr (kKeysAreOwn) {
      unrolled<kEach>([&](int n) {
        const A x = element(row(0, n));
        unrolled<kRowsOfThread>([&](int i) { f(i, n, x); });
      });
    } else {
      unrolled<kRowsOfThread>([&](int i) {
        const A x = element(row(i, 0));
        unrolled<kEach>([&](int n) { f(i, n, x); });
      });
    }
  }

 private:
  __device__ bool takes_part(int i, int n) const {
    const int64_t r = row(i, n), k = key(i, n);
    if (r >= p.rows || k >= p.keys || (p.causal && k > r + p.offset)) return false;
    if (!p.has_mask) return true;
    const A entry = load<A>(p.mask.elements, p.mask.at(batch, head, r, k));
    if (p.bool_mask) return entry != A(0);
    weight(i, n) = entry;
    return true;
  }
};

/// The part of the result that a block computes. Blocks of one head follow each other; the tiles of `causal`
/// rows with the most keys come first.
struct BlockPlace {
  int64_t chunk, tile, head, batch;  ///< chunk: of the columns

  __device__ BlockPlace(int64_t chunks, int64_t tiles, int64_t heads, bool last_first) {
    uint32_t n = blockIdx.x;
    chunk = take(n, chunks);
    tile = take(n, tiles);
    head = take(n, heads);
    batch = n;
    if (last_first) tile = tiles - 1 - tile;
  }

 private:
  __device__ static int64_t take(uint32_t& n, int64_t size) {
    const uint32_t rest = n % static_cast<uint32_t>(size);
    n /= static_cast<uint32_t>(size);
    return rest;
  }
};

__host__ __device__ inline int64_t parts(int64_t n, int64_t each) { return (n + each - 1) / each; }

/// `mask` is the place of the mask among the inputs, if there is one.
inline Problem problem_of(const KernelArgs& args, const AttentionAttrs& attrs, const Tensor& q,
                          const Tensor& k, const Tensor& v, size_t mask) {
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
  p.scale = detail::attention_scale(attrs.scale, p.width);
  p.causal = attrs.causal;
  p.offset = std::clamp(attrs.causal_offset, -p.rows, p.keys);  // beyond, nothing changes
  p.has_mask = args.in.size() > mask;
  if (p.has_mask) {
    p.mask = array_of(args.in[mask].broadcast({p.batches, p.heads, p.rows, p.keys}));
    p.bool_mask = args.in[mask].dtype == bool_;
  }
  return p;
}

/// The inputs begin with q at `first`.
inline Problem problem_of(const KernelArgs& args, const AttentionAttrs& attrs, size_t first, size_t mask) {
  return problem_of(args, attrs, args.in[first], args.in[first + 1], args.in[first + 2], mask);
}

/// A packed attention; the array is input `packed`.
inline Problem packed_problem_of(const KernelArgs& args, const detail::PackedSizes& n, size_t packed,
                                 size_t mask) {
  const auto& a = args.attr<AttentionPackedAttrs>();
  const Tensor& qkv = args.in[packed];
  return problem_of(args, {.scale = a.scale, .causal = a.causal}, n.queries(qkv), n.keys(qkv), n.values(qkv),
                    mask);
}

/// With a dropout by the key at input `key`, behind which a mask may follow.
inline Problem dropped_problem_of(const KernelArgs& args, size_t first, size_t key) {
  const auto& attrs = args.attr<AttentionDropoutAttrs>();
  Problem p = problem_of(args, {attrs.scale, attrs.causal, attrs.causal_offset}, first, key + 1);
  if (attrs.p > 0)
    p.dropout = {args.in[key].as<int64_t>(), args.in[key].strides[0], 1 - attrs.p,
                 attrs.p < 1 ? 1 / (1 - attrs.p) : 0};
  return p;
}

/// The most rows of a thread, and the most columns of a block's results, that registers hold.
template <class A>
inline constexpr int kMostRows = 32 / static_cast<int>(sizeof(A));
template <class A>
inline constexpr int kMostColumns = 512 / static_cast<int>(sizeof(A));
/// Blocks that run on one multiprocessor at once, as far as registers allow without spilling them.
template <class A, int kColumns>
inline constexpr int kBlocksAtOnce = sizeof(A) == 4 && kColumns <= 64 ? 3 : 2;

}  // namespace mx::cuda::attention_tiles
