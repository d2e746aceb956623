#include "ndarray/kernels/copy.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "ndarray/kernels/convert.h"
#include "ndarray/kernels/convert_rows.h"
#include "ndarray/kernels/strided_loop.h"

namespace mx::kernels {
namespace {

/// Elements that a conversion to a large target collects before it writes them with non-temporal stores.
constexpr int64_t kBlock = 1024;
/// Length of a tile's side in bytes: a cache line.
constexpr int64_t kTileBytes = 64;

/// Returns the dimension of the plan along which the source is contiguous, if it is not the target's
/// innermost dimension and a copy along the target would touch one source cache line per element. Returns 0
/// otherwise.
int transposed_dimension(const LoopPlan<2>& plan, const Tensor& target, const Tensor& source) {
  const int64_t side =
      kTileBytes / static_cast<int64_t>(std::max(size_of(target.dtype), size_of(source.dtype)));
  if (plan.strides[0][0] != 1 || plan.strides[1][0] == 0 || plan.shape[0] < side) return 0;
  if (std::abs(plan.strides[1][0]) * static_cast<int64_t>(size_of(source.dtype)) < kTileBytes) return 0;
  for (int i = 1; i < plan.rank; ++i)
    if (plan.strides[1][i] == 1 && plan.shape[i] >= side) return i;
  return 0;
}

/// Bytes that a tile writes to one run of the target at once.
constexpr int64_t kRunBytes = 1024;
/// From this target size on, transposed copies use non-temporal stores. Ordinary stores would wait for one
/// cache line after the other.
constexpr int64_t kTurnedStreamBytes = int64_t{1} << 19;

/// A vector of 16 bytes; every processor has registers of this size.
template <class Bits>
struct Vec16 {
  static constexpr int kLanes = 16 / static_cast<int>(sizeof(Bits));
  typedef Bits Type __attribute__((vector_size(16)));
};

/// Interleaves the lower (or upper) halves of a and b.
template <class Bits, size_t kFirst, size_t... kLane>
typename Vec16<Bits>::Type interleave(typename Vec16<Bits>::Type a, typename Vec16<Bits>::Type b,
                                      std::index_sequence<kLane...>) {
  constexpr size_t kLanes = Vec16<Bits>::kLanes;
  return __builtin_shufflevector(a, b, static_cast<int>(kFirst + kLane / 2 + (kLane % 2) * kLanes)...);
}

/// Transposes a square of kLanes times kLanes elements, from columns `from_step` bytes apart to rows
/// `to_step` bytes apart.
template <class Bits>
void turn_square(char* to, int64_t to_step, const char* from, int64_t from_step) {
  using Vec = typename Vec16<Bits>::Type;
  constexpr int kLanes = Vec16<Bits>::kLanes;
  using All = std::make_index_sequence<static_cast<size_t>(kLanes)>;
  Vec v[kLanes], w[kLanes];
  for (int i = 0; i < kLanes; ++i) std::memcpy(&v[i], from + i * from_step, 16);
  // Each round is a perfect shuffle of all vectors. log2(kLanes) rounds transpose the square.
  for (int round = 1; round < kLanes; round *= 2) {
    for (int i = 0; i < kLanes / 2; ++i) {
      w[2 * i] = interleave<Bits, 0>(v[i], v[i + kLanes / 2], All());
      w[2 * i + 1] = interleave<Bits, kLanes / 2>(v[i], v[i + kLanes / 2], All());
    }
    for (int i = 0; i < kLanes; ++i) v[i] = w[i];
  }
  for (int i = 0; i < kLanes; ++i) std::memcpy(to + i * to_step, &v[i], 16);
}

/// Writes `rows` runs of `columns` elements of the target. The source has `columns` groups of `rows`
/// contiguous elements. Steps in bytes. Bits: an unsigned type of the size of the target's elements.
template <class Bits>
void turn_tile(char* to, int64_t to_step, const char* from, int64_t from_step, int64_t rows, int64_t columns,
               ConvertRow convert_elements, bool stream) {
  // Each cache line of the source is read once and each run of the target is written once. The elements are
  // transposed in a small block between them. Without the block, strides that are powers of two would evict
  // lines before they are used up.
  constexpr int64_t kSide = kTileBytes / static_cast<int64_t>(sizeof(Bits));
  constexpr int64_t kLanes = Vec16<Bits>::kLanes;
  constexpr int64_t kAhead = 16;
  alignas(64) Bits block[kSide][kRunBytes / sizeof(Bits)], line[kSide];
  int64_t c = 0;
  if (rows == kSide && convert_elements == nullptr) {
    for (; c + kLanes <= columns; c += kLanes) {
      for (int64_t k = c + kAhead; k < std::min(c + kAhead + kLanes, columns); ++k)
        __builtin_prefetch(from + k * from_step);
      for (int64_t r = 0; r < kSide; r += kLanes)
        turn_square<Bits>(reinterpret_cast<char*>(&block[r][c]), sizeof block[0],
                          from + c * from_step + r * static_cast<int64_t>(sizeof(Bits)), from_step);
    }
  }
  for (; c < columns; ++c) {
    const char* elements = from + c * from_step;
    if (c + kAhead < columns) __builtin_prefetch(elements + kAhead * from_step);
    const Bits* values = line;
    if (convert_elements != nullptr) {
      convert_elements(line, 1, elements, 1, rows);
    } else {
      values = reinterpret_cast<const Bits*>(elements);
    }
    for (int64_t r = 0; r < rows; ++r) block[r][c] = values[r];
  }
  const int64_t bytes = columns * static_cast<int64_t>(sizeof(Bits));
  for (int64_t r = 0; r < rows; ++r) {
    if (stream) {
      stream_row(to + r * to_step, block[r], bytes);
    } else {
      std::memcpy(to + r * to_step, block[r], static_cast<size_t>(bytes));
    }
  }
}

void copy_tiles(const LoopPlan<2>& plan, int across, const Tensor& target, const Tensor& source) {
  const auto to_bytes = static_cast<int64_t>(size_of(target.dtype));
  const auto from_bytes = static_cast<int64_t>(size_of(source.dtype));
  const int64_t side = kTileBytes / to_bytes, run = kRunBytes / to_bytes;
  // Tiles are grouped in blocks. A tile touches one page for every row of the source and of the target; a
  // block uses a kilobyte of each page and no more pages than the TLB holds.
  const int64_t width = plan.shape[0], height = plan.shape[across], block = kRunBytes / to_bytes;
  const int64_t across_blocks = (height + block - 1) / block, along_blocks = (width + run - 1) / run;
  const ConvertRow row = target.dtype == source.dtype ? nullptr : convert_row(target.dtype, source.dtype);
  const auto turn = to_bytes == 1   ? turn_tile<uint8_t>
                    : to_bytes == 2 ? turn_tile<uint16_t>
                    : to_bytes == 4 ? turn_tile<uint32_t>
                                    : turn_tile<uint64_t>;
  const bool stream = plan.numel * to_bytes >= kTurnedStreamBytes;
  const int64_t to_step = plan.strides[0][across] * to_bytes, from_step = plan.strides[1][0] * from_bytes;
  const int64_t blocks = plan.numel / (width * height) * across_blocks * along_blocks;
  const int64_t each = std::min(run, width) * std::min(block, height);
  parallel_for(blocks, std::max<int64_t>(1, kLoopGrain / each), [&](int64_t begin, int64_t end) {
    for (int64_t number = begin; number < end; ++number) {
      const int64_t c = number % along_blocks * run;
      const int64_t r0 = number / along_blocks % across_blocks * block, r1 = std::min(r0 + block, height);
      int64_t rest = number / along_blocks / across_blocks, to_at = c, from_at = 0;
      for (int i = 1; i < plan.rank; ++i) {
        if (i == across) continue;
        to_at += rest % plan.shape[i] * plan.strides[0][i];
        from_at += rest % plan.shape[i] * plan.strides[1][i];
        rest /= plan.shape[i];
      }
      char* to = target.as<char>() + to_at * to_bytes;
      const char* from = source.as<char>() + from_at * from_bytes + c * from_step;
      for (int64_t r = r0; r < r1; r += side)
        turn(to + r * to_step, to_step, from + r * from_bytes, from_step, std::min(side, r1 - r),
             std::min(run, width - c), row, stream);
    }
    if (stream) stream_fence();
  });
}

/// Returns true if the innermost runs are too short for one call each (the channels of an image, say) and the
/// next dimension is long.
bool short_runs(const LoopPlan<2>& plan) { return plan.rank > 1 && plan.shape[0] < 8 && plan.shape[1] >= 64; }

/// Iterates over the next dimension instead, in pieces that fit the first-level cache.
void copy_short_runs(const LoopPlan<2>& plan, ConvertRow row, const Tensor& target, const Tensor& source) {
  const auto to_bytes = static_cast<int64_t>(size_of(target.dtype));
  const auto from_bytes = static_cast<int64_t>(size_of(source.dtype));
  const int64_t width = plan.shape[0], height = plan.shape[1];
  const int64_t pieces = (height + kBlock - 1) / kBlock;
  parallel_for(plan.numel / (width * height) * pieces, std::max<int64_t>(1, kLoopGrain / (width * kBlock)),
               [&](int64_t begin, int64_t end) {
                 for (int64_t number = begin; number < end; ++number) {
                   const int64_t first = number % pieces * kBlock, n = std::min(kBlock, height - first);
                   const std::array<int64_t, 2> block = plan.offsets(2, number / pieces);
                   const int64_t to_at = block[0] + first * plan.strides[0][1];
                   const int64_t from_at = block[1] + first * plan.strides[1][1];
                   for (int64_t k = 0; k < width; ++k)
                     row(target.as<char>() + (to_at + k * plan.strides[0][0]) * to_bytes, plan.strides[0][1],
                         source.as<char>() + (from_at + k * plan.strides[1][0]) * from_bytes,
                         plan.strides[1][1], n);
                 }
               });
}

}  // namespace

void fill(const Tensor& target, const Scalar& value) {
  const LoopPlan<1> plan({&target});
  visit(target.dtype, [&](auto tag) {
    using T = typename decltype(tag)::type;
    const T element = value.to<T>();
    T* const to = target.as<T>();
    parallel_runs<1>(plan, [&](const int64_t* offsets, int64_t n) {
      T* t = to + offsets[0];
      const int64_t step = plan.strides[0][0];
      if (step == 1) {
        std::fill_n(t, n, element);
      } else {
        for (int64_t i = 0; i < n; ++i) t[i * step] = element;
      }
    });
  });
}

void copy(const Tensor& target, const Tensor& source) {
  const LoopPlan<2> plan({&target, &source});
  if (plan.numel == 0) return;
  if (const int across = transposed_dimension(plan, target, source); across > 0) {
    copy_tiles(plan, across, target, source);
    return;
  }
  const auto to_bytes = static_cast<int64_t>(size_of(target.dtype));
  const auto from_bytes = static_cast<int64_t>(size_of(source.dtype));
  const int64_t ts = plan.strides[0][0], ss = plan.strides[1][0];
  const bool large = plan.numel * to_bytes >= kStreamBytes && ts == 1 && plan.shape[0] >= kBlock &&
                     target.data != source.data;
  const ConvertRow row = convert_row(target.dtype, source.dtype);
  if (short_runs(plan)) return copy_short_runs(plan, row, target, source);
  parallel_runs<2>(plan, [&](const int64_t* offsets, int64_t n) {
    char* to = target.as<char>() + offsets[0] * to_bytes;
    const char* from = source.as<char>() + offsets[1] * from_bytes;
    if (!large) {
      row(to, ts, from, ss, n);
      return;
    }
    if (ss == 1 && target.dtype == source.dtype) {
      stream_row(to, from, n * to_bytes);
    } else {
      alignas(64) char block[kStreamBlock * 8];
      for (int64_t done = 0; done < n; done += kStreamBlock) {
        const int64_t m = std::min(kStreamBlock, n - done);
        const char* const elements = from + done * ss * from_bytes;
        if (ss == 1) prefetch_block_ahead(elements, source.dtype);
        row(block, 1, elements, ss, m);
        stream_row(to + done * to_bytes, block, m * to_bytes);
      }
    }
    stream_fence();
  });
}

}  // namespace mx::kernels
