#include <algorithm>

#include "ndarray/kernels/convert.h"
#include "operators/kernels/gemm_dot.h"
#include "operators/kernels/gemm_dot_i8.h"
#include "operators/kernels/gemm_product.h"
#include "operators/kernels/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/gemm_block.cc"
#include <hwy/foreach_target.h>
// These must follow foreach_target.h.
#include "operators/kernels/gemm_pack-inl.h"
#include "operators/kernels/gemm_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

/// The type in which products of S are summed.
template <class S>
struct SumType {
  using type = std::conditional_t<
      std::is_same_v<S, double>, double,
      std::conditional_t<
          std::is_same_v<S, int64_t>, uint64_t,
          std::conditional_t<std::is_integral_v<S> && !std::is_same_v<S, bool>, uint32_t, float>>>;
};

/// alpha or beta in the type of the sums.
template <class S, class T>
T factor(double value) {
  if constexpr (std::is_same_v<S, bool>) return value != 0 ? T{1} : T{0};
  if constexpr (std::is_floating_point_v<T>) return static_cast<T>(value);
  return static_cast<T>(convert<int64_t>(value));
}

/// Blocks of no more tiles of rows than these read B in place (measured with products of 512 x 128).
constexpr int64_t kLowTiles = 10;

/// Computes a block of C, with sums over all of k. S is the type of the elements, T that of the sums, R that
/// of C.
template <class S, class T, class R = S>
class Block {
 public:
  Block(const Product& product, int64_t i0, int64_t i1) : p_(product), i0_(i0), rows_(i1 - i0) {}

  void run(int64_t j0, int64_t j1) {
    if constexpr (std::is_same_v<S, T>) {
      if (small(j0, j1)) return;
    }
    for (int64_t j = j0; j < j1; j += kCols) panel(j, std::min(kCols, j1 - j));
  }

 private:
  // A sliver of A (14 rows) of this depth stays in the first-level cache while a panel of B, at most 2 MiB,
  // streams through it.
  static constexpr int64_t kDepth = 1024 / static_cast<int64_t>(sizeof(T));
  static constexpr int64_t kCols = 4096 / static_cast<int64_t>(sizeof(T));
  static constexpr int64_t kNR = kTileCols<T>;
  static constexpr int64_t kL = kLanes<T>;
  // Slivers of a transposed A that are packed together, and the elements of a row of such a sliver.
  static constexpr int64_t kGroup = 4;
  static constexpr int64_t kGroupPitch = (kTileRows<T> + kL - 1) / kL * kL;

  const S* a(int64_t i, int64_t k) const { return static_cast<const S*>(p_.a) + i * p_.a_rs + k * p_.a_cs; }
  const S* b(int64_t k, int64_t j) const { return static_cast<const S*>(p_.b) + k * p_.b_rs + j * p_.b_cs; }
  R* c(int64_t i, int64_t j) const { return static_cast<R*>(p_.c) + i * p_.c_rs + j * p_.c_cs; }
  const S* bias(int64_t i, int64_t j) const {
    return static_cast<const S*>(p_.bias) + i * p_.bias_rs + j * p_.bias_cs;
  }

  bool small(int64_t j0, int64_t j1);
  void panel(int64_t j0, int64_t cols);
  void depth(int64_t k0, int64_t k, int64_t j0, int64_t cols, const TileCall<T>& shared, T* to,
             int64_t to_rs);
  /// Elements of a sliver of a group, with a gap so that slivers do not share cache sets.
  static constexpr int64_t group_sliver(int64_t k) { return k * kGroupPitch + 2 * kL; }
  void pack_group(int64_t first, int64_t end, int64_t count, int64_t k0, int64_t k);
  void finish(int64_t j0, int64_t cols);

  const Product& p_;
  const int64_t i0_, rows_;
  T* a_sliver_ = nullptr;
  T* b_panel_ = nullptr;
  T* spare_ = nullptr;
  T* bias_ = nullptr;
  T* sums_ = nullptr;
};

/// Computes a product of a few tiles whose operands can be read, and C written, in place. Runs the same tiles
/// as panel() and depth(), without their preparations. Returns false if the product is not of this kind.
template <class S, class T, class R>
bool Block<S, T, R>::small(int64_t j0, int64_t j1) {
  const int64_t cols = j1 - j0;
  if (p_.k > 64 || rows_ > 64 || cols > 64 || cols % kL != 0 || p_.b_cs != 1 || p_.c_cs != 1 ||
      p_.bias != nullptr)
    return false;
  TileCall<T> call{};
  call.k = p_.k;
  call.a_rs = p_.a_rs;
  call.a_ks = p_.a_cs;
  call.c_rs = p_.c_rs;
  call.alpha = factor<S, T>(p_.alpha);
  call.beta = factor<S, T>(p_.beta);
  const int64_t count = (rows_ + kTileRows<T> - 1) / kTileRows<T>;
  int64_t rest = rows_;
  for (int64_t left = count; left > 0; --left) {
    const int64_t height = static_cast<int64_t>(static_cast<uint32_t>(rest) / static_cast<uint32_t>(left));
    const int64_t i = i0_ + rows_ - rest;
    rest -= height;
    for (int64_t j = j0; j < j1; j += kNR) {
      const int vectors = j1 - j > kL ? 2 : 1;
      tile_of<T>(height, vectors)(call, a(i, 0), b(0, j), p_.b_rs, c(i, j), nullptr);
    }
  }
  return true;
}

template <class S, class T, class R>
void Block<S, T, R>::panel(int64_t j0, int64_t cols) {
  // The depths are as equal as possible. They depend on k alone, as the order of the sums must.
  const int64_t steps = std::max<int64_t>(1, (p_.k + kDepth - 1) / kDepth);
  const int64_t step = ((p_.k + steps - 1) / steps + 3) / 4 * 4;
  const bool direct = std::is_same_v<S, T> && p_.c_cs == 1 && (p_.bias == nullptr || p_.bias_rs == 0);

  const int64_t slivers = (cols + kNR - 1) / kNR;
  const int64_t padded = slivers * kNR;
  const int64_t a_elements =
      std::max(kTileRows<T> * (step + 32) + 2 * kL * step, kGroup * group_sliver(step));
  const int64_t b_elements = slivers * sliver_elements<T>(step);
  const int64_t spare_elements = std::max(padded, kL * (step + kL));
  const int64_t sums = direct ? 0 : rows_ * padded;
  T* at = static_cast<T*>(thread_workspace(
      static_cast<size_t>(a_elements + b_elements + spare_elements + padded + sums + 64) * sizeof(T)));
  const auto take = [&](int64_t elements) {
    T* const taken = at;
    at += (elements + 15) / 16 * 16;
    return taken;
  };
  a_sliver_ = take(a_elements);
  b_panel_ = take(b_elements);
  spare_ = take(spare_elements);
  bias_ = take(padded);
  sums_ = take(sums);

  TileCall<T> call{};
  call.alpha = T{1};
  T beta{0};
  if (direct) {
    call.alpha = factor<S, T>(p_.alpha);
    beta = factor<S, T>(p_.beta);
    if (p_.bias != nullptr) {
      read_run(bias_, bias(0, j0), p_.bias_cs, cols);
      std::fill(bias_ + cols, bias_ + padded, T{0});
    }
  }
  T* to = sums_;
  int64_t to_rs = padded;
  if constexpr (std::is_same_v<S, T>) {
    if (direct) to = c(i0_, j0), to_rs = p_.c_rs;
  }
  int64_t k0 = 0;
  do {
    const int64_t k = std::min(step, p_.k - k0);
    call.beta = k0 == 0 ? beta : T{1};
    call.bias = direct && p_.bias != nullptr && k0 == 0;
    call.c_rs = to_rs;
    depth(k0, k, j0, cols, call, to, to_rs);
    k0 += step;
  } while (k0 < p_.k);
  if (!direct) finish(j0, cols);
}

/// Packs the slivers [first, end) of `count` of a transposed A, whose rows lie side by side in memory. A
/// cache line has elements of two slivers, and is far from the next one, so all slivers get their elements of
/// a line before the next line is read.
template <class S, class T, class R>
void Block<S, T, R>::pack_group(int64_t first, int64_t end, int64_t count, int64_t k0, int64_t k) {
  if constexpr (std::is_same_v<S, T>) {
    const Lanes<T> d;
    int64_t from[kGroup], height[kGroup];
    for (int64_t s = first; s < end; ++s) {
      from[s - first] = i0_ + rows_ * s / count;
      height[s - first] = rows_ * (s + 1) / count - rows_ * s / count;
    }
    // Whole vectors are copied where A has enough rows.
    const bool whole = from[end - first - 1] + kGroupPitch <= p_.m;
    for (int64_t i = 0; i < k; ++i)
      for (int64_t s = 0; s < end - first; ++s) {
        const T* const row = a(from[s], k0 + i);
        T* const to = a_sliver_ + s * group_sliver(k) + i * kGroupPitch;
        if (whole) {
          for (int64_t v = 0; v < kGroupPitch; v += kL) hn::StoreU(hn::LoadU(d, row + v), d, to + v);
        } else {
          std::copy_n(row, height[s], to);
        }
      }
  }
}

/// Adds the products of depth `k` from k0 on to the sums at `to`.
template <class S, class T, class R>
void Block<S, T, R>::depth(int64_t k0, int64_t k, int64_t j0, int64_t cols, const TileCall<T>& shared, T* to,
                           int64_t to_rs) {
  if constexpr (std::is_same_v<S, bfloat16> && kNR == kDotCols) {
    if (has_bf16_dot()) {
      bf16_dot({a(i0_, k0), p_.a_rs, p_.a_cs, b(k0, j0), p_.b_rs, p_.b_cs, rows_, cols, k, to, to_rs,
                shared.beta != T{0}, a_sliver_, b_panel_});
      return;
    }
  }
  if constexpr (sizeof(S) == 1 && std::is_integral_v<S> && !std::is_same_v<S, bool> && kNR == kDotCols) {
    if (k > 0 && has_byte_dot()) {
      byte_dot({a(i0_, k0), p_.a_rs, p_.a_cs, b(k0, j0), p_.b_rs, p_.b_cs, rows_, cols, k, to, to_rs,
                shared.beta != T{0}, std::is_unsigned_v<S>, a_sliver_, b_panel_});
      return;
    }
  }
  TileCall<T> call = shared;
  call.k = k;
  const bool same = std::is_same_v<S, T>;
  const int64_t full = cols / kL * kL;  // columns in full vectors
  // B is read in place if the panel is small, or if too few rows of C would share the cost of a copy. The
  // tiles fetch its rows ahead, so a panel in the second-level cache is read as fast.
  const bool b_in_place =
      same && p_.b_cs == 1 &&
      (rows_ <= kLowTiles * kTileRows<T> || k * cols * static_cast<int64_t>(sizeof(T)) <= 32768);
  const bool a_in_place = same && (cols <= 2 * kNR || rows_ * k * static_cast<int64_t>(sizeof(T)) <= 16384 ||
                                   (p_.a_cs == 1 && std::abs(p_.a_rs) <= 576));
  const int64_t sliver = sliver_elements<T>(k);
  if (!b_in_place) {
    pack_b(b_panel_, b(k0, j0), p_.b_rs, p_.b_cs, k, cols, spare_);
  } else if (full < cols) {
    const int64_t j = full / kNR * kNR;  // the sliver with the partial vector
    pack_b(b_panel_ + j / kNR * sliver, b(k0, j0 + j), p_.b_rs, p_.b_cs, k, cols - j, spare_);
  }

  const bool in_groups = same && !a_in_place && p_.a_rs == 1 && p_.a_cs != 1;

  // Slivers of A, with heights as equal as possible.
  const int64_t count = (rows_ + kTileRows<T> - 1) / kTileRows<T>;
  for (int64_t s = 0; s < count; ++s) {
    const int64_t i = rows_ * s / count;
    const int64_t height = rows_ * (s + 1) / count - i;
    const T* a_at = a_sliver_;
    if (in_groups) {
      if (s % kGroup == 0) pack_group(s, std::min(count, s + kGroup), count, k0, k);
      a_at = a_sliver_ + s % kGroup * group_sliver(k);
      call.a_rs = 1;
      call.a_ks = kGroupPitch;
    } else if (!a_in_place) {
      pack_a(a_sliver_, a(i0_ + i, k0), p_.a_rs, p_.a_cs, height, k, p_.m - i0_ - i, &call.a_rs, &call.a_ks);
    } else if constexpr (std::is_same_v<S, T>) {
      a_at = a(i0_ + i, k0);
      call.a_rs = p_.a_rs;
      call.a_ks = p_.a_cs;
    }
    const Tile<T> wide = tile_of<T>(height, 2), narrow_one = tile_of<T>(height, 1);
    T* const row = to + i * to_rs;
    for (int64_t j = 0; j < cols; j += kNR) {
      const int64_t width = std::min(kNR, cols - j);
      const Tile<T> tile_at = width > kL ? wide : narrow_one;
      const int64_t reach = width > kL ? kNR : kL;
      const T* b_at = b_panel_ + j / kNR * sliver;
      int64_t b_ks = reach;
      if constexpr (std::is_same_v<S, T>) {
        if (b_in_place && width == reach) b_at = b(k0, j0 + j), b_ks = p_.b_rs;
      }
      if (width == reach) {
        tile_at(call, a_at, b_at, b_ks, row + j, bias_ + j);
        continue;
      }
      // The tile is wider than the rest of C, so it goes through a buffer.
      HWY_ALIGN T edge[kTileRows<T> * kNR];
      if (call.beta != T{0}) {
        for (int64_t r = 0; r < height; ++r) std::memset(edge + r * kNR, 0, kNR * sizeof(T));
        for (int64_t r = 0; r < height; ++r) std::copy_n(row + r * to_rs + j, width, edge + r * kNR);
      }
      TileCall<T> edge_call = call;
      edge_call.c_rs = kNR;
      tile_at(edge_call, a_at, b_at, b_ks, edge, bias_ + j);
      for (int64_t r = 0; r < height; ++r) std::copy_n(edge + r * kNR, width, row + r * to_rs + j);
    }
  }
}

/// C = alpha * sums + beta * C + bias, if the tiles could not write C themselves.
template <class S, class T, class R>
void Block<S, T, R>::finish(int64_t j0, int64_t cols) {
  const T alpha = factor<S, T>(p_.alpha), beta = factor<S, T>(p_.beta);
  const int64_t pitch = (cols + kNR - 1) / kNR * kNR;
  int64_t first = 0;
  if constexpr (std::is_same_v<R, T> && std::is_floating_point_v<T>) {
    // The rows of a C with this layout lie side by side.
    if (p_.c_rs == 1 && alpha == T{1} && beta == T{0} && p_.bias == nullptr)
      for (; first + kL <= rows_; first += kL)
        transpose_columns(c(i0_ + first, j0), p_.c_cs, sums_ + first * pitch, pitch, cols);
  }
  for (int64_t i = first; i < rows_; ++i) {
    T* const sum = sums_ + i * pitch;
    if (alpha != T{1})
      for (int64_t j = 0; j < cols; ++j) sum[j] *= alpha;
    if (beta != T{0}) {
      read_run(spare_, c(i0_ + i, j0), p_.c_cs, cols);
      for (int64_t j = 0; j < cols; ++j) sum[j] += beta * spare_[j];
    }
    if (p_.bias != nullptr) {
      const S* const from = bias(i0_ + i, j0);
      if (p_.bias_cs == 0) {
        const T value = widen<T>(*from);
        for (int64_t j = 0; j < cols; ++j) sum[j] += value;
      } else {
        read_run(spare_, from, p_.bias_cs, cols);
        for (int64_t j = 0; j < cols; ++j) sum[j] += spare_[j];
      }
    }
    write_run(c(i0_ + i, j0), p_.c_cs, sum, cols);
  }
}

template <class S>
void block_of(const Product& p, int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
  using T = typename SumType<S>::type;
  if constexpr (sizeof(S) == 1 && !std::is_same_v<S, bool>) {
    if (p.result == DType::i32) return Block<S, T, int32_t>(p, i0, i1).run(j0, j1);
  }
  Block<S, T>(p, i0, i1).run(j0, j1);
}

int64_t rows_without_packing(DType dtype) {
  if (dtype == DType::f32) return kLowTiles * kTileRows<float>;
  return dtype == DType::f64 ? kLowTiles * kTileRows<double> : 0;
}

void block(const Product& p, int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
  visit(p.dtype, [&](auto tag) { block_of<typename decltype(tag)::type>(p, i0, i1, j0, j1); });
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(block);
HWY_EXPORT(rows_without_packing);
void gemm_block(const Product& product, int64_t i0, int64_t i1, int64_t j0, int64_t j1) {
  HWY_DYNAMIC_DISPATCH(block)(product, i0, i1, j0, j1);
}
int64_t gemm_rows_without_packing(DType dtype) { return HWY_DYNAMIC_DISPATCH(rows_without_packing)(dtype); }
}  // namespace mx::kernels
#endif
