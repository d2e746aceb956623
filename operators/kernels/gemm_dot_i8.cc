#include "operators/kernels/gemm_dot_i8.h"

#if defined(__x86_64__)

#  include <hwy/base.h>
#  include <immintrin.h>

#  include <algorithm>
#  include <array>
#  include <cstring>
#  include <utility>

namespace mx::kernels {
namespace {

constexpr int64_t kByteTileRows = 14;
constexpr int64_t kByteLanes = kDotCols / 2;
constexpr uint32_t kMoved = 0x80808080;  // toggles the highest bit of four bytes, which moves each by 128

/// Four bytes at a distance, in the order of their addresses. Bytes from `n` on are 0.
uint32_t four_bytes(const uint8_t* from, int64_t step, int64_t n) {
  uint32_t quad = 0;
  for (int64_t i = 0; i < n; ++i) quad |= static_cast<uint32_t>(from[i * step]) << (8 * i);
  return quad;
}

/// Adds the products of four bytes of a, which are unsigned, and of b, which are signed, to each lane.
[[gnu::target("avx512f,avx512bw,avx512vl,avx512vnni")]] inline __m512i add_bytes(__m512i sum, __m512i a,
                                                                                 __m512i b) {
  return _mm512_dpbusd_epi32(sum, a, b);
}

/// Writes the quads of `rows` rows of A, one quad of each row after the other, moved by `moved`; then for
/// each row the sum of its elements times 128 if `corrects` is set, else 0.
[[gnu::target("avx512f,avx512bw,avx512vl,avx512vnni")]] void pack_bytes_a(uint32_t* to, const uint8_t* a,
                                                                          int64_t rs, int64_t cs,
                                                                          int64_t rows, int64_t k,
                                                                          uint32_t moved, bool corrects) {
  const int64_t quads = (k + 3) / 4, whole = k / 4;
  for (int64_t r = 0; r < rows; ++r) {
    const uint8_t* const row = a + r * rs;
    if (cs == 1) {
      for (int64_t q = 0; q < whole; ++q) {
        uint32_t quad;
        std::memcpy(&quad, row + 4 * q, sizeof(quad));
        to[q * rows + r] = quad ^ moved;
      }
    } else {
      for (int64_t q = 0; q < whole; ++q) to[q * rows + r] = four_bytes(row + 4 * q * cs, cs, 4) ^ moved;
    }
    // Bytes after the last one of k are multiplied by zeros of B.
    if (whole < quads) to[whole * rows + r] = four_bytes(row + 4 * whole * cs, cs, k % 4) ^ moved;
    uint32_t sum = 0;
    if (corrects)
      for (int64_t i = 0; i < k; ++i) sum += row[i * cs];
    to[quads * rows + r] = sum * 128;
  }
}

/// Writes the quads of up to 32 columns of B, filled up with zeros: all columns of four rows, then the next
/// four. Then for each column minus the sum of its elements times 128 if `corrects` is set, else 0.
[[gnu::target("avx512f,avx512bw,avx512vl,avx512vnni")]] void pack_bytes_b(uint32_t* to, const uint8_t* b,
                                                                          int64_t rs, int64_t cs,
                                                                          int64_t cols, int64_t k,
                                                                          uint32_t moved, bool corrects) {
  const int64_t quads = (k + 3) / 4;
  std::fill_n(to + quads * kDotCols, kDotCols, 0U);
  for (int64_t q = 0; q < quads; ++q) {
    const int64_t n = std::min<int64_t>(4, k - 4 * q);
    // The quad after the last row is not moved as a whole, so that its spare bytes stay 0.
    const uint32_t mask = moved & (n == 4 ? ~0U : (1U << (8 * n)) - 1);
    uint32_t* const out = to + q * kDotCols;
    const uint8_t* const from = b + 4 * q * rs;
    if (cs == 1 && n == 4) {
      const uint8_t *const b1 = from + rs, *const b2 = b1 + rs, *const b3 = b2 + rs;
      for (int64_t c = 0; c < cols; ++c)
        out[c] = (static_cast<uint32_t>(from[c]) | static_cast<uint32_t>(b1[c]) << 8 |
                  static_cast<uint32_t>(b2[c]) << 16 | static_cast<uint32_t>(b3[c]) << 24) ^
                 mask;
    } else if (rs == 1 && n == 4) {
      for (int64_t c = 0; c < cols; ++c) {
        uint32_t quad;
        std::memcpy(&quad, from + c * cs, sizeof(quad));
        out[c] = quad ^ mask;
      }
    } else {
      for (int64_t c = 0; c < cols; ++c) out[c] = four_bytes(from + c * cs, rs, n) ^ mask;
    }
    std::fill(out + cols, out + kDotCols, 0U);
  }
  if (!corrects) return;
  // The dot instruction itself sums the bytes of a column, times 128.
  const __m512i all = _mm512_set1_epi32(static_cast<int>(kMoved));
  for (int64_t v = 0; v < 2; ++v) {
    __m512i sum = _mm512_setzero_si512();
    for (int64_t q = 0; q < quads; ++q)
      sum = add_bytes(sum, all, _mm512_loadu_si512(to + q * kDotCols + v * kByteLanes));
    _mm512_storeu_si512(to + quads * kDotCols + v * kByteLanes,
                        _mm512_sub_epi32(_mm512_setzero_si512(), sum));
  }
}

/// A tile of kRows rows and kVectors vectors of 16 columns. The corrections follow the quads of a and b.
template <int kRows, int kVectors>
[[gnu::target("avx512f,avx512bw,avx512vl,avx512vnni")]] void byte_tile(const uint32_t* a, const uint32_t* b,
                                                                       int64_t quads, uint32_t* sums,
                                                                       int64_t rs, bool add) {
  // The loops are unrolled early; otherwise the compiler would keep the sums in memory.
  __m512i acc[kRows][kVectors];
#  pragma GCC unroll 14
  for (int r = 0; r < kRows; ++r)
#  pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      acc[r][v] = add ? _mm512_loadu_si512(sums + r * rs + v * kByteLanes) : _mm512_setzero_si512();
  for (int64_t q = 0; q < quads; ++q, a += kRows, b += kDotCols) {
    __m512i columns[kVectors];
#  pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) columns[v] = _mm512_loadu_si512(b + v * kByteLanes);
#  pragma GCC unroll 14
    for (int r = 0; r < kRows; ++r) {
      const __m512i row = _mm512_set1_epi32(static_cast<int>(a[r]));
#  pragma GCC unroll 2
      for (int v = 0; v < kVectors; ++v) acc[r][v] = add_bytes(acc[r][v], row, columns[v]);
    }
  }
  __m512i correction[kVectors];
#  pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) correction[v] = _mm512_loadu_si512(b + v * kByteLanes);
#  pragma GCC unroll 14
  for (int r = 0; r < kRows; ++r) {
    const __m512i of_row = _mm512_set1_epi32(static_cast<int>(a[r]));
#  pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v)
      _mm512_storeu_si512(sums + r * rs + v * kByteLanes,
                          _mm512_add_epi32(acc[r][v], _mm512_add_epi32(correction[v], of_row)));
  }
}

using ByteTile = void (*)(const uint32_t*, const uint32_t*, int64_t, uint32_t*, int64_t, bool);
template <int kVectors, size_t... kIndex>
constexpr std::array<ByteTile, kByteTileRows> byte_tiles(std::index_sequence<kIndex...>) {
  return {&byte_tile<static_cast<int>(kIndex) + 1, kVectors>...};
}
constexpr std::array<ByteTile, kByteTileRows> kByteTiles[2] = {
    byte_tiles<1>(std::make_index_sequence<kByteTileRows>()),
    byte_tiles<2>(std::make_index_sequence<kByteTileRows>())};

}  // namespace

void byte_dot(const ByteDot& d) {
  const auto* const a = static_cast<const uint8_t*>(d.a);
  const auto* const b = static_cast<const uint8_t*>(d.b);
  const uint32_t move_a = d.is_unsigned ? 0 : kMoved, move_b = d.is_unsigned ? kMoved : 0;
  const int64_t quads = (d.k + 3) / 4, sliver = (quads + 1) * kDotCols;
  for (int64_t j = 0; j < d.cols; j += kDotCols)
    pack_bytes_b(d.b_room + j / kDotCols * sliver, b + j * d.b_cs, d.b_rs, d.b_cs,
                 std::min(kDotCols, d.cols - j), d.k, move_b, !d.is_unsigned);
  const int64_t count = (d.rows + kByteTileRows - 1) / kByteTileRows;
  for (int64_t s = 0; s < count; ++s) {
    const int64_t i = d.rows * s / count, height = d.rows * (s + 1) / count - i;
    pack_bytes_a(d.a_room, a + i * d.a_rs, d.a_rs, d.a_cs, height, d.k, move_a, d.is_unsigned);
    for (int64_t j = 0; j < d.cols; j += kDotCols) {
      const size_t wide = d.cols - j > kByteLanes ? 1 : 0;
      kByteTiles[wide][static_cast<size_t>(height - 1)](d.a_room, d.b_room + j / kDotCols * sliver, quads,
                                                        d.sums + i * d.sums_rs + j, d.sums_rs, d.add);
    }
  }
}

bool has_byte_dot() {
  static const bool has = __builtin_cpu_supports("avx512vnni") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512vl");
  return has;
}

}  // namespace mx::kernels

#else

namespace mx::kernels {

bool has_byte_dot() { return false; }
void byte_dot(const ByteDot&) {}

}  // namespace mx::kernels

#endif
