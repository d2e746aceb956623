// Gradients of distances. A block has kRows rows of `a`, up to kPiece of their coordinates, and a range of
// rows of `b`. It packs kPanel rows of `b` at a time. The sums over a panel are in registers; they are added
// to the sums of a chunk of kChunk rows, and these to the sums of the block.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>

#include "ndarray/kernels/strided_loop.h"
#include "operators/distance_attrs.h"
#include "operators/kernels/distance.h"
#include "operators/kernels/distance_power.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/distance_gradient.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using detail::GradientBlock;
using detail::kGradientPiece;
using detail::kGradientRows;
using mx::detail::distance_kind;
using mx::detail::DistanceKind;

constexpr int64_t kPanel = 64, kChunk = 4096;
/// Rows of `a` that are computed together.
constexpr int kTileRows = 4;

/// d < 0: -1, d > 0: 1, otherwise d, which is 0 or NaN.
template <class D, class V>
HWY_INLINE V sign_of(D d, V x) {
  return hn::IfThenElse(hn::Gt(hn::Abs(x), hn::Zero(d)), hn::CopySign(hn::Set(d, 1), x), x);
}

/// The factor of a pair's weight at each coordinate, from the difference there and the pair's distance.
struct Difference {
  template <class D, class V>
  static HWY_INLINE V of(D, V difference, V) {
    return difference;
  }
};
struct Sign {
  template <class D, class V>
  static HWY_INLINE V of(D d, V difference, V) {
    return sign_of(d, difference);
  }
};
struct SignOfMost {
  template <class D, class V>
  static HWY_INLINE V of(D d, V difference, V distance) {
    return hn::IfThenElseZero(hn::Eq(hn::Abs(difference), distance), sign_of(d, difference));
  }
};

/// The operands of a block in consecutive memory. Rows of coordinates are `pitch` elements long, a multiple
/// of a vector; the additional elements are 0.
template <class T>
struct Packed {
  static constexpr auto kElements = static_cast<size_t>(kGradientRows * kGradientPiece);
  HWY_ALIGN T a[kElements], sums[kElements], chunk[kElements];
  HWY_ALIGN T b[static_cast<size_t>(kPanel * kGradientPiece)], sizes[static_cast<size_t>(kGradientPiece)];
  T weights[kPanel * kGradientRows], distances[kPanel * kGradientRows];  // [row of b][row of a]
  int64_t pitch;
};

template <class T>
void pack(const Tensor& from, int64_t row, int64_t rows, int64_t column, int64_t columns, int64_t pitch,
          T* to) {
  const int64_t step = from.strides[1];
  for (int64_t i = 0; i < rows; ++i, to += pitch) {
    const T* const x = from.as<const T>() + (row + i) * from.strides[0] + column * step;
    if (step == 1) {
      std::copy_n(x, columns, to);
    } else {
      for (int64_t p = 0; p < columns; ++p) to[p] = x[p * step];
    }
    std::fill(to + columns, to + pitch, T{0});
  }
}

/// Returns the number of coordinates whose difference is the largest of the pair; 0 if that is NaN.
template <class T>
int64_t count_most(const GradientBlock& block, int64_t i, int64_t j, T distance) {
  const T* const a = block.a.as<const T>() + i * block.a.strides[0];
  const T* const b = block.b.as<const T>() + j * block.b.strides[0];
  int64_t count = 0;
  for (int64_t p = 0; p < block.a.shape[1]; ++p)
    count += std::abs(a[p * block.a.strides[1]] - b[p * block.b.strides[1]]) == distance;
  return count;
}

/// Turns heads into weights, and distances into what the factors divide by, for n pairs.
template <class T>
void make_weights(DistanceKind kind, T* HWY_RESTRICT weights, T* HWY_RESTRICT distances, int64_t n) {
  if (kind == DistanceKind::squares) {
    for (int64_t i = 0; i < n; ++i) weights[i] = distances[i] == 0 ? T{0} : weights[i] / distances[i];
  } else if (kind == DistanceKind::power) {
    for (int64_t i = 0; i < n; ++i) {
      weights[i] = distances[i] == 0 ? T{0} : weights[i];
      distances[i] = distances[i] == 0 ? T{1} : distances[i];
    }
  }
}

/// Packs the weights and distances of the block's rows and of rows `first`, ... of b. Those of rows beyond
/// the block's last one are 0.
template <class T>
void pack_weights(const GradientBlock& block, DistanceKind kind, int64_t first, int64_t columns,
                  Packed<T>& packed) {
  std::fill_n(packed.weights, columns * kGradientRows, T{0});
  std::fill_n(packed.distances, columns * kGradientRows, T{0});
  const Strides &head = block.head.strides, &distance = block.distance.strides;
  // Reads along the dimension whose elements are closer together.
  const bool along_b = std::abs(distance[1]) <= std::abs(distance[0]);
  const int64_t lines = along_b ? block.rows : columns, n = along_b ? columns : block.rows;
  const int step = along_b ? 1 : 0;
  for (int64_t line = 0; line < lines; ++line) {
    T weights[kPanel], distances[kPanel];
    const int64_t row = block.first_row + (along_b ? line : 0), column = first + (along_b ? 0 : line);
    const T* const heads = block.head.as<const T>() + row * head[0] + column * head[1];
    const T* const from = block.distance.as<const T>() + row * distance[0] + column * distance[1];
    for (int64_t i = 0; i < n; ++i) weights[i] = heads[i * head[step]];
    for (int64_t i = 0; i < n; ++i) distances[i] = from[i * distance[step]];
    make_weights(kind, weights, distances, n);
    for (int64_t i = 0; i < n; ++i) {
      const int64_t at = along_b ? i * kGradientRows + line : line * kGradientRows + i;
      packed.weights[at] = weights[i];
      packed.distances[at] = distances[i];
    }
  }
  if (kind != DistanceKind::most) return;
  for (int64_t j = 0; j < columns; ++j)
    for (int64_t r = 0; r < block.rows; ++r) {
      const int64_t at = j * kGradientRows + r;
      const int64_t count = count_most(block, block.first_row + r, first + j, packed.distances[at]);
      packed.weights[at] /= static_cast<T>(std::max<int64_t>(count, 1));
    }
}

/// Adds the terms of kTileRows rows from row `first` on, of kVectors vectors of coordinates from `p` on, and
/// of `columns` rows of b.
template <class Factor, int kVectors, class T>
HWY_INLINE void add_tile(Packed<T>& packed, int64_t first, int64_t p, int64_t columns) {
  const hn::ScalableTag<T> d;
  using V = hn::Vec<decltype(d)>;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t pitch = packed.pitch;
  V a[kTileRows][kVectors], sums[kTileRows][kVectors];
  for (int r = 0; r < kTileRows; ++r)
    for (int v = 0; v < kVectors; ++v) {
      a[r][v] = hn::Load(d, packed.a + (first + r) * pitch + p + v * lanes);
      sums[r][v] = hn::Zero(d);
    }
  for (int64_t j = 0; j < columns; ++j) {
    V b[kVectors];
    for (int v = 0; v < kVectors; ++v) b[v] = hn::Load(d, packed.b + j * pitch + p + v * lanes);
    for (int r = 0; r < kTileRows; ++r) {
      const V weight = hn::Set(d, packed.weights[j * kGradientRows + first + r]);
      const V distance = hn::Set(d, packed.distances[j * kGradientRows + first + r]);
      for (int v = 0; v < kVectors; ++v)
        sums[r][v] = hn::MulAdd(weight, Factor::of(d, hn::Sub(a[r][v], b[v]), distance), sums[r][v]);
    }
  }
  for (int r = 0; r < kTileRows; ++r)
    for (int v = 0; v < kVectors; ++v) {
      T* const to = packed.chunk + (first + r) * pitch + p + v * lanes;
      hn::Store(hn::Add(hn::Load(d, to), sums[r][v]), d, to);
    }
}

template <class Factor, class T>
HWY_INLINE void add_tiles(Packed<T>& packed, int64_t rows, int64_t columns) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  for (int64_t r = 0; r < rows; r += kTileRows) {
    int64_t p = 0;
    for (; p + 2 * lanes <= packed.pitch; p += 2 * lanes) add_tile<Factor, 2>(packed, r, p, columns);
    if (p < packed.pitch) add_tile<Factor, 1>(packed, r, p, columns);
  }
}

/// Adds the terms of row `r`, for an order that needs powers: sign(d) (|d| / distance)^(p - 1), and 0 where d
/// is 0, because the power may be infinite there.
template <class T>
HWY_INLINE void add_powers(Packed<T>& packed, int64_t r, int64_t columns, const PowerRow<T>& power) {
  const hn::ScalableTag<T> d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto zero = hn::Zero(d), one = hn::Set(d, 1);
  const T* const a = packed.a + r * packed.pitch;
  T* const sum = packed.chunk + r * packed.pitch;
  for (int64_t j = 0; j < columns; ++j) {
    const T* const b = packed.b + j * packed.pitch;
    const auto distance = hn::Set(d, packed.distances[j * kGradientRows + r]),
               weight = hn::Set(d, packed.weights[j * kGradientRows + r]);
    for (int64_t p = 0; p < packed.pitch; p += lanes) {
      const auto size = hn::Abs(hn::Sub(hn::Load(d, a + p), hn::Load(d, b + p)));
      hn::Store(hn::IfThenElse(hn::Eq(size, zero), one, hn::Div(size, distance)), d, packed.sizes + p);
    }
    power(packed.sizes, packed.pitch);
    for (int64_t p = 0; p < packed.pitch; p += lanes) {
      const auto sign = sign_of(d, hn::Sub(hn::Load(d, a + p), hn::Load(d, b + p)));
      const auto factor = hn::Mul(sign, hn::Load(d, packed.sizes + p));
      hn::Store(hn::MulAdd(weight, factor, hn::Load(d, sum + p)), d, sum + p);
    }
  }
}

template <class T>
HWY_INLINE void add_panel(Packed<T>& packed, DistanceKind kind, int64_t rows, int64_t columns,
                          const PowerRow<T>& power) {
  if (kind == DistanceKind::power) {
    for (int64_t r = 0; r < rows; ++r) add_powers(packed, r, columns, power);
    return;
  }
  if (kind == DistanceKind::squares) return add_tiles<Difference>(packed, rows, columns);
  if (kind == DistanceKind::sum) return add_tiles<Sign>(packed, rows, columns);
  add_tiles<SignOfMost>(packed, rows, columns);
}

template <class T>
void compute_block(const GradientBlock& block) {
  const DistanceKind kind = distance_kind(block.p);
  const PowerRow<T> power(kind == DistanceKind::power ? block.p - 1 : 1);
  const auto packed_memory = std::make_unique_for_overwrite<Packed<T>>();
  Packed<T>& packed = *packed_memory;
  const auto unit = static_cast<int64_t>(hn::Lanes(hn::ScalableTag<T>()));
  const int64_t depth = block.depth, pitch = (depth + unit - 1) / unit * unit;
  packed.pitch = pitch;
  std::fill_n(packed.a, kGradientRows * pitch, T{0});
  pack(block.a, block.first_row, block.rows, block.first, depth, pitch, packed.a);
  std::fill_n(packed.sums, kGradientRows * pitch, T{0});
  for (int64_t chunk = block.begin; chunk < block.end; chunk += kChunk) {
    const int64_t chunk_end = std::min(chunk + kChunk, block.end);
    std::fill_n(packed.chunk, kGradientRows * pitch, T{0});
    for (int64_t j = chunk; j < chunk_end; j += kPanel) {
      const int64_t columns = std::min(kPanel, chunk_end - j);
      pack(block.b, j, columns, block.first, depth, pitch, packed.b);
      pack_weights(block, kind, j, columns, packed);
      add_panel(packed, kind, block.rows, columns, power);
    }
    for (int64_t i = 0; i < kGradientRows * pitch; ++i) packed.sums[i] += packed.chunk[i];
  }
  for (int64_t i = 0; i < block.rows; ++i) {
    T* const to = block.target.as<T>() + (block.first_row + i) * block.target.strides[0] +
                  block.first * block.target.strides[1];
    for (int64_t p = 0; p < depth; ++p) to[p * block.target.strides[1]] = packed.sums[i * pitch + p];
  }
}

void gradient_f32(const GradientBlock& block) { compute_block<float>(block); }
void gradient_f64(const GradientBlock& block) { compute_block<double>(block); }

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(gradient_f32);
HWY_EXPORT(gradient_f64);
using detail::GradientBlock;
using detail::kGradientPiece;
using detail::kGradientRows;

namespace {

void compute(const GradientBlock& block) {
  if (block.target.dtype == DType::f32) {
    HWY_DYNAMIC_DISPATCH(gradient_f32)(block);
  } else {
    HWY_DYNAMIC_DISPATCH(gradient_f64)(block);
  }
}

/// Adds the parts (parts, m, k) in their order.
template <class T>
void add_parts(const Tensor& target, const T* parts, int64_t count) {
  const int64_t k = target.shape[1], size = target.numel();
  for (int64_t i = 0; i < size; ++i) {
    T sum = 0;
    for (int64_t part = 0; part < count; ++part) sum += parts[part * size + i];
    target.as<T>()[i / k * target.strides[0] + i % k * target.strides[1]] = sum;
  }
}

}  // namespace

void distance_gradient(const Tensor& target, const Tensor& head, const Tensor& a, const Tensor& b,
                       const Tensor& distance, double p) {
  const int64_t m = a.shape[0], n = b.shape[0], k = a.shape[1];
  if (m == 0 || k == 0) return;
  const int64_t row_blocks = (m + kGradientRows - 1) / kGradientRows,
                pieces = (k + kGradientPiece - 1) / kGradientPiece;
  // If there are few blocks, the rows of b are shared by several of them, whose sums are added at the end.
  // The number depends on the shapes only.
  constexpr int64_t kBlocks = 64, kLeastRange = 8192;
  const int64_t parts = std::max<int64_t>(1, std::min(kBlocks / (row_blocks * pieces), n / kLeastRange));
  const int64_t range = std::max<int64_t>(1, (n + parts - 1) / parts);
  std::unique_ptr<std::byte[]> memory;
  if (parts > 1) memory.reset(new std::byte[static_cast<size_t>(parts * m * k) * size_of(target.dtype)]);
  const auto target_of = [&](int64_t part) {
    return parts == 1
               ? target
               : Tensor{element_at(memory.get(), target.dtype, part * m * k), target.dtype, {m, k}, {k, 1}};
  };
  const int64_t work = std::min(m, kGradientRows) * std::min(k, kGradientPiece) * range / 8;
  parallel_for(
      row_blocks * pieces * parts, std::max<int64_t>(1, kLoopGrain / std::max<int64_t>(work, 1)),
      [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const int64_t part = i / (row_blocks * pieces), piece = i / row_blocks % pieces,
                        row = i % row_blocks * kGradientRows, first = piece * kGradientPiece;
          const Tensor to = target_of(part);
          compute({to, head, a, b, distance, p, row, std::min(kGradientRows, m - row), first,
                   std::min(kGradientPiece, k - first), part * range, std::min((part + 1) * range, n)});
        }
      });
  if (parts == 1) return;
  if (target.dtype == DType::f32) {
    add_parts(target, reinterpret_cast<const float*>(memory.get()), parts);
  } else {
    add_parts(target, reinterpret_cast<const double*>(memory.get()), parts);
  }
}

}  // namespace mx::kernels
#endif
