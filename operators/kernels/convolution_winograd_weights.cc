#include <algorithm>
#include <atomic>
#include <vector>

#include "ndarray/kernels/parallel.h"
#include "operators/kernels/convolution_plan.h"
#include "operators/kernels/convolution_winograd.h"
#include "operators/kernels/convolution_winograd_tiles.h"
#include "operators/kernels/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/convolution_winograd_weights.cc"
#include <hwy/foreach_target.h>
// These must follow foreach_target.h.
#include "operators/kernels/convolution_winograd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

#if HWY_TARGET == HWY_SCALAR
size_t winograd_weights_scratch_in(const Correlation&) { return 0; }
bool winograd_weights_in(const Correlation&, void*) { return false; }
#else

/// Transforms sums to the gradient of the weights and writes it: the rows and planes of a part. Returns
/// whether all of it is finite.
template <class S>
HWY_NOINLINE bool write_winograd_weights(const Correlation& c, const WinogradWeightsPlan& p,
                                         const float* sums, int64_t part) {
  const Lanes<float> d;
  constexpr int64_t kL = kLanes<float>;
  const WinogradWeightsPlan::Part at = p.part(part, c);
  const WinogradTaps taps(c);
  const auto quarter = hn::Set(d, 0.25F);
  HWY_ALIGN float lanes[9 * kL];
  FiniteCheck finite;
  S* const out = static_cast<S*>(c.weights.data) + at.group * c.weights.group + at.row * c.weights.row;
  for (int64_t r = 0; r < at.rows; ++r)
    for (int64_t plane = 0; plane < at.planes; plane += kL) {
      const float* const from = sums + r * p.sums_pitch + plane;
      WinogradVec rows[3][4];  // along the first axis
      for (int j = 0; j < 4; ++j) {
        WinogradVec u[4];
        for (int i = 0; i < 4; ++i) u[i] = hn::LoadU(d, from + (i * 4 + j) * p.sums_number);
        const auto sum = hn::Add(u[1], u[2]);
        rows[0][j] = hn::Add(hn::Add(u[0], u[0]), sum);
        rows[1][j] = hn::Sub(u[1], u[2]);
        rows[2][j] = hn::Add(sum, hn::Add(u[3], u[3]));
      }
      WinogradVec w[9];
      for (int i = 0; i < 3; ++i) {
        const auto sum = hn::Add(rows[i][1], rows[i][2]);
        w[i * 3] = hn::Mul(hn::Add(hn::Add(rows[i][0], rows[i][0]), sum), quarter);
        w[i * 3 + 1] = hn::Mul(hn::Sub(rows[i][1], rows[i][2]), quarter);
        w[i * 3 + 2] = hn::Mul(hn::Add(sum, hn::Add(rows[i][3], rows[i][3])), quarter);
      }
      for (const WinogradVec& v : w) finite.see(v);
      const int64_t count = std::min(kL, at.planes - plane);
      for (int t = 0; t < 9; ++t) hn::Store(w[t], d, lanes + t * kL);
      for (int64_t lane = 0; lane < count; ++lane) {
        S* const to = out + r * c.weights.row + weights_of_plane(c, at.plane + plane + lane);
        for (int64_t i = 0; i < 3; ++i)
          for (int64_t j = 0; j < 3; ++j)
            to[taps.offset(taps.of(i, j))] = narrow<S>(lanes[(i * 3 + j) * kL + lane]);
      }
    }
  return finite.all_finite();
}

/// Runs tasks on one thread. S is the type of the elements.
template <class S>
class WinogradWeightsTask {
 public:
  WinogradWeightsTask(const Correlation& c, const WinogradWeightsPlan& p)
      : c_(c),
        p_(p),
        tiles_(c),
        low_(PatchReach(c.taps).low),
        offsets_(even_offsets(p.block, p.planes_pitch)),
        image_planes_(image_planes(c)) {
    v_number_ = odd_lines(p.block * p.planes_pitch);
    y_number_ = odd_lines(p.rows * p.tiles_pitch);
    width_ = 2 * std::min(tiles_.across(), p.block) + 2;
    row_pitch_ = divide_up(width_, 16) * 16 + 4 * kL;
    const int64_t v = kWinogradSize * v_number_, y = kWinogradSize * y_number_,
                  image = 4 * width_ * p.planes_pitch, rows = (kL + 1) * row_pitch_;
    v_ = static_cast<float*>(thread_workspace(static_cast<size_t>(v + y + image + rows) * sizeof(float)));
    y_ = v_ + v;
    image_ = y_ + y;
    rows_ = image_ + image;
    // Vectors reach beyond a row of results.
    std::fill_n(rows_, rows, 0.F);
  }

  void run(int64_t task, float* sums) {
    const int64_t chunk = task / p_.parts(c_.groups);
    part_ = p_.part(task % p_.parts(c_.groups), c_);
    const int64_t first = chunk * p_.chunk_blocks, last = std::min(p_.blocks, first + p_.chunk_blocks);
    for (int64_t block = first; block < last; ++block) {
      const int64_t begin = block * p_.block;
      count_ = std::min(tiles_.count() - begin, p_.block);
      runs_ = tiles_.runs(begin, begin + count_);
      transform_tiles();
      transform_results();
      multiply(sums, block == first);
    }
  }

 private:
  static constexpr int64_t kL = kLanes<float>;

  void copy_image_row(const TileRun& run, int64_t y, const RowPart& part, float* to);
  void transform_tiles();
  void transform_results();
  void multiply(float* sums, bool first);

  const Correlation& c_;
  const WinogradWeightsPlan& p_;
  const WinogradTiles tiles_;
  const Spatial low_;
  const std::vector<int64_t> offsets_;
  const std::vector<ImagePlane> image_planes_;
  int64_t v_number_, y_number_, width_, row_pitch_;
  // Transformed tiles [number][tile][plane], transformed results [number][row][tile], four rows of an image
  // with adjacent planes, and rows of a vector of planes.
  float *v_, *y_, *image_, *rows_;
  WinogradWeightsPlan::Part part_{};
  int64_t count_ = 0;  // tiles
  std::vector<TileRun> runs_;
};

/// Copies a row of an image, plane by plane, to elements with adjacent planes.
template <class S>
void WinogradWeightsTask<S>::copy_image_row(const TileRun& run, int64_t y, const RowPart& part, float* to) {
  const Images& in = c_.in;
  if (y < 0 || y >= in.size[1]) {
    std::fill_n(to, part.n * p_.planes_pitch, 0.F);
    return;
  }
  const S* const from =
      static_cast<const S*>(in.data) + run.image * in.image + part_.group * in.group + y * in.space[1];
  for (int64_t first = 0; first < part_.planes; first += kL) {
    const int64_t count = std::min(kL, part_.planes - first);
    for (int64_t i = 0; i < kL; ++i) {
      float* const row = rows_ + i * row_pitch_;
      if (i >= count) {
        std::fill_n(row, part.n, 0.F);
        continue;
      }
      const ImagePlane& plane = image_planes_[static_cast<size_t>(part_.plane + first + i)];
      const int64_t z = run.depth * c_.step[0] + plane.depth;
      if (z >= 0 && z < in.size[0]) {
        copy_row(row, from + plane.offset + z * in.space[0], 1, part);
      } else {
        std::fill_n(row, part.n, 0.F);
      }
    }
    transpose_columns(to + first, p_.planes_pitch, rows_, row_pitch_, part.n);
  }
}

template <class S>
void WinogradWeightsTask<S>::transform_tiles() {
  const Lanes<float> d;
  for (const TileRun& run : runs_) {
    const RowPart part(run.x + low_[2], 1, 2 * run.count + 2, c_.in.size[2]);
    const float* row[4];
    for (int64_t i = 0; i < 4; ++i) {
      const int64_t y = run.y + low_[1] + i;
      float* const to = image_ + (y & 3) * width_ * p_.planes_pitch;
      row[i] = to;
      if (!run.follows || i >= 2) copy_image_row(run, y, part, to);
    }
    for (int64_t t = 0; t < run.count; ++t) {
      float* to = v_ + (run.at + t) * p_.planes_pitch;
      const int64_t x = 2 * t * p_.planes_pitch;
      for (int64_t plane = 0; plane < part_.planes; plane += kL, to += kL) {
        WinogradVec across[4][4];
        for (int i = 0; i < 4; ++i) {
          const float* const at = row[i] + x + plane;
          transform_image(hn::LoadU(d, at), hn::LoadU(d, at + p_.planes_pitch),
                          hn::LoadU(d, at + 2 * p_.planes_pitch), hn::LoadU(d, at + 3 * p_.planes_pitch),
                          across[i]);
        }
        for (int j = 0; j < 4; ++j) {
          WinogradVec down[4];
          transform_image(across[0][j], across[1][j], across[2][j], across[3][j], down);
          for (int i = 0; i < 4; ++i) hn::StoreU(down[i], d, to + (i * 4 + j) * v_number_);
        }
      }
    }
  }
}

/// Two elements along an axis of a tile of results to four numbers.
HWY_INLINE void transform_result(const WinogradVec& y0, const WinogradVec& y1, WinogradVec (&to)[4]) {
  to[0] = y0;
  to[1] = hn::Add(y0, y1);
  to[2] = hn::Sub(y0, y1);
  to[3] = hn::Neg(y1);
}

template <class S>
void WinogradWeightsTask<S>::transform_results() {
  const Lanes<float> d;
  const Images& out = c_.out;
  std::vector<RowPart> parts;
  for (const TileRun& run : runs_) parts.emplace_back(run.x, 1, 2 * run.count, out.size[2]);
  float* const row[2] = {rows_, rows_ + row_pitch_};
  for (int64_t r = 0; r < part_.rows; ++r) {
    const S* const channel =
        static_cast<const S*>(out.data) + part_.group * out.group + (part_.row + r) * out.channel;
    for (size_t s = 0; s < runs_.size(); ++s) {
      const TileRun& run = runs_[s];
      for (int64_t i = 0; i < 2; ++i) {
        if (run.y + i < out.size[1]) {
          copy_row(row[i],
                   channel + run.image * out.image + run.depth * out.space[0] + (run.y + i) * out.space[1], 1,
                   parts[s]);
        } else {
          std::fill_n(row[i], 2 * run.count, 0.F);
        }
      }
      float* to = y_ + r * p_.tiles_pitch + run.at;
      for (int64_t t = 0; t < run.count; t += kL, to += kL) {
        WinogradVec across[2][4];
        for (int i = 0; i < 2; ++i) {
          WinogradVec even, odd;
          load_pairs(row[i] + 2 * t, even, odd);
          transform_result(even, odd, across[i]);
        }
        for (int j = 0; j < 4; ++j) {
          WinogradVec down[4];
          transform_result(across[0][j], across[1][j], down);
          for (int i = 0; i < 4; ++i) hn::StoreU(down[i], d, to + (i * 4 + j) * y_number_);
        }
      }
    }
  }
}

template <class S>
void WinogradWeightsTask<S>::multiply(float* sums, bool first) {
  PatchCall<float> call{};
  call.k = count_;
  call.a_rs = p_.tiles_pitch;
  call.offsets = offsets_.data();
  call.c_rs = p_.sums_pitch;
  call.accumulate = !first;
  const int64_t slivers = divide_up(part_.rows, kTileRows<float>), vectors = divide_up(part_.planes, kL);
  for (int64_t number = 0; number < kWinogradSize; ++number)
    for (int64_t s = 0; s < slivers; ++s) {
      const int64_t r = part_.rows * s / slivers, height = part_.rows * (s + 1) / slivers - r;
      float* const m = sums + number * p_.sums_number + r * p_.sums_pitch;
      for (int64_t v = 0; v < vectors; v += 2) {
        const int width = vectors - v >= 2 ? 2 : 1;
        const float* const b = v_ + number * v_number_ + v * kL;
        const float* const from[2] = {b, b + kL};
        float* const to[2] = {m + v * kL, m + (v + 1) * kL};
        patch_tile_of<float>(height, width)(call, y_ + number * y_number_ + r * p_.tiles_pitch, from, to,
                                            nullptr);
      }
    }
}

size_t winograd_weights_scratch_in(const Correlation& c) {
  const WinogradWeightsPlan p(c, kLanes<float>);
  return static_cast<size_t>(p.parts(c.groups) * p.chunks * p.region) * sizeof(float);
}

template <class S>
bool winograd_weights_of(const Correlation& c, void* scratch) {
  const WinogradWeightsPlan p(c, kLanes<float>);
  float* const regions = static_cast<float*>(scratch);
  const int64_t parts = p.parts(c.groups);
  parallel_for(parts * p.chunks, 1, [&](int64_t begin, int64_t end) {
    WinogradWeightsTask<S> task(c, p);
    for (int64_t i = begin; i < end; ++i) task.run(i, regions + i * p.region);
  });
  std::atomic<bool> all_finite{true};
  parallel_for(parts, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      // The sums of all chunks are added in order.
      float* const sums = regions + i * p.region;
      for (int64_t chunk = 1; chunk < p.chunks; ++chunk) {
        const float* const more = regions + (chunk * parts + i) * p.region;
        for (int64_t e = 0; e < p.region; ++e) sums[e] += more[e];
      }
      if (!write_winograd_weights<S>(c, p, sums, i)) all_finite.store(false, std::memory_order_relaxed);
    }
  });
  return all_finite.load(std::memory_order_relaxed);
}

bool winograd_weights_in(const Correlation& c, void* scratch) {
  switch (c.dtype) {
    case DType::f16:
      return winograd_weights_of<float16>(c, scratch);
    case DType::bf16:
      return winograd_weights_of<bfloat16>(c, scratch);
    default:
      return winograd_weights_of<float>(c, scratch);
  }
}

#endif

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(winograd_weights_in);
HWY_EXPORT(winograd_weights_scratch_in);

size_t winograd_weights_scratch(const Correlation& c) {
  return HWY_DYNAMIC_DISPATCH(winograd_weights_scratch_in)(c);
}

bool correlate_weights_winograd(const Correlation& c, void* scratch) {
  return HWY_DYNAMIC_DISPATCH(winograd_weights_in)(c, scratch);
}

}  // namespace mx::kernels
#endif
