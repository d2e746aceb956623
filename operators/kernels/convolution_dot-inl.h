// A tile of dot products over rows of positions, for gradients of weights with few channels. Included once
// per instruction set.
#if defined(MX_CONVOLUTION_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#  ifdef MX_CONVOLUTION_DOT_INL_H_
#    undef MX_CONVOLUTION_DOT_INL_H_
#  else
#    define MX_CONVOLUTION_DOT_INL_H_
#  endif

#  include <array>
#  include <cstdint>
#  include <utility>

#  include "operators/kernels/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

/// Rows of positions. Row i has `width` adjacent elements of X at offsets[i], and of Y at i * width.
struct DotRows {
  int64_t count = 0, width = 0;
  const int64_t* offsets = nullptr;
  bool accumulate = true;  // false: the sums are not read
};

// A full tile's sums, rows of Y and one vector of X fill the registers.
#  if HWY_TARGET <= HWY_AVX3 || HWY_ARCH_ARM_A64
inline constexpr int kDotRows = 4, kDotTaps = 6;
#  else
inline constexpr int kDotRows = 2, kDotTaps = 5;
#  endif

/// Keeps a vector in a register. GCC would otherwise load it again for each multiply-add that uses it.
template <class V>
HWY_INLINE V in_register(V v) {
#  if HWY_ARCH_X86 && HWY_TARGET != HWY_EMU128 && HWY_TARGET != HWY_SCALAR
  asm("" : "+v"(v.raw));
#  endif
  return v;
}

/// Adds y[r][p] * x[p + taps[t]] over all positions p, as vectors, to the vectors at sums + r * sums_rs + t *
/// (elements of a vector). The lanes beyond the end of a row are 0: what is there is not read, because it may
/// be no number.
template <class T, int Rows, int Count>
void dot_tile(const DotRows& rows, const T* HWY_RESTRICT y, int64_t y_rs, const T* HWY_RESTRICT x,
              const int64_t* taps, T* HWY_RESTRICT sums, int64_t sums_rs) {
  const Lanes<T> d;
  using Vec = hn::Vec<Lanes<T>>;
  constexpr int kL = kLanes<T>;
  Vec sum[Rows][Count];
#  pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#  pragma GCC unroll 8
    for (int t = 0; t < Count; ++t)
      sum[r][t] = rows.accumulate ? hn::LoadU(d, sums + r * sums_rs + t * kL) : hn::Zero(d);
  int64_t tap[Count];
  for (int t = 0; t < Count; ++t) tap[t] = taps[t];
  const int64_t tail = rows.width % kL;
  const auto mask = hn::FirstN(d, static_cast<size_t>(tail));
  for (int64_t i = 0; i < rows.count; ++i) {
    const T* from = x + rows.offsets[i];
    const T* left = y + i * rows.width;
    for (int64_t j = rows.width / kL; j > 0; --j, from += kL, left += kL) {
      Vec row[Rows];
#  pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) row[r] = hn::LoadU(d, left + r * y_rs);
#  pragma GCC unroll 8
      for (int t = 0; t < Count; ++t) {
        const Vec value = in_register(hn::LoadU(d, from + tap[t]));
#  pragma GCC unroll 8
        for (int r = 0; r < Rows; ++r) sum[r][t] = hn::MulAdd(row[r], value, sum[r][t]);
      }
    }
    if (tail == 0) continue;
    Vec row[Rows];
#  pragma GCC unroll 8
    for (int r = 0; r < Rows; ++r) row[r] = hn::MaskedLoad(mask, d, left + r * y_rs);
#  pragma GCC unroll 8
    for (int t = 0; t < Count; ++t) {
      const Vec value = in_register(hn::MaskedLoad(mask, d, from + tap[t]));
#  pragma GCC unroll 8
      for (int r = 0; r < Rows; ++r) sum[r][t] = hn::MulAdd(row[r], value, sum[r][t]);
    }
  }
#  pragma GCC unroll 8
  for (int r = 0; r < Rows; ++r)
#  pragma GCC unroll 8
    for (int t = 0; t < Count; ++t) hn::StoreU(sum[r][t], d, sums + r * sums_rs + t * kL);
}

template <class T>
using DotTile = void (*)(const DotRows&, const T*, int64_t, const T*, const int64_t*, T*, int64_t);

namespace detail {
template <class T, int Rows, size_t... I>
constexpr std::array<DotTile<T>, sizeof...(I)> dot_tiles_of(std::index_sequence<I...>) {
  return {dot_tile<T, Rows, static_cast<int>(I) + 1>...};
}
template <class T, size_t... R>
constexpr std::array<std::array<DotTile<T>, kDotTaps>, sizeof...(R)> all_dot_tiles(
    std::index_sequence<R...>) {
  return {dot_tiles_of<T, static_cast<int>(R) + 1>(std::make_index_sequence<kDotTaps>())...};
}
template <class T>
inline constexpr auto dot_tiles = all_dot_tiles<T>(std::make_index_sequence<kDotRows>());
}  // namespace detail

template <class T>
DotTile<T> dot_tile_of(int64_t rows, int64_t taps) {
  return detail::dot_tiles<T>[static_cast<size_t>(rows - 1)][static_cast<size_t>(taps - 1)];
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // MX_CONVOLUTION_DOT_INL_H_
