// The innermost part of gemm: a tile of C that stays in vector registers during the loop over k. Included
// once per instruction set, so it has no usual include guard.
#if defined(MX_GEMM_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#  ifdef MX_GEMM_TILE_INL_H_
#    undef MX_GEMM_TILE_INL_H_
#  else
#    define MX_GEMM_TILE_INL_H_
#  endif

#  include <hwy/cache_control.h>
#  include <hwy/highway.h>

#  include <array>
#  include <cstdint>
#  include <type_traits>
#  include <utility>

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

template <class T>
using Lanes = hn::ScalableTag<T>;

/// Elements in a vector.
template <class T>
inline constexpr int kLanes = static_cast<int>(hn::MaxLanes(Lanes<T>()));

/// Columns of a full tile: two vectors.
template <class T>
inline constexpr int kTileCols = 2 * kLanes<T>;

/// Rows of a full tile: as many as fit into the registers with two accumulators each, in addition to two
/// vectors of B and one element of A. Integers have small tiles, because larger ones would not be worth the
/// code.
#  if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
template <class T>
inline constexpr int kTileRows = std::is_floating_point_v<T> ? 14 : 4;
#  elif HWY_TARGET == HWY_EMU128 || HWY_TARGET == HWY_SCALAR
template <class T>
inline constexpr int kTileRows = 4;
#  else
template <class T>
inline constexpr int kTileRows = std::is_floating_point_v<T> ? 6 : 4;
#  endif

/// The arguments that are the same for all tiles of a block.
template <class T>
struct TileCall {
  int64_t k;
  int64_t a_rs, a_ks;  // strides of A between rows, and between columns
  int64_t c_rs;
  T alpha, beta;
  bool bias;
};

/// A source of a tile's operand B: rows at a constant distance.
template <class T>
struct EvenRows {
  const T* at;
  int64_t step;

  HWY_INLINE hn::Vec<Lanes<T>> load(int v) const { return hn::LoadU(Lanes<T>(), at + v * kLanes<T>); }
  HWY_INLINE void prefetch(int v) const { hwy::Prefetch(at + 8 * step + v * kLanes<T>); }
  HWY_INLINE void next() { at += step; }
};

/// Adds the products of A and B for `Rows` rows and `Vectors` vectors of columns to `sum`, which must be
/// zero. `source` supplies the rows of B: load(v) returns vector v of the current row, prefetch(v) fetches
/// that of a later row, and next() goes to the next row.
template <class T, int Rows, int Vectors, class Source>
HWY_INLINE void add_products(int64_t depth, const T* HWY_RESTRICT a, int64_t a_rs, int64_t a_ks,
                             Source source, hn::Vec<Lanes<T>> (&sum)[Rows][Vectors]) {
  const Lanes<T> d;
  using Vec = hn::Vec<Lanes<T>>;
  // Three rows share a base register: an address can scale the row stride by 0, 1 or 2.
  constexpr int kBases = (Rows + 2) / 3;
  const T* base[kBases];
  for (int g = 0; g < kBases; ++g) base[g] = a + 3 * g * a_rs;
  for (int64_t k = depth; k > 0; --k) {
    Vec row[Vectors];
    for (int v = 0; v < Vectors; ++v) row[v] = source.load(v);
#  pragma GCC unroll 16
    for (int i = 0; i < Rows; ++i) {
      const Vec element = hn::Set(d, base[i / 3][(i % 3) * a_rs]);
      for (int v = 0; v < Vectors; ++v) {
        if constexpr (std::is_floating_point_v<T>) {
          sum[i][v] = hn::MulAdd(element, row[v], sum[i][v]);
        } else {
          sum[i][v] = hn::Add(sum[i][v], hn::Mul(element, row[v]));
        }
      }
    }
    // The hardware prefetcher does not help, because each row starts a new stream.
    for (int v = 0; v < Vectors; ++v) source.prefetch(v);
    source.next();
    for (int g = 0; g < kBases; ++g) base[g] += a_ks;
  }
}

/// Computes C = alpha * A B + beta * C + bias for `Rows` rows and `Vectors` vectors of columns. Rows of B are
/// b_ks elements apart. Reads C only if beta is not 0.
template <class T, int Rows, int Vectors>
void tile(const TileCall<T>& call, const T* HWY_RESTRICT a, const T* HWY_RESTRICT b, int64_t b_ks,
          T* HWY_RESTRICT c, const T* HWY_RESTRICT bias) {
  const Lanes<T> d;
  using Vec = hn::Vec<Lanes<T>>;
  constexpr int kL = kLanes<T>;
  Vec sum[Rows][Vectors];
  // Unrolled early; otherwise the compiler would keep the sums in memory before and after the loop.
#  pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#  pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) sum[i][v] = hn::Zero(d);
      // C is needed at the end of the loop.
#  pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#  pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) hwy::Prefetch(c + i * call.c_rs + v * kL);
  add_products<T, Rows, Vectors>(call.k, a, call.a_rs, call.a_ks, EvenRows<T>{b, b_ks}, sum);

  const Vec alpha = hn::Set(d, call.alpha), beta = hn::Set(d, call.beta);
#  pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#  pragma GCC unroll 2
    for (int v = 0; v < Vectors; ++v) {
      T* const to = c + i * call.c_rs + v * kL;
      Vec value = hn::Mul(alpha, sum[i][v]);
      if (call.beta != T{0}) {
        if constexpr (std::is_floating_point_v<T>) {
          value = hn::MulAdd(beta, hn::LoadU(d, to), value);
        } else {
          value = hn::Add(value, hn::Mul(beta, hn::LoadU(d, to)));
        }
      }
      if (call.bias) value = hn::Add(value, hn::LoadU(d, bias + v * kL));
      hn::StoreU(value, d, to);
    }
  }
}

template <class T>
using Tile = void (*)(const TileCall<T>&, const T*, const T*, int64_t, T*, const T*);

namespace detail {
template <class T, int Vectors, size_t... I>
constexpr std::array<Tile<T>, sizeof...(I)> tiles_of(std::index_sequence<I...>) {
  return {tile<T, static_cast<int>(I) + 1, Vectors>...};
}
template <class T>
inline constexpr std::array<Tile<T>, kTileRows<T>> tiles[2] = {
    tiles_of<T, 1>(std::make_index_sequence<kTileRows<T>>()),
    tiles_of<T, 2>(std::make_index_sequence<kTileRows<T>>())};
}  // namespace detail

template <class T>
Tile<T> tile_of(int64_t rows, int vectors) {
  return detail::tiles<T>[vectors - 1][static_cast<size_t>(rows - 1)];
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // MX_GEMM_TILE_INL_H_
