// Copies blocks of A and B into the order in which tile() reads them. Converts f16, bf16, small integers and
// bool during the copy. Included once per instruction set.
#if defined(MX_GEMM_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#  ifdef MX_GEMM_PACK_INL_H_
#    undef MX_GEMM_PACK_INL_H_
#  else
#    define MX_GEMM_PACK_INL_H_
#  endif

#  include <cstdint>
#  include <cstdlib>
#  include <cstring>
#  include <type_traits>

#  include "engine/base/half.h"
#  include "operators/kernels/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

// Only AVX2 and newer, and ARMv8, have instructions for binary16. Highway's emulation rounds differently.
#  if HWY_TARGET <= HWY_AVX2 || HWY_ARCH_ARM_A64
inline constexpr bool kVectorHalf = true;
#  else
inline constexpr bool kVectorHalf = false;
#  endif

/// Converts an element to the type of the sums. Integers are summed in an unsigned type, which wraps.
template <class To, class From>
HWY_INLINE To widen(From value) {
  return static_cast<To>(value);
}

/// Converts a sum to the type of an element: the inverse of widen().
template <class To, class From>
HWY_INLINE To narrow(From value) {
  if constexpr (std::is_same_v<To, bool>) {
    return value != From{0};
  } else {
    return static_cast<To>(value);
  }
}

/// to[i] = from[i * stride].
template <class To, class From>
void read_run(To* HWY_RESTRICT to, const From* HWY_RESTRICT from, int64_t stride, int64_t n) {
  if (stride != 1) {
    for (int64_t i = 0; i < n; ++i) to[i] = widen<To>(from[i * stride]);
    return;
  }
  if constexpr (std::is_same_v<To, From>) {
    std::memcpy(to, from, static_cast<size_t>(n) * sizeof(To));
    return;
  }
  int64_t i = 0;
  if constexpr (std::is_same_v<From, float16> && kVectorHalf) {
    const Lanes<float> d;
    const hn::Rebind<hwy::float16_t, Lanes<float>> dh;
    for (; i + kLanes<float> <= n; i += kLanes<float>) {
      const auto half = hn::LoadU(dh, reinterpret_cast<const hwy::float16_t*>(from + i));
      hn::StoreU(hn::PromoteTo(d, half), d, to + i);
    }
  }
  for (; i < n; ++i) to[i] = widen<To>(from[i]);
}

/// to[i * stride] = from[i].
template <class To, class From>
void write_run(To* HWY_RESTRICT to, int64_t stride, const From* HWY_RESTRICT from, int64_t n) {
  int64_t i = 0;
  if constexpr (std::is_same_v<To, float16> && kVectorHalf) {
    if (stride == 1) {
      const Lanes<float> d;
      const hn::Rebind<hwy::float16_t, Lanes<float>> dh;
      for (; i + kLanes<float> <= n; i += kLanes<float>)
        hn::StoreU(hn::DemoteTo(dh, hn::LoadU(d, from + i)), dh, reinterpret_cast<hwy::float16_t*>(to + i));
    }
  }
  for (; i < n; ++i) to[i * stride] = narrow<To>(from[i]);
}

/// Distance in elements between two packed slivers of B of `k` rows. It leaves room for one row more than
/// needed: otherwise all slivers would fall into the same cache sets.
template <class T>
constexpr int64_t sliver_elements(int64_t k) {
  return k * kTileCols<T> + kTileCols<T>;
}

/// Copies one row of B, `cols` elements, into row k of the slivers that start at `to`. The last sliver is
/// padded with zeros; it has one vector if that is enough.
template <class T>
void pack_row(T* HWY_RESTRICT to, int64_t sliver, int64_t k, const T* HWY_RESTRICT from, int64_t cols) {
  const Lanes<T> d;
  constexpr int kL = kLanes<T>;
  T* at = to + k * kTileCols<T>;
  for (; cols >= kTileCols<T>; cols -= kTileCols<T>, at += sliver, from += kTileCols<T>) {
    hn::StoreU(hn::LoadU(d, from), d, at);
    hn::StoreU(hn::LoadU(d, from + kL), d, at + kL);
  }
  if (cols == 0) return;
  const int64_t width = cols > kL ? kTileCols<T> : kL;
  at += k * (width - kTileCols<T>);
  for (int64_t j = 0; j < width; ++j) at[j] = j < cols ? from[j] : T{0};
}

#  if HWY_TARGET != HWY_SCALAR
/// Loads the 128-bit blocks at p, p + step, ... into one vector.
template <class T>
HWY_INLINE hn::Vec<Lanes<T>> load_blocks(const T* p, int64_t step) {
  const Lanes<T> d;
  if constexpr (sizeof(T) * kLanes<T> == 16) {
    return hn::LoadU(d, p);
  } else {
    const hn::Half<Lanes<T>> dh;
    if constexpr (sizeof(T) * kLanes<T> == 32) {
      return hn::Combine(d, hn::LoadU(dh, p + step), hn::LoadU(dh, p));
    } else {
      static_assert(sizeof(T) * kLanes<T> == 64);
      const hn::Half<decltype(dh)> dq;
      return hn::Combine(d, hn::Combine(dh, hn::LoadU(dq, p + 3 * step), hn::LoadU(dq, p + 2 * step)),
                         hn::Combine(dh, hn::LoadU(dq, p + step), hn::LoadU(dq, p)));
    }
  }
}
#  endif

/// Transposes a vector of columns of B, whose elements along k are contiguous, into rows:
/// to[k * pitch + j] = from[j * step + k]. Blocks of 4 x 4 (or 2 x 2) elements are transposed within the
/// 128-bit parts of vectors.
template <class T>
void transpose_columns(T* HWY_RESTRICT to, int64_t pitch, const T* HWY_RESTRICT from, int64_t step,
                       int64_t k) {
  [[maybe_unused]] const Lanes<T> d;
  constexpr int kL = kLanes<T>;
  int64_t i = 0;
#  if HWY_TARGET != HWY_SCALAR
  if constexpr (sizeof(T) == 4) {
    const hn::RepartitionToWide<Lanes<T>> wide_tag;
    for (; i + 4 <= k; i += 4) {
      const T* const f = from + i;
      const auto v0 = load_blocks(f, 4 * step), v1 = load_blocks(f + step, 4 * step);
      const auto v2 = load_blocks(f + 2 * step, 4 * step), v3 = load_blocks(f + 3 * step, 4 * step);
      const auto low01 = hn::BitCast(wide_tag, hn::InterleaveLower(d, v0, v1));
      const auto low23 = hn::BitCast(wide_tag, hn::InterleaveLower(d, v2, v3));
      const auto high01 = hn::BitCast(wide_tag, hn::InterleaveUpper(d, v0, v1));
      const auto high23 = hn::BitCast(wide_tag, hn::InterleaveUpper(d, v2, v3));
      T* const t = to + i * pitch;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide_tag, low01, low23)), d, t);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide_tag, low01, low23)), d, t + pitch);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(wide_tag, high01, high23)), d, t + 2 * pitch);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(wide_tag, high01, high23)), d, t + 3 * pitch);
    }
  } else {
    for (; i + 2 <= k; i += 2) {
      const auto v0 = load_blocks(from + i, 2 * step), v1 = load_blocks(from + i + step, 2 * step);
      hn::StoreU(hn::InterleaveLower(d, v0, v1), d, to + i * pitch);
      hn::StoreU(hn::InterleaveUpper(d, v0, v1), d, to + (i + 1) * pitch);
    }
  }
#  endif
  for (; i < k; ++i)
    for (int j = 0; j < kL; ++j) to[i * pitch + j] = from[j * step + i];
}

/// The same for columns whose distances put them all into the same few cache sets. There a cache line of a
/// column would be evicted before its next elements are read. So a piece of each column is first copied to
/// `spare`, which has room for a vector of columns.
template <class T>
void transpose_far_columns(T* HWY_RESTRICT to, int64_t pitch, const T* HWY_RESTRICT from, int64_t step,
                           int64_t k, T* HWY_RESTRICT spare) {
  constexpr int64_t kPiece = 256 / static_cast<int64_t>(sizeof(T)), kPitch = kPiece + kLanes<T>;
  for (int64_t i = 0; i < k; i += kPiece) {
    const int64_t n = k - i < kPiece ? k - i : kPiece;
    for (int64_t c = 0; c < kLanes<T>; ++c) read_run(spare + c * kPitch, from + c * step + i, 1, n);
    transpose_columns(to + i * pitch, pitch, spare, kPitch, n);
  }
}

/// Packs `k` rows and `cols` columns of B, whose element (i, j) is at b + i * rs + j * cs, into slivers.
/// `spare` has room for a vector of columns, or for a row.
template <class T, class S>
void pack_b(T* HWY_RESTRICT to, const S* b, int64_t rs, int64_t cs, int64_t k, int64_t cols, T* spare) {
  constexpr int kL = kLanes<T>;
  const int64_t sliver = sliver_elements<T>(k);
  if (rs != 1 || cs == 1) {
    for (int64_t i = 0; i < k; ++i) {
      if constexpr (std::is_same_v<T, S>) {
        if (cs == 1) {
          pack_row(to, sliver, i, b + i * rs, cols);
          continue;
        }
      }
      read_run(spare, b + i * rs, cs, cols);
      pack_row(to, sliver, i, spare, cols);
    }
    return;
  }
  const int64_t spare_pitch = k + kL;
  const int64_t turn = std::abs(cs) * static_cast<int64_t>(sizeof(T)) % 2048;
  const bool crowded = (turn < 128 || turn > 2048 - 128) && k >= 256 / static_cast<int64_t>(sizeof(T));
  for (int64_t j = 0; j < cols; j += kL) {
    const int64_t tail = cols - j / kTileCols<T> * kTileCols<T>;
    const int64_t pitch = tail > kL ? kTileCols<T> : kL;
    T* const at = to + j / kTileCols<T> * sliver + j % kTileCols<T>;
    const int64_t width = cols - j < kL ? cols - j : kL;
    if constexpr (std::is_same_v<T, S>) {
      if (width == kL) {
        if (crowded)
          transpose_far_columns(at, pitch, b + j * cs, cs, k, spare);
        else
          transpose_columns(at, pitch, b + j * cs, cs, k);
        continue;
      }
    }
    for (int64_t c = 0; c < kL; ++c) {
      if (c < width) {
        read_run(spare + c * spare_pitch, b + (j + c) * cs, 1, k);
      } else {
        std::memset(spare + c * spare_pitch, 0, static_cast<size_t>(k) * sizeof(T));
      }
    }
    transpose_columns(at, pitch, spare, spare_pitch, k);
  }
}

/// Packs a sliver of A, `rows` x `k`, and sets the strides with which the copy is read. `room` is the number
/// of rows that A has from the first row of the sliver on.
template <class T, class S>
void pack_a(T* HWY_RESTRICT to, const S* a, int64_t rs, int64_t cs, int64_t rows, int64_t k, int64_t room,
            int64_t* to_rs, int64_t* to_ks) {
  const Lanes<T> d;
  constexpr int kL = kLanes<T>;
  if (rs != 1 || cs == 1) {
    *to_rs = (k + 15) / 16 * 16 + 16;
    *to_ks = 1;
    for (int64_t i = 0; i < rows; ++i) read_run(to + i * *to_rs, a + i * rs, cs, k);
    return;
  }
  const int64_t pitch = (rows + kL - 1) / kL * kL;
  *to_rs = 1;
  *to_ks = pitch;
  for (int64_t i = 0; i < k; ++i) {
    if constexpr (std::is_same_v<T, S>) {
      if (pitch <= room) {  // copies whole vectors, although the sliver needs fewer elements
        for (int64_t v = 0; v < pitch; v += kL)
          hn::StoreU(hn::LoadU(d, a + i * cs + v), d, to + i * pitch + v);
        continue;
      }
    }
    read_run(to + i * pitch, a + i * cs, 1, rows);
  }
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();
#endif  // MX_GEMM_PACK_INL_H_
