#include <algorithm>
#include <cstring>
#include <vector>

#include "ndarray/kernels/parallel.h"
#include "operators/kernels/convolution_plan.h"
#include "operators/kernels/convolution_winograd.h"
#include "operators/kernels/workspace.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "operators/kernels/convolution_correlate.cc"
#include <hwy/foreach_target.h>
// These must follow foreach_target.h.
#include "operators/kernels/convolution_image-inl.h"
#include "operators/kernels/convolution_lanes-inl.h"
#include "operators/kernels/convolution_pack-inl.h"
#include "operators/kernels/convolution_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace mx::kernels::HWY_NAMESPACE {

/// A run of adjacent columns of a block: its place in the source of B, and in the result.
struct ColumnRun {
  int64_t from, to;
  /// The tiles write it into the result, not into the sums. They may write beyond its end if other runs
  /// follow there, because those are written later.
  bool direct = false;
};

/// Where the tiles find weight k of a row: data[g * group + s * step + r * row + k] for
/// group g, step s and row r.
template <class T>
struct TileWeights {
  const T* data;
  int64_t group, step, row;
};

/// Runs tasks of a correlation on one thread. S is the type of the elements, T that of the sums.
template <class S, class T>
class Correlator {
 public:
  Correlator(const Correlation& c, const CorrelationPlan& p, const TileWeights<T>& weights, const T* bias,
             const int64_t* offsets, const int64_t* panel_offsets)
      : c_(c), p_(p), weights_(weights), bias_(bias), offsets_(offsets), panel_offsets_(panel_offsets) {
    const int64_t sums_rows = divide_up(p.block_slivers * c.rows, p.slivers) + p.tile_rows;
    buffer_elements_ = p.in_place ? 0 : p.positions.block_images * p.depth * p.buffer.plane + 2 * kL;
    panel_elements_ = p.panel ? p.padded_columns() / (2 * kL) * panel_sliver() + 2 * kL : 0;
    sums_elements_ = sums_rows * p.padded_columns();
    T* at = static_cast<T*>(thread_workspace(
        static_cast<size_t>(buffer_elements_ + panel_elements_ + sums_elements_ + 64) * sizeof(T)));
    buffer_ = at;
    panel_ = buffer_ + divide_up(buffer_elements_, 16) * 16;
    sums_ = panel_ + divide_up(panel_elements_, 16) * 16;
    // The lanes of partial vectors read beyond a row. Their results are not used, but arithmetic with what
    // the memory held before could be slow.
    if (!p.panel && p.positions.block[2] % kL != 0) std::fill_n(buffer_, buffer_elements_, T{0});
    if (p.panel && p.columns() % (2 * kL) != 0) std::fill_n(panel_, panel_elements_, T{0});
  }

  void run(int64_t task) {
    const int64_t sliver_block = task % p_.sliver_blocks;
    task /= p_.sliver_blocks;
    group_ = task % c_.groups;
    task /= c_.groups;
    if (task != block_) enter_block(task);
    s0_ = sliver_block * p_.block_slivers;
    s1_ = std::min(p_.slivers, s0_ + p_.block_slivers);
    in_ = static_cast<const S*>(c_.in.data) + image0_ * c_.in.image + group_ * c_.in.group;
    out_ = static_cast<S*>(c_.out.data) + image0_ * c_.out.image + group_ * c_.out.group;
    for (int64_t step = 0; step < p_.steps; ++step) {
      const int64_t c0 = step * p_.depth, channels = std::min(p_.depth, c_.channels - c0);
      if (!p_.in_place) copy_images(c0, channels);
      if (p_.panel) fill_panel(c0, channels);
      multiply(step, c0, channels);
    }
    if (!direct_) write();
  }

 private:
  static constexpr int64_t kL = kLanes<T>;

  int64_t row_from(int64_t sliver) const { return c_.rows * sliver / p_.slivers; }
  /// Elements of a sliver of the panel, with a gap behind it.
  int64_t panel_sliver() const { return (p_.depth * p_.taps + 1) * 2 * kL; }
  void find_pieces();
  void enter_block(int64_t block);
  void find_vectors();
  void copy_images(int64_t c0, int64_t channels);
  void fill_panel(int64_t c0, int64_t channels);
  template <class From>
  void fill_panel_from(const From* source, int64_t depth);
  void multiply(int64_t step, int64_t c0, int64_t channels);
  void write();

  const Correlation& c_;
  const CorrelationPlan& p_;
  const TileWeights<T> weights_;
  const T* const bias_;
  const int64_t *const offsets_, *const panel_offsets_;
  int64_t buffer_elements_, panel_elements_, sums_elements_;
  T *buffer_, *panel_, *sums_;

  int64_t block_ = -1, group_ = 0, image0_ = 0, images_ = 0, s0_ = 0, s1_ = 0;
  Spatial first_{}, size_{};     // of the block's positions
  std::vector<ColumnRun> runs_;  // one for each row of results
  int64_t run_length_ = 0, run_pitch_ = 0;
  /// Columns of a panel that are adjacent in the source and in the panel; at most a vector.
  struct Piece {
    int64_t from, to, size;
  };
  std::vector<Piece> pieces_;
  std::vector<ColumnRun> vectors_;  // where each vector of columns is read and written
  bool direct_ = false;             // all vectors are direct
  const S* in_ = nullptr;
  S* out_ = nullptr;
};

template <class S, class T>
void Correlator<S, T>::enter_block(int64_t block) {
  block_ = block;
  const PositionBlocks::Part part = p_.positions.part(block, c_.images, c_.out.size);
  image0_ = part.image;
  // The tables are relative to the first image, so that blocks of whole images share them.
  if (!runs_.empty() && images_ == part.images && first_ == part.first && size_ == part.size) return;
  images_ = part.images;
  first_ = part.first;
  size_ = part.size;
  runs_.clear();
  run_length_ = size_[2];
  for (int64_t n = 0; n < images_; ++n)
    for (int64_t d = 0; d < size_[0]; ++d)
      for (int64_t h = 0; h < size_[1]; ++h) {
        const int64_t o0 = first_[0] + d, o1 = first_[1] + h, o2 = first_[2];
        ColumnRun run;
        run.from = p_.in_place
                       ? n * c_.in.image + (o0 * c_.step[0] + p_.patch.low[0]) * c_.in.space[0] +
                             (o1 * c_.step[1] + p_.patch.low[1]) * c_.in.space[1] + (o2 + p_.patch.low[2])
                       : n * p_.depth * p_.buffer.plane + p_.buffer.row(d * c_.step[0], h * c_.step[1]);
        run.to = n * c_.out.image + o0 * c_.out.space[0] + o1 * c_.out.space[1] + o2 * c_.out.space[2];
        runs_.push_back(run);
      }
  if (p_.panel) find_pieces();
  find_vectors();
}

template <class S, class T>
void Correlator<S, T>::find_pieces() {
  pieces_.clear();
  const int64_t columns = static_cast<int64_t>(runs_.size()) * run_length_;
  for (int64_t j = 0; j < columns;) {
    const int64_t into = j % run_length_, within = j % (2 * kL);
    const int64_t size = std::min({run_length_ - into, 2 * kL - within, kL});
    pieces_.push_back({runs_[static_cast<size_t>(j / run_length_)].from + into,
                       j / (2 * kL) * panel_sliver() + within, size});
    j += size;
  }
}

template <class S, class T>
void Correlator<S, T>::find_vectors() {
  vectors_.clear();
  const auto rows = static_cast<int64_t>(runs_.size());
  run_pitch_ = p_.panel ? run_length_ : divide_up(run_length_, kL) * kL;
  const int64_t count = divide_up(rows * run_pitch_, kL);
  // The rows of results that follow each other in memory count as one.
  int64_t joined = 1;
  if (p_.panel && c_.out.space[2] == 1) {
    while (joined < rows && runs_[static_cast<size_t>(joined)].to == runs_[0].to + joined * run_length_)
      ++joined;
    bool even = rows % joined == 0;
    for (int64_t r = 0; even && r < rows; r += joined)
      for (int64_t i = 1; even && i < joined; ++i)
        even = runs_[static_cast<size_t>(r + i)].to == runs_[static_cast<size_t>(r)].to + i * run_length_;
    if (!even) joined = 1;
  }
  const int64_t length = joined * run_length_;
  const bool can_be_direct = std::is_same_v<S, T> && c_.out.space[2] == 1;
  direct_ = can_be_direct && length % kL == 0;
  // The runs behind a run that its last vector reaches. With several steps they would already hold sums.
  const auto reached = static_cast<size_t>(divide_up(run_pitch_ - run_length_, run_length_));
  const bool may_overlap = can_be_direct && !p_.panel && p_.steps == 1;
  for (size_t i = 0; i < runs_.size(); ++i) {
    runs_[i].direct = direct_ || (may_overlap && i + reached < runs_.size());
    for (size_t j = 1; j <= reached && runs_[i].direct && !direct_; ++j)
      runs_[i].direct = runs_[i + j].to == runs_[i].to + static_cast<int64_t>(j) * run_length_;
  }
  for (int64_t v = 0; v < count; ++v) {
    ColumnRun vector{0, 0, direct_};
    const int64_t column = v * kL;
    if (!p_.panel) {
      const ColumnRun& run = runs_[static_cast<size_t>(column / run_pitch_)];
      vector = {run.from + column % run_pitch_, run.to + column % run_pitch_, run.direct};
    } else if (direct_) {
      vector.to = runs_[static_cast<size_t>(column / length * joined)].to + column % length;
    }
    if (!vector.direct) vector.to = column;
    vectors_.push_back(vector);
  }
}

template <class S, class T>
void Correlator<S, T>::copy_images(int64_t c0, int64_t channels) {
  Spatial first;
  for (size_t a = 0; a < 3; ++a) first[a] = first_[a] * c_.step[a] + p_.patch.low[a];
  for (int64_t n = 0; n < images_; ++n)
    copy_channels(p_.buffer, buffer_ + n * p_.depth * p_.buffer.plane,
                  in_ + n * c_.in.image + c0 * c_.in.channel, c_.in.channel, channels, c_.in.size,
                  c_.in.space, first);
}

template <class S, class T>
void Correlator<S, T>::fill_panel(int64_t c0, int64_t channels) {
  if (!p_.in_place) return fill_panel_from(buffer_, channels * p_.taps);
  if constexpr (std::is_same_v<S, T>) fill_panel_from(in_ + c0 * c_.in.channel, channels * p_.taps);
}

/// Copies rows of patches, side by side, into slivers of two vectors. The rows are read one after the other,
/// because those of an image in place are far from each other.
template <class S, class T>
template <class From>
void Correlator<S, T>::fill_panel_from(const From* source, int64_t depth) {
  const Lanes<T> d;
  T* to = panel_;
  for (int64_t k = 0; k < depth; ++k, to += 2 * kL) {
    const From* const row = source + offsets_[k];
    // Whole vectors are stored: what is too much is overwritten by the pieces and rows that follow, or is in
    // the gap between slivers.
    for (const Piece& piece : pieces_) {
      const auto v = p_.in_place && piece.size < kL
                         ? hn::MaskedLoad(hn::FirstN(d, static_cast<size_t>(piece.size)), d, row + piece.from)
                         : hn::LoadU(d, row + piece.from);
      hn::StoreU(v, d, to + piece.to);
    }
  }
}

template <class S, class T>
void Correlator<S, T>::multiply(int64_t step, int64_t c0, int64_t channels) {
  const auto count = static_cast<int64_t>(vectors_.size());
  PatchCall<T> call{};
  call.k = channels * p_.taps;
  call.a_rs = weights_.row;
  call.offsets = p_.panel ? panel_offsets_ : offsets_;
  call.accumulate = step > 0;
  const int64_t r0 = row_from(s0_);
  const T* source = p_.panel ? panel_ : buffer_;
  T* result = nullptr;
  if constexpr (std::is_same_v<S, T>) {
    if (p_.in_place && !p_.panel) source = in_ + c0 * c_.in.channel;
    result = out_ + r0 * c_.out.channel;
  }
  for (int64_t s = s0_; s < s1_; ++s) {
    const int64_t row = row_from(s), height = row_from(s + 1) - row;
    const T* const a = weights_.data + group_ * weights_.group + step * weights_.step + row * weights_.row;
    const T* const bias = bias_ != nullptr && step == 0 ? bias_ + group_ * c_.rows + row : nullptr;
    const int widest = height <= kThinRows ? kThinVectors : 2;
    for (int64_t v = 0; v < count;) {
      const bool direct = vectors_[static_cast<size_t>(v)].direct;
      const int64_t left = count - v;
      int width = left >= widest ? widest : left >= 2 ? 2 : 1;
      // The vectors of a tile are all of the same kind.
      for (int i = 1; i < width; ++i)
        if (vectors_[static_cast<size_t>(v + i)].direct != direct) width = 1;
      call.c_rs = direct ? c_.out.channel : p_.padded_columns();
      T* const to = (direct ? result : sums_) + (row - r0) * call.c_rs;
      const T* b[kThinVectors];
      T* c[kThinVectors];
      for (int i = 0; i < width; ++i) {
        const ColumnRun& at = vectors_[static_cast<size_t>(v + i)];
        b[i] = p_.panel ? source + (v + i) / 2 * panel_sliver() + (v + i) % 2 * kL : source + at.from;
        c[i] = to + at.to;
      }
      patch_tile_of<T>(height, width)(call, a, b, c, bias);
      v += width;
    }
  }
}

/// Writes the block's sums into the result.
template <class S, class T>
void Correlator<S, T>::write() {
  const int64_t r0 = row_from(s0_), rows = row_from(s1_) - r0;
  for (int64_t r = 0; r < rows; ++r) {
    const T* const from = sums_ + r * p_.padded_columns();
    S* const to = out_ + (r0 + r) * c_.out.channel;
    for (size_t i = 0; i < runs_.size(); ++i) {
      if (runs_[i].direct) continue;
      const T* const run = from + static_cast<int64_t>(i) * run_pitch_;
      if constexpr (std::is_same_v<S, T>) {
        if (c_.out.space[2] == 1) {
          copy_short(to + runs_[i].to, run, run_length_);
          continue;
        }
      }
      write_run(to + runs_[i].to, c_.out.space[2], run, run_length_);
    }
  }
}

/// The offsets of a step's rows of patches in the source: first for its channels and taps, then for a panel.
inline void fill_offsets(const Correlation& c, const CorrelationPlan& p, int64_t lanes, int64_t* offsets) {
  int64_t* at = offsets;
  for (int64_t ch = 0; ch < p.depth; ++ch)
    for (int64_t i = 0; i < c.taps.count[0]; ++i)
      for (int64_t j = 0; j < c.taps.count[1]; ++j)
        for (int64_t k = 0; k < c.taps.count[2]; ++k) {
          const Spatial tap = {i, j, k};
          Spatial x;
          for (size_t a = 0; a < 3; ++a) x[a] = c.taps.first[a] + tap[a] * c.taps.gap[a] - p.patch.low[a];
          *at++ = p.in_place ? ch * c.in.channel + x[0] * c.in.space[0] + x[1] * c.in.space[1] + x[2]
                             : ch * p.buffer.plane + p.buffer.row(x[0], x[1]) + p.buffer.column(x[2]);
        }
  const int64_t depth = p.depth * p.taps;
  for (int64_t i = 0; i < kOffsetsAhead; ++i) *at++ = offsets[depth - 1];
  for (int64_t k = 0; k < depth + kOffsetsAhead; ++k) *at++ = std::min(k, depth - 1) * 2 * lanes;
}

/// Returns how many elements are needed for a copy of the weights in the layout of the tiles: 0 if they have
/// it already. Rows that are a multiple of a page apart would share the sets of the first-level cache, so
/// they are copied.
template <class T>
int64_t packed_weights(const Correlation& c, const CorrelationPlan& p, bool same_type) {
  constexpr int64_t kPage = 4096;
  const bool in_place =
      same_type && has_adjacent_rows(c) && c.weights.row * static_cast<int64_t>(sizeof(T)) % kPage != 0;
  return in_place ? 0 : c.groups * p.steps * c.rows * p.k_pitch;
}

/// The weights as the tiles read them: where they are, or packed to `to`.
template <class S, class T>
TileWeights<T> weights_for_tiles(const Correlation& c, const CorrelationPlan& p, T* to) {
  if constexpr (std::is_same_v<S, T>) {
    const Weights& w = c.weights;
    if (packed_weights<T>(c, p, true) == 0)
      return {static_cast<const T*>(w.data), w.group, p.depth * w.channel, w.row};
  }
  pack_weights<S>(c, {p.depth, p.steps, p.k_pitch, false}, to);
  return {to, p.steps * c.rows * p.k_pitch, c.rows * p.k_pitch, p.k_pitch};
}

template <class S, class T>
void correlate_in(const Correlation& given, void* scratch) {
  const Correlation c = merged(given);
  const LanesPlan lanes = plan_lanes(c, kLanes<T>, kTileRows<T>);
  if (lanes.fits) return correlate_lanes<S, T>(c, lanes, scratch);
  const CorrelationPlan p = plan_correlation(c, kLanes<T>, kTileRows<T>, std::is_same_v<S, T>);
  T* const weights = static_cast<T*>(scratch);
  T* const bias = weights + packed_weights<T>(c, p, std::is_same_v<S, T>);
  auto* const offsets = reinterpret_cast<int64_t*>(bias + divide_up(c.groups * c.rows, 16) * 16);
  const TileWeights<T> tiles = weights_for_tiles<S>(c, p, weights);
  if (c.bias != nullptr) read_run(bias, static_cast<const S*>(c.bias), c.bias_stride, c.groups * c.rows);
  fill_offsets(c, p, kLanes<T>, offsets);
  const int64_t tasks = p.tasks(c.groups);
  const double work = static_cast<double>(p.columns() * p.depth * p.steps * p.taps) *
                      static_cast<double>(c.rows) / static_cast<double>(p.sliver_blocks);
  const auto grain = static_cast<int64_t>(std::clamp(5e5 / std::max(work, 1.), 1., 1e6));
  parallel_for(tasks, grain, [&](int64_t begin, int64_t end) {
    Correlator<S, T> correlator(c, p, tiles, c.bias != nullptr ? bias : nullptr, offsets,
                                offsets + p.depth * p.taps + kOffsetsAhead);
    for (int64_t task = begin; task < end; ++task) correlator.run(task);
  });
}

/// The memory does not depend on the division into tasks, which depends on the number of threads.
template <class T>
size_t scratch_of(const Correlation& c, bool same_type) {
  const LanesPlan lanes = plan_lanes(c, kLanes<T>, kTileRows<T>);
  if (lanes.fits) return lanes_scratch<T>(c, lanes);
  const CorrelationPlan p = plan_correlation(c, kLanes<T>, kTileRows<T>, same_type);
  const int64_t elements = packed_weights<T>(c, p, same_type) + c.groups * c.rows + 32;
  return static_cast<size_t>(elements) * sizeof(T) +
         static_cast<size_t>(2 * (p.depth * p.taps + kOffsetsAhead)) * sizeof(int64_t);
}

size_t scratch_in(const Correlation& given) {
  const Correlation c = merged(given);
  return c.dtype == DType::f64 ? scratch_of<double>(c, true) : scratch_of<float>(c, c.dtype == DType::f32);
}

void correlate_typed(const Correlation& c, void* scratch) {
  switch (c.dtype) {
    case DType::f64:
      return correlate_in<double, double>(c, scratch);
    case DType::f16:
      return correlate_in<float16, float>(c, scratch);
    case DType::bf16:
      return correlate_in<bfloat16, float>(c, scratch);
    default:
      return correlate_in<float, float>(c, scratch);
  }
}

}  // namespace mx::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace mx::kernels {
HWY_EXPORT(correlate_typed);
HWY_EXPORT(scratch_in);

namespace {

bool is_empty(const Correlation& c) {
  return c.images == 0 || c.groups == 0 || c.rows == 0 || product_of(c.out.size) == 0;
}

/// Sets the result to the bias.
template <class S>
void fill_with_bias(const Correlation& c) {
  const Spatial& n = c.out.size;
  for (int64_t image = 0; image < c.images; ++image)
    for (int64_t r = 0; r < c.groups * c.rows; ++r) {
      const S value = c.bias == nullptr ? S(0) : static_cast<const S*>(c.bias)[r * c.bias_stride];
      S* const to = static_cast<S*>(c.out.data) + image * c.out.image + r / c.rows * c.out.group +
                    r % c.rows * c.out.channel;
      for (int64_t i = 0; i < n[0]; ++i)
        for (int64_t j = 0; j < n[1]; ++j)
          for (int64_t k = 0; k < n[2]; ++k)
            to[i * c.out.space[0] + j * c.out.space[1] + k * c.out.space[2]] = value;
    }
}

}  // namespace

size_t correlate_scratch(const Correlation& c) {
  if (is_empty(c) || !has_terms(c)) return 0;
  const size_t direct = HWY_DYNAMIC_DISPATCH(scratch_in)(c);
  return uses_winograd(c) ? std::max(direct, winograd_scratch(c)) : direct;
}

void correlate(const Correlation& c, void* scratch) {
  if (is_empty(c)) return;
  if (has_terms(c)) {
    if (uses_winograd(c) && correlate_winograd(c, scratch)) return;
    return HWY_DYNAMIC_DISPATCH(correlate_typed)(c, scratch);
  }
  switch (c.dtype) {
    case DType::f64:
      return fill_with_bias<double>(c);
    case DType::f16:
      return fill_with_bias<float16>(c);
    case DType::bf16:
      return fill_with_bias<bfloat16>(c);
    default:
      return fill_with_bias<float>(c);
  }
}

}  // namespace mx::kernels
#endif
