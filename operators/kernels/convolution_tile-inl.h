// The innermost part of convolutions: a tile of gemm whose operand B is read through a table of offsets.
// Included once per instruction set.
#if defined(MX_CONVOLUTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#  ifdef MX_CONVOLUTION_TILE_INL_H_
#    undef MX_CONVOLUTION_TILE_INL_H_
#  else
#    define MX_CONVOLUTION_TILE_INL_H_
#  endif

#  include <array>
#  include <cstdint>
#  include <utility>

#  include "operators/kernels/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

/// The number of entries that a table of offsets has beyond its depth, because tiles prefetch.
inline constexpr int64_t kOffsetsAhead = 8;

/// The arguments that are the same for all tiles of a block.
template <class T>
struct PatchCall {
  int64_t k;               // depth
  int64_t a_rs;            // between rows of A, whose columns are adjacent
  const int64_t* offsets;  // of the rows of B; k + kOffsetsAhead entries
  int64_t c_rs;
  bool accumulate;  // false: C is not read
};

/// A source of a tile's operand B: vectors at any addresses, and rows at the same offsets from each.
template <class T, int Vectors>
struct OffsetRows {
  const T* at[Vectors];
  const int64_t* offset;

  HWY_INLINE hn::Vec<Lanes<T>> load(int v) const { return hn::LoadU(Lanes<T>(), at[v] + *offset); }
  HWY_INLINE void prefetch(int v) const { hwy::Prefetch(at[v] + offset[kOffsetsAhead]); }
  HWY_INLINE void next() { ++offset; }
};

/// Computes C = A B + C + bias for `Rows` rows and `Vectors` vectors of columns. b and c have an address for
/// each vector. `bias` has an element for each row; null: no bias.
template <class T, int Rows, int Vectors>
void patch_tile(const PatchCall<T>& call, const T* HWY_RESTRICT a, const T* const* b, T* const* c,
                const T* HWY_RESTRICT bias) {
  const Lanes<T> d;
  using Vec = hn::Vec<Lanes<T>>;
  Vec sum[Rows][Vectors];
#  pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#  pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) sum[i][v] = hn::Zero(d);
#  pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i)
#  pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) hwy::Prefetch(c[v] + i * call.c_rs);
  OffsetRows<T, Vectors> source;
  for (int v = 0; v < Vectors; ++v) source.at[v] = b[v];
  source.offset = call.offsets;
  add_products<T, Rows, Vectors>(call.k, a, call.a_rs, 1, source, sum);
#  pragma GCC unroll 16
  for (int i = 0; i < Rows; ++i) {
#  pragma GCC unroll 8
    for (int v = 0; v < Vectors; ++v) {
      T* const to = c[v] + i * call.c_rs;
      Vec value = sum[i][v];
      if (call.accumulate) value = hn::Add(value, hn::LoadU(d, to));
      if (bias != nullptr) value = hn::Add(value, hn::Set(d, bias[i]));
      hn::StoreU(value, d, to);
    }
  }
}

template <class T>
using PatchTile = void (*)(const PatchCall<T>&, const T*, const T* const*, T* const*, const T*);

/// The number of vectors of a tile with few rows, so that enough independent sums are in flight, and an
/// element of A is loaded for more products.
inline constexpr int kThinVectors = 4;
#  if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
inline constexpr int kThinRows = 6;
#  else
inline constexpr int kThinRows = 3;
#  endif

namespace detail {
template <class T, int Vectors, size_t... I>
constexpr std::array<PatchTile<T>, sizeof...(I)> patch_tiles_of(std::index_sequence<I...>) {
  return {patch_tile<T, static_cast<int>(I) + 1, Vectors>...};
}
template <class T>
inline constexpr std::array<PatchTile<T>, kTileRows<T>> patch_tiles[2] = {
    patch_tiles_of<T, 1>(std::make_index_sequence<kTileRows<T>>()),
    patch_tiles_of<T, 2>(std::make_index_sequence<kTileRows<T>>())};
template <class T>
inline constexpr std::array<PatchTile<T>, kThinRows> thin_tiles =
    patch_tiles_of<T, kThinVectors>(std::make_index_sequence<kThinRows>());
}  // namespace detail

/// Precondition: `vectors` is 1 or 2, or kThinVectors with at most kThinRows rows.
template <class T>
PatchTile<T> patch_tile_of(int64_t rows, int vectors) {
  if (vectors == kThinVectors) return detail::thin_tiles<T>[static_cast<size_t>(rows - 1)];
  return detail::patch_tiles<T>[vectors - 1][static_cast<size_t>(rows - 1)];
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // MX_CONVOLUTION_TILE_INL_H_
