#include "operators/kernels/gemm_dot.h"

#if defined(__x86_64__)

#  include <hwy/base.h>
#  include <immintrin.h>

#  include <algorithm>
#  include <array>
#  include <cstring>
#  include <utility>

namespace mx::kernels {
namespace {

constexpr int64_t kDotTileRows = 14;
constexpr int64_t kDotLanes = kDotCols / 2;

uint32_t dot_pair(uint16_t first, uint16_t second) {
  return static_cast<uint32_t>(first) | static_cast<uint32_t>(second) << 16;
}

/// Writes the pairs of `rows` rows of A, one pair of each row after the other.
[[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16")]] void pack_dot_a(uint32_t* to, const uint16_t* a,
                                                                        int64_t rs, int64_t cs, int64_t rows,
                                                                        int64_t k) {
  for (int64_t r = 0; r < rows; ++r) {
    const uint16_t* const row = a + r * rs;
    for (int64_t p = 0; p < k / 2; ++p) to[p * rows + r] = dot_pair(row[2 * p * cs], row[(2 * p + 1) * cs]);
    if (k % 2 != 0) to[k / 2 * rows + r] = dot_pair(row[(k - 1) * cs], 0);
  }
}

/// Writes the pairs of up to 32 columns of B, filled up with zeros: all columns of a pair of rows, then the
/// next pair.
[[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16")]] void pack_dot_b(uint32_t* to, const uint16_t* b,
                                                                        int64_t rs, int64_t cs, int64_t cols,
                                                                        int64_t k) {
  if (cols < kDotCols) std::memset(to, 0, static_cast<size_t>((k + 1) / 2 * kDotCols) * sizeof(uint32_t));
  if (cs == 1) {
    for (int64_t p = 0; p < k / 2; ++p) {
      const uint16_t *const first = b + 2 * p * rs, *const second = first + rs;
      uint32_t* const out = to + p * kDotCols;
      for (int64_t c = 0; c < cols; ++c) out[c] = dot_pair(first[c], second[c]);
    }
  } else {
    for (int64_t c = 0; c < cols; ++c)
      for (int64_t p = 0; p < k / 2; ++p)
        to[p * kDotCols + c] = dot_pair(b[2 * p * rs + c * cs], b[(2 * p + 1) * rs + c * cs]);
  }
  if (k % 2 != 0)
    for (int64_t c = 0; c < cols; ++c) to[k / 2 * kDotCols + c] = dot_pair(b[(k - 1) * rs + c * cs], 0);
}

/// Adds to each lane the products of the two pairs of that lane. Not the intrinsic, on which Clang 16
/// crashes.
[[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16")]] inline void add_dot(__m512& sum, __m512i a,
                                                                            __m512i b) {
  asm("vdpbf16ps %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
}

/// A tile of kRows rows and kVectors vectors of 16 columns.
template <int kRows, int kVectors>
[[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16")]] void dot_tile(const uint32_t* a, const uint32_t* b,
                                                                      int64_t pairs, float* sums, int64_t rs,
                                                                      bool add) {
  // The loops are unrolled early; otherwise the compiler would keep the sums in memory.
  __m512 acc[kRows][kVectors];
#  pragma GCC unroll 14
  for (int r = 0; r < kRows; ++r)
#  pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      acc[r][v] = add ? _mm512_loadu_ps(sums + r * rs + v * kDotLanes) : _mm512_setzero_ps();
  for (int64_t p = 0; p < pairs; ++p, a += kRows, b += kDotCols) {
    __m512i columns[kVectors];
#  pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) columns[v] = _mm512_loadu_si512(b + v * kDotLanes);
#  pragma GCC unroll 14
    for (int r = 0; r < kRows; ++r) {
      const __m512i row = _mm512_set1_epi32(static_cast<int>(a[r]));
#  pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) add_dot(acc[r][v], row, columns[v]);
    }
  }
#  pragma GCC unroll 14
  for (int r = 0; r < kRows; ++r)
#  pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) _mm512_storeu_ps(sums + r * rs + v * kDotLanes, acc[r][v]);
}

using DotTile = void (*)(const uint32_t*, const uint32_t*, int64_t, float*, int64_t, bool);
template <int kVectors, size_t... kIndex>
constexpr std::array<DotTile, kDotTileRows> dot_tiles(std::index_sequence<kIndex...>) {
  return {&dot_tile<static_cast<int>(kIndex) + 1, kVectors>...};
}
constexpr std::array<DotTile, kDotTileRows> kDotTiles[2] = {
    dot_tiles<1>(std::make_index_sequence<kDotTileRows>()),
    dot_tiles<2>(std::make_index_sequence<kDotTileRows>())};

}  // namespace

[[gnu::target("avx512f,avx512bw,avx512vl,avx512bf16")]] void bf16_dot(const Bf16Dot& d) {
  const auto* const a = static_cast<const uint16_t*>(d.a);
  const auto* const b = static_cast<const uint16_t*>(d.b);
  auto* const a_room = static_cast<uint32_t*>(d.a_room);
  auto* const b_room = static_cast<uint32_t*>(d.b_room);
  const int64_t pairs = (d.k + 1) / 2, sliver = pairs * kDotCols;
  for (int64_t j = 0; j < d.cols; j += kDotCols)
    pack_dot_b(b_room + j / kDotCols * sliver, b + j * d.b_cs, d.b_rs, d.b_cs, std::min(kDotCols, d.cols - j),
               d.k);
  const int64_t count = (d.rows + kDotTileRows - 1) / kDotTileRows;
  for (int64_t s = 0; s < count; ++s) {
    const int64_t i = d.rows * s / count, height = d.rows * (s + 1) / count - i;
    pack_dot_a(a_room, a + i * d.a_rs, d.a_rs, d.a_cs, height, d.k);
    for (int64_t j = 0; j < d.cols; j += kDotCols) {
      const size_t wide = d.cols - j > kDotLanes ? 1 : 0;
      kDotTiles[wide][static_cast<size_t>(height - 1)](a_room, b_room + j / kDotCols * sliver, pairs,
                                                       d.sums + i * d.sums_rs + j, d.sums_rs, d.add);
    }
  }
}

bool has_bf16_dot() {
  static const bool has = __builtin_cpu_supports("avx512bf16") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl");
  return has;
}

}  // namespace mx::kernels

#else

namespace mx::kernels {

bool has_bf16_dot() { return false; }
void bf16_dot(const Bf16Dot&) {}

}  // namespace mx::kernels

#endif
