// Each row of the result is the weighted sum of a few rows of x, which lie along the outer spatial axes. That
// sum is then resampled along the last axis.
#include "operators/kernels/resample.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "ndarray/kernels/convert_rows.h"
#include "ndarray/kernels/parallel.h"
#include "operators/kernels/resample_rows.h"
#include "operators/scratch.h"

namespace mx::kernels {
namespace {

using formulas::ResampleAxis;
using formulas::ResampleTap;

constexpr int64_t kResampleGrain = 1 << 14;  // taps in a piece of a loop
constexpr int64_t kRowsAtOnce = 8;

/// The taps of all elements of a result along one axis: those of element j are taps[starts[j]] up to
/// taps[starts[j + 1] - 1].
struct TapLists {
  std::vector<int64_t> starts;
  std::vector<ResampleTap> taps;

  int64_t count(int64_t j) const {
    return starts[static_cast<size_t>(j) + 1] - starts[static_cast<size_t>(j)];
  }
  const ResampleTap* of(int64_t j) const { return taps.data() + starts[static_cast<size_t>(j)]; }
  bool same(int64_t a, int64_t b) const {
    return count(a) == count(b) &&
           std::equal(of(a), of(a) + count(a), of(b), [](const auto& l, const auto& r) {
             return l.place == r.place && l.weight == r.weight;
           });
  }
};

TapLists forward_taps(const ResampleAxis& axis) {
  TapLists lists;
  const int taps = axis.taps();
  lists.starts.resize(static_cast<size_t>(axis.out) + 1);
  lists.taps.reserve(static_cast<size_t>(axis.out * taps));
  for (int64_t i = 0; i < axis.out; ++i) {
    for (int t = 0; t < taps; ++t) lists.taps.push_back(formulas::resample_tap(axis, i, t));
    lists.starts[static_cast<size_t>(i) + 1] = (i + 1) * taps;
  }
  return lists;
}

/// The taps of the transpose: for each element of x the results that it is in, in ascending order. Taps of
/// one result at the same place are one.
TapLists transposed_taps(const ResampleAxis& axis) {
  TapLists lists;
  const size_t size = static_cast<size_t>(axis.in);
  lists.starts.assign(size + 1, 0);
  const auto each = [&](const auto& f) {
    std::vector<int64_t> last(size, -1);
    for (int64_t i = 0; i < axis.out; ++i)
      for (int t = 0; t < axis.taps(); ++t) {
        const ResampleTap tap = formulas::resample_tap(axis, i, t);
        const auto j = static_cast<size_t>(tap.place);
        f(j, i, tap.weight, last[j] != i);
        last[j] = i;
      }
  };
  each([&](size_t j, int64_t, double, bool first) { lists.starts[j + 1] += first ? 1 : 0; });
  for (size_t j = 0; j < size; ++j) lists.starts[j + 1] += lists.starts[j];
  lists.taps.resize(static_cast<size_t>(lists.starts[size]));
  std::vector<int64_t> next(lists.starts.begin(), lists.starts.end() - 1);
  each([&](size_t j, int64_t i, double weight, bool first) {
    if (first) lists.taps[static_cast<size_t>(next[j]++)] = {i, 0};
    lists.taps[static_cast<size_t>(next[j]) - 1].weight += weight;
  });
  return lists;
}

/// The taps of rows, in blocks.
template <class C>
class TapBlocks {
 public:
  explicit TapBlocks(const TapLists& lists) : n_(static_cast<int64_t>(lists.starts.size()) - 1) {
    constexpr int64_t kLanes = detail::kTapLanes;
    starts_.push_back(0);
    for (int64_t first = 0; first < n_; first += kLanes) {
      const int64_t end = std::min(first + kLanes, n_);
      int64_t most = 0;
      for (int64_t j = first; j < end; ++j) most = std::max(most, lists.count(j));
      const int64_t start = starts_.back();
      starts_.push_back(start + most);
      places_.resize(static_cast<size_t>((start + most) * kLanes), -1);
      weights_.resize(places_.size(), C{0});
      for (int64_t j = first; j < first + kLanes; ++j) {
        // Lanes beyond the row take the taps of its last element; nothing is stored for them.
        const int64_t from = std::min(j, n_ - 1);
        full_ = full_ && lists.count(from) == most;
        for (int64_t k = 0; k < lists.count(from); ++k) {
          const auto at = static_cast<size_t>((start + k) * kLanes + j - first);
          places_[at] = static_cast<Place>(lists.of(from)[k].place);
          weights_[at] = static_cast<C>(lists.of(from)[k].weight);
        }
      }
    }
  }
  detail::RowTaps<C> view() const { return {starts_.data(), places_.data(), weights_.data(), n_, full_}; }

 private:
  using Place = detail::TapPlace<C>;
  int64_t n_;
  std::vector<int64_t> starts_;
  std::vector<Place> places_;
  std::vector<C> weights_;
  bool full_ = true;
};

/// An array as images, channels and three spatial axes; axes that it does not have are of size 1.
struct Volume {
  char* data;
  DType type;
  int64_t shape[5], strides[5];

  explicit Volume(const Tensor& t) : data(static_cast<char*>(t.data)), type(t.dtype) {
    const int missing = 5 - t.rank();
    for (int a = 0; a < 5; ++a) {
      const int from = a < 2 ? a : a - missing;
      const bool there = a < 2 || from >= 2;
      shape[a] = there ? t.shape[from] : 1;
      strides[a] = there ? t.strides[from] : 0;
    }
    if (shape[4] == 1) strides[4] = 1;
  }
  void* at(int64_t offset) const { return data + offset * static_cast<int64_t>(size_of(type)); }
};

template <class C>
class Resampler {
 public:
  Resampler(const KernelArgs& args, const Tensor& y, const Tensor& x, const ResampleAxes& axes)
      : args_(args),
        y_(y),
        x_(x),
        copies_(!axes.transposed && axes.axis[0].nearest()),
        planes_(lists_of(axes, 3)),
        rows_(lists_of(axes, 2)),
        last_(lists_of(axes, 1)),
        read_(convert_row(dtype_of<C>, x.dtype)),
        write_(convert_row(y.dtype, dtype_of<C>)),
        reads_directly_(x.dtype == dtype_of<C> && x_.strides[4] == 1),
        writes_directly_(y.dtype == dtype_of<C> && y_.strides[4] == 1) {}

  void run() const {
    const int64_t rows = y_.shape[0] * y_.shape[1] * y_.shape[2] * y_.shape[3];
    const int64_t taps = last_.view().starts[(y_.shape[4] - 1) / detail::kTapLanes + 1] * detail::kTapLanes;
    const int64_t grain = std::max<int64_t>(1, kResampleGrain / std::max<int64_t>(taps + x_.shape[4], 1));
    parallel_for(rows, grain, [&](int64_t begin, int64_t end) { run_rows(begin, end); });
  }

 private:
  /// The taps of the axis that is number `from_last` from the end.
  static TapLists lists_of(const ResampleAxes& axes, int from_last) {
    if (from_last > axes.count) return forward_taps({});
    const ResampleAxis& axis = axes.axis[axes.count - from_last];
    return axes.transposed ? transposed_taps(axis) : forward_taps(axis);
  }

  void run_rows(int64_t begin, int64_t end) const {
    const int64_t width = x_.shape[4], n = y_.shape[4];
    const int64_t pitch = (width + 15) / 16 * 16;
    const Scratch memory(args_, sizeof(C) * static_cast<size_t>(pitch * (kRowsAtOnce + 1) + n));
    C* const sum = memory.as<C>();
    C* const buffers = sum + pitch;
    C* const result = buffers + pitch * kRowsAtOnce;
    for (int64_t row = begin; row < end; ++row) {
      const int64_t h = row % y_.shape[3], d = row / y_.shape[3] % y_.shape[2];
      const int64_t plane = row / y_.shape[3] / y_.shape[2];
      const int64_t channel = plane % y_.shape[1], image = plane / y_.shape[1];
      void* const to =
          y_.at(image * y_.strides[0] + channel * y_.strides[1] + d * y_.strides[2] + h * y_.strides[3]);
      C* const out = writes_directly_ ? static_cast<C*>(to) : result;
      if (copies_ && writes_directly_ && row > begin && h > 0 && rows_.same(h, h - 1)) {
        const C* const before = out - y_.strides[3];
        std::copy(before, before + n, out);
        continue;
      }
      const C* const from = weighted(image * x_.strides[0] + channel * x_.strides[1], d, h, sum, buffers);
      if (from == nullptr)
        std::fill_n(out, n, C{0});
      else
        detail::resample_row(last_.view(), from, out);
      if (!writes_directly_) write_(to, y_.strides[4], out, 1, n);
    }
  }

  /// The weighted sum of the rows of x at `offset` that row (d, h) of the result needs; null if it needs
  /// none. It is in `sum`, or a row of x.
  const C* weighted(int64_t offset, int64_t d, int64_t h, C* sum, C* buffers) const {
    const int64_t width = x_.shape[4], pitch = (width + 15) / 16 * 16;
    const C* from[kRowsAtOnce];
    C weights[kRowsAtOnce];
    const int64_t outer = planes_.count(d), inner = rows_.count(h), count = outer * inner;
    for (int64_t k = 0, held = 0; k < count; ++k) {
      const ResampleTap &plane = planes_.of(d)[k / inner], &row = rows_.of(h)[k % inner];
      const void* const at = x_.at(offset + plane.place * x_.strides[2] + row.place * x_.strides[3]);
      from[held] = reads_directly_ ? static_cast<const C*>(at) : buffers + held * pitch;
      weights[held] = static_cast<C>(plane.weight * row.weight);
      if (!reads_directly_) read_(buffers + held * pitch, 1, at, x_.strides[4], width);
      if (count == 1 && weights[0] == C{1}) return from[0];
      if (++held < kRowsAtOnce && k + 1 < count) continue;
      detail::weigh_rows(from, weights, held, width, k >= kRowsAtOnce, sum);
      held = 0;
    }
    return count == 0 ? nullptr : sum;
  }

  const KernelArgs& args_;
  const Volume y_, x_;
  const bool copies_;  // rows of the result with the same taps are equal
  const TapLists planes_, rows_;
  const TapBlocks<C> last_;
  const ConvertRow read_, write_;
  const bool reads_directly_, writes_directly_;
};

}  // namespace

void resample(const KernelArgs& args, const Tensor& y, const Tensor& x, const ResampleAxes& axes) {
  if (y.shape.numel() == 0) return;
  if (x.dtype == f64)
    Resampler<double>(args, y, x, axes).run();
  else
    Resampler<float>(args, y, x, axes).run();
}

}  // namespace mx::kernels
