#include "operators/kernels/convolution_winograd.h"

#include <algorithm>
#include <atomic>
#include <type_traits>
#include <vector>

#include "ndarray/kernels/parallel.h"
#include "operators/kernels/convolution_plan.h"
#include "operators/kernels/convolution_winograd_tiles.h"
#include "operators/kernels/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/convolution_winograd.cc"
#include <hwy/foreach_target.h>
// These must follow foreach_target.h.
#include "operators/kernels/convolution_winograd-inl.h"
#include "operators/kernels/convolution_winograd_pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
size_t winograd_scratch_in(const Correlation&) { return 0; }
bool winograd_in(const Correlation&, void*) { return false; }
#else

/// Runs tasks on one thread. S is the type of the elements.
template <class S>
class WinogradTask {
 public:
  WinogradTask(const Correlation& c, const WinogradPlan& p, const float* u)
      : c_(c),
        p_(p),
        u_(u),
        tiles_(c),
        low_(PatchReach(c.taps).low),
        offsets_(even_offsets(p.depth, p.tiles_pitch)),
        image_planes_(image_planes(c)) {
    planes_ = winograd_planes(c);
    v_number_ = odd_lines(p.depth * p.tiles_pitch);
    m_number_ = odd_lines(divide_up(c.rows, p.row_parts) * p.tiles_pitch);
    row_pitch_ = 2 * std::min(tiles_.across(), p.block) + 2 + 5 * kL;
    const int64_t elements = kWinogradSize * (v_number_ + m_number_) + 4 * row_pitch_ + 4 * kL;
    v_ = static_cast<float*>(thread_workspace(static_cast<size_t>(elements) * sizeof(float)));
    m_ = v_ + kWinogradSize * v_number_;
    rows_ = m_ + kWinogradSize * m_number_;
    spare_ = rows_ + 4 * row_pitch_;
    // Vectors reach beyond a row of an image.
    std::fill_n(rows_, 4 * row_pitch_ + 4 * kL, 0.F);
  }

  void run(int64_t task) {
    const int64_t part = task % p_.row_parts, block = task / p_.row_parts / c_.groups;
    group_ = task / p_.row_parts % c_.groups;
    row_ = c_.rows * part / p_.row_parts;
    rows_count_ = c_.rows * (part + 1) / p_.row_parts - row_;
    const int64_t begin = block * p_.block, end = std::min(tiles_.count(), begin + p_.block);
    runs_ = tiles_.runs(begin, end);
    count_ = end - begin;
    vectors_ = divide_up(count_, 2 * kL) * 2;
    for (int64_t first = 0; first < planes_; first += p_.depth) {
      const int64_t count = std::min(p_.depth, planes_ - first);
      transform_tiles(first, count);
      multiply(first, count);
    }
    transform_sums();
  }
  bool all_finite() const { return finite_.all_finite(); }

 private:
  static constexpr int64_t kL = kLanes<float>;

  void transform_tiles(int64_t first, int64_t count);
  void multiply(int64_t first, int64_t count);
  void transform_sums();

  const Correlation& c_;
  const WinogradPlan& p_;
  const float* const u_;
  const WinogradTiles tiles_;
  const Spatial low_;
  const std::vector<int64_t> offsets_;
  const std::vector<ImagePlane> image_planes_;
  int64_t planes_, v_number_, m_number_,
      row_pitch_;  // v_number_: elements of the tiles of one number, and so on
  // Transformed tiles [number][plane of a step][tile], sums [number][row][tile], four rows of an image, and
  // two vectors.
  float *v_, *m_, *rows_, *spare_;
  int64_t group_ = 0, row_ = 0, rows_count_ = 0, count_ = 0, vectors_ = 0;
  std::vector<TileRun> runs_;
  FiniteCheck finite_;
};

template <class S>
void WinogradTask<S>::transform_tiles(int64_t first, int64_t count) {
  const Lanes<float> d;
  const Images& in = c_.in;
  std::vector<RowPart> parts;
  for (const TileRun& run : runs_) parts.emplace_back(run.x + low_[2], 1, 2 * run.count + 2, in.size[2]);
  const S* const images = static_cast<const S*>(in.data) + group_ * in.group;
  for (int64_t plane = 0; plane < count; ++plane) {
    const ImagePlane& from = image_planes_[static_cast<size_t>(first + plane)];
    for (size_t s = 0; s < runs_.size(); ++s) {
      const TileRun& run = runs_[s];
      const int64_t z = run.depth * c_.step[0] + from.depth;
      const bool inside = z >= 0 && z < in.size[0];
      const float* row[4];
      for (int64_t i = 0; i < 4; ++i) {
        const int64_t y = run.y + low_[1] + i;
        float* const to = rows_ + (y & 3) * row_pitch_;
        row[i] = to;
        if (run.follows && i < 2) continue;
        if (!inside || y < 0 || y >= in.size[1]) {
          std::fill_n(to, parts[s].n, 0.F);
        } else {
          copy_row(to, images + run.image * in.image + from.offset + z * in.space[0] + y * in.space[1], 1,
                   parts[s]);
        }
      }
      float* to = v_ + plane * p_.tiles_pitch + run.at;
      for (int64_t t = 0; t < run.count; t += kL, to += kL) {
        WinogradVec across[4][4];
        for (int i = 0; i < 4; ++i) {
          WinogradVec d0, d1, d2, d3;
          load_pairs(row[i] + 2 * t, d0, d1);
          load_pairs(row[i] + 2 * t + 2, d2, d3);
          transform_image(d0, d1, d2, d3, across[i]);
        }
        for (int j = 0; j < 4; ++j) {
          WinogradVec down[4];
          transform_image(across[0][j], across[1][j], across[2][j], across[3][j], down);
          for (int i = 0; i < 4; ++i) hn::StoreU(down[i], d, to + (i * 4 + j) * v_number_);
        }
      }
    }
    // The products of a block's last vectors are computed with zeros where there are no tiles.
    if (count_ < vectors_ * kL)
      for (int64_t n = 0; n < kWinogradSize; ++n)
        std::fill(v_ + n * v_number_ + plane * p_.tiles_pitch + count_,
                  v_ + n * v_number_ + plane * p_.tiles_pitch + vectors_ * kL, 0.F);
  }
}

template <class S>
void WinogradTask<S>::multiply(int64_t first, int64_t count) {
  PatchCall<float> call{};
  call.k = count;
  call.a_rs = p_.weights_pitch;
  call.offsets = offsets_.data();
  call.c_rs = p_.tiles_pitch;
  call.accumulate = first > 0;
  const int64_t slivers = divide_up(rows_count_, kTileRows<float>);
  for (int64_t number = 0; number < kWinogradSize; ++number) {
    const float* const u =
        u_ + ((group_ * kWinogradSize + number) * c_.rows + row_) * p_.weights_pitch + first;
    const float* const v = v_ + number * v_number_;
    for (int64_t s = 0; s < slivers; ++s) {
      const int64_t r = rows_count_ * s / slivers, height = rows_count_ * (s + 1) / slivers - r;
      float* const m = m_ + number * m_number_ + r * p_.tiles_pitch;
      const auto tile = patch_tile_of<float>(height, 2);
      for (int64_t t = 0; t < vectors_ * kL; t += 2 * kL) {
        const float* const from[2] = {v + t, v + t + kL};
        float* const to[2] = {m + t, m + t + kL};
        tile(call, u + r * p_.weights_pitch, from, to, nullptr);
      }
    }
  }
}

template <class S>
void WinogradTask<S>::transform_sums() {
  const Lanes<float> d;
  const auto quarter = hn::Set(d, 0.25F);
  const Images& out = c_.out;
  for (int64_t r = 0; r < rows_count_; ++r) {
    const int64_t row = group_ * c_.rows + row_ + r;
    const auto bias = hn::Set(
        d, c_.bias == nullptr ? 0.F : widen<float>(static_cast<const S*>(c_.bias)[row * c_.bias_stride]));
    S* const channel = static_cast<S*>(out.data) + group_ * out.group + (row_ + r) * out.channel;
    for (const TileRun& run : runs_) {
      const float* from = m_ + r * p_.tiles_pitch + run.at;
      S* const to = channel + run.image * out.image + run.depth * out.space[0] + run.y * out.space[1] + run.x;
      const int64_t width = std::min(2 * run.count, out.size[2] - run.x);
      const int64_t height = std::min<int64_t>(2, out.size[1] - run.y);
      for (int64_t x = 0; x < width; x += 2 * kL, from += kL) {
        WinogradVec down[2][4];
        for (int j = 0; j < 4; ++j) {
          WinogradVec m[4];
          for (int i = 0; i < 4; ++i) m[i] = hn::LoadU(d, from + (i * 4 + j) * m_number_);
          down[0][j] = hn::Add(hn::Add(m[0], m[1]), m[2]);
          down[1][j] = hn::Sub(hn::Sub(m[1], m[2]), m[3]);
        }
        const int64_t count = std::min(2 * kL, width - x);
        for (int64_t i = 0; i < height; ++i) {
          const auto even = hn::MulAdd(hn::Add(hn::Add(down[i][0], down[i][1]), down[i][2]), quarter, bias);
          const auto odd = hn::MulAdd(hn::Sub(hn::Sub(down[i][1], down[i][2]), down[i][3]), quarter, bias);
          S* const at = to + i * out.space[1] + x;
          if (count == 2 * kL) {
            finite_.see(even);
            finite_.see(odd);
            if constexpr (std::is_same_v<S, float>) {
              hn::StoreInterleaved2(even, odd, d, at);
              continue;
            }
          } else {
            // The other lanes are sums of another row of tiles, or what the memory held before.
            const auto tiles = hn::FirstN(d, static_cast<size_t>(divide_up(count, 2)));
            finite_.see(hn::IfThenElseZero(tiles, even));
            finite_.see(hn::IfThenElseZero(tiles, odd));
          }
          hn::StoreInterleaved2(even, odd, d, spare_);
          if constexpr (std::is_same_v<S, float>) {
            copy_short(at, spare_, count);
          } else {
            write_run(at, 1, spare_, count);
          }
        }
      }
    }
  }
}

size_t winograd_scratch_in(const Correlation& c) {
  return static_cast<size_t>(WinogradPlan(c, kLanes<float>).weights(c)) * sizeof(float);
}

template <class S>
bool winograd_of(const Correlation& c, void* scratch) {
  const WinogradPlan p(c, kLanes<float>);
  float* const u = static_cast<float*>(scratch);
  constexpr int64_t kRows = WeightsTransform<S>::kL;
  parallel_for(c.groups * divide_up(c.rows, kRows),
               std::max<int64_t>(1, (32 << 10) / (winograd_planes(c) * kRows)),
               [&](int64_t begin, int64_t end) { WeightsTransform<S>(c, p, u).run(begin, end); });
  std::atomic<bool> all_finite{true};
  parallel_for(p.tasks(c.groups), 1, [&](int64_t begin, int64_t end) {
    WinogradTask<S> task(c, p, u);
    for (int64_t i = begin; i < end && all_finite.load(std::memory_order_relaxed); ++i) {
      task.run(i);
      if (!task.all_finite()) all_finite.store(false, std::memory_order_relaxed);
    }
  });
  return all_finite.load(std::memory_order_relaxed);
}

bool winograd_in(const Correlation& c, void* scratch) {
  switch (c.dtype) {
    case DType::f16:
      return winograd_of<float16>(c, scratch);
    case DType::bf16:
      return winograd_of<bfloat16>(c, scratch);
    default:
      return winograd_of<float>(c, scratch);
  }
}

#endif

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(winograd_in);
HWY_EXPORT(winograd_scratch_in);

size_t winograd_scratch(const Correlation& c) { return HWY_DYNAMIC_DISPATCH(winograd_scratch_in)(c); }

bool correlate_winograd(const Correlation& c, void* scratch) {
  return HWY_DYNAMIC_DISPATCH(winograd_in)(c, scratch);
}

}  // namespace mx::kernels
#endif
