// Normalisation of channels, whose elements lie in all batches.
#include <algorithm>
#include <memory>
#include <vector>

#include "ndarray/kernels/strided_loop.h"
#include "operators/kernels/norm.h"
#include "operators/kernels/norm_elements.h"

namespace mx::kernels {
namespace {

using detail::Dots;
using detail::kNormChunk;
using detail::kNormRun;
using detail::Moments;
using detail::norm_rows;
using detail::NormInput;
using detail::NormOutput;
using detail::NormRows;
using detail::NormScale;
using detail::NormSlope;
using detail::Runs;

int64_t grain_of(int64_t elements) {
  return std::max<int64_t>(1, kLoopGrain / std::max<int64_t>(1, elements));
}

/// Calls f(first, count, n) for a channel, in parts of at most kNormChunk elements: `count` runs of n
/// elements, channels * run apart, from element `first` on.
template <class F>
void each_part(const ChannelShape& shape, int64_t channel, const F& f) {
  const int64_t pitch = shape.channels * shape.run, together = kNormChunk / shape.run;
  if (together > 0) {
    for (int64_t b = 0; b < shape.batches; b += together)
      f(b * pitch + channel * shape.run, std::min(together, shape.batches - b), shape.run);
    return;
  }
  for (int64_t b = 0; b < shape.batches; ++b)
    for (int64_t i = 0; i < shape.run; i += kNormChunk)
      f(b * pitch + channel * shape.run + i, 1, std::min(kNormChunk, shape.run - i));
}

/// Long runs: each channel is one piece of work.
template <class A>
void forward_by_runs(const ChannelShape& shape, const NormForward& args) {
  const NormRows<A>& rows = norm_rows<A>();
  const int64_t pitch = shape.channels * shape.run;
  const A *const weight = detail::data_of<A>(args.weight), *const bias = detail::data_of<A>(args.bias);
  parallel_for(shape.channels, grain_of(shape.batches * shape.run), [&](int64_t begin, int64_t end) {
    NormInput<A> x(args.x);
    NormOutput<A> y(args.y);
    for (int64_t c = begin; c < end; ++c) {
      Moments moments;
      each_part(shape, c, [&](int64_t first, int64_t count, int64_t n) {
        moments.add(rows.moments(x.load(first, count, pitch, n)));
      });
      const NormScale<A> s(moments, args.eps);
      args.mean.as<A>()[c] = s.shift;
      args.rstd.as<A>()[c] = s.scale;
      const double w = weight == nullptr ? 1 : weight[c], b = bias == nullptr ? 0 : bias[c];
      const A scale = s.scale_by(w), offset = s.offset_by(w, b);
      each_part(shape, c, [&](int64_t first, int64_t count, int64_t n) {
        for (int64_t k = 0; k < count; ++k) {
          const int64_t at = first + k * pitch;
          rows.row(x.load(at, n), y.place(at), n, s.shift, scale, offset);
          y.store(at, n);
        }
      });
    }
  });
}

template <class A>
void backward_by_runs(const ChannelShape& shape, const NormBackward& args) {
  const NormRows<A>& rows = norm_rows<A>();
  const int64_t pitch = shape.channels * shape.run;
  const A* const weight = detail::data_of<A>(args.weight);
  const double n_total = static_cast<double>(shape.batches * shape.run);
  parallel_for(shape.channels, grain_of(shape.batches * shape.run), [&](int64_t begin, int64_t end) {
    NormInput<A> dy(args.dy), x(args.x);
    NormOutput<A> dx(args.dx);
    for (int64_t c = begin; c < end; ++c) {
      const A shift = args.mean.as<A>()[c];
      const double rstd = args.rstd.as<A>()[c], w = weight == nullptr ? 1 : weight[c];
      Dots dots;
      each_part(shape, c, [&](int64_t first, int64_t count, int64_t n) {
        const Dots part = rows.dots(dy.load(first, count, pitch, n), x.load(first, count, pitch, n), shift);
        dots.dy += part.dy;
        dots.dy_x += part.dy_x;
      });
      if (args.parameters) {
        args.dweight.as<A>()[c] = static_cast<A>(dots.dy_x * rstd);
        args.dbias.as<A>()[c] = static_cast<A>(dots.dy);
      }
      const NormSlope<A> s({w * dots.dy, w * dots.dy_x}, rstd, n_total, true);
      each_part(shape, c, [&](int64_t first, int64_t count, int64_t n) {
        for (int64_t k = 0; k < count; ++k) {
          const int64_t at = first + k * pitch;
          rows.backward_row(dy.load(at, n), x.load(at, n), dx.place(at), n, shift, s.p_by(w), s.q_of(),
                            s.r_of(), nullptr);
          dx.store(at, n);
        }
      });
    }
  });
}

/// Short runs: x is a matrix of `batches` rows, whose columns are the elements of the runs. Parts of the rows
/// are folded by columns; then the columns of a channel are joined, in a fixed order.
template <class A>
class ByColumns {
 public:
  explicit ByColumns(const ChannelShape& shape)
      : shape_(shape),
        columns_(shape.channels * shape.run),
        repeats_(std::max<int64_t>(1, kRepeated / std::max<int64_t>(1, columns_))),
        parts_((shape.batches + kRows - 1) / kRows) {}

  void forward(const NormForward& args) {
    const NormRows<A>& rows = norm_rows<A>();
    const auto partial = allocate(3 * parts_);
    const auto at = [&](int64_t part, int64_t which) {
      return partial.get() + (3 * part + which) * columns_;
    };
    each_block([&](int64_t part, int64_t first_row, int64_t count, int64_t column, int64_t n) {
      NormInput<A> x(args.x);
      rows.column_moments(x.load(first_row * columns_ + column, count, columns_, n), at(part, 0) + column,
                          at(part, 1) + column, at(part, 2) + column);
    });
    const A *const weight = detail::data_of<A>(args.weight), *const bias = detail::data_of<A>(args.bias);
    const auto memory = numbers(3);
    A *const shift = memory.get(), *const scale = shift + width(), *const offset = scale + width();
    each_channel([&](int64_t c) {
      Moments moments;
      for (int64_t part = 0; part < parts_; ++part) {
        const double count = static_cast<double>(rows_of(part));
        for (int64_t i = c * shape_.run; i < (c + 1) * shape_.run; ++i) {
          const double rest = at(part, 1)[i];
          moments.add({count, at(part, 0)[i] + rest / count, at(part, 2)[i] - rest * (rest / count)});
        }
      }
      const NormScale<A> s(moments, args.eps);
      args.mean.as<A>()[c] = s.shift;
      args.rstd.as<A>()[c] = s.scale;
      const double w = weight == nullptr ? 1 : weight[c], b = bias == nullptr ? 0 : bias[c];
      set(shift, c, s.shift);
      set(scale, c, s.scale_by(w));
      set(offset, c, s.offset_by(w, b));
    });
    apply(args.y, args.x, shift, scale, offset);
  }

  void backward(const NormBackward& args) {
    const NormRows<A>& rows = norm_rows<A>();
    const auto partial = allocate(2 * parts_), memory = numbers(4);
    const auto at = [&](int64_t part, int64_t which) {
      return partial.get() + (2 * part + which) * columns_;
    };
    A *const shift = memory.get(), *const p = shift + width(), *const q = p + width(), *const r = q + width();
    each_channel([&](int64_t c) { set(shift, c, args.mean.template as<A>()[c]); });
    each_block([&](int64_t part, int64_t first_row, int64_t count, int64_t column, int64_t n) {
      NormInput<A> dy(args.dy), x(args.x);
      const int64_t first = first_row * columns_ + column;
      rows.column_dots(dy.load(first, count, columns_, n), x.load(first, count, columns_, n), shift + column,
                       at(part, 0) + column, at(part, 1) + column);
    });
    const A* const weight = detail::data_of<A>(args.weight);
    each_channel([&](int64_t c) {
      Dots dots;
      for (int64_t part = 0; part < parts_; ++part)
        for (int64_t i = c * shape_.run; i < (c + 1) * shape_.run; ++i) {
          dots.dy += at(part, 0)[i];
          dots.dy_x += at(part, 1)[i];
        }
      const double rstd = args.rstd.as<A>()[c], w = weight == nullptr ? 1 : weight[c];
      if (args.parameters) {
        args.dweight.as<A>()[c] = static_cast<A>(dots.dy_x * rstd);
        args.dbias.as<A>()[c] = static_cast<A>(dots.dy);
      }
      const NormSlope<A> s({w * dots.dy, w * dots.dy_x}, rstd,
                           static_cast<double>(shape_.batches * shape_.run), true);
      set(p, c, s.p_by(w));
      set(q, c, s.q_of());
      set(r, c, s.r_of());
    });
    each_row_part([&](int64_t first, int64_t column, int64_t n) {
      NormInput<A> dy(args.dy), x(args.x);
      NormOutput<A> dx(args.dx);
      rows.backward_columns(dy.load(first, n), x.load(first, n), dx.place(first), n, shift + column,
                            p + column, q + column, r + column);
      dx.store(first, n);
    });
  }

  void inference(const Tensor& y, const Tensor& x, const std::vector<A>& shift, const std::vector<A>& scale,
                 const std::vector<A>& offset) {
    const auto memory = numbers(3);
    A* const n = memory.get();
    each_channel([&](int64_t c) {
      const auto i = static_cast<size_t>(c);
      set(n, c, shift[i]);
      set(n + width(), c, scale[i]);
      set(n + 2 * width(), c, offset[i]);
    });
    apply(y, x, n, n + width(), n + 2 * width());
  }

 private:
  // Rows of a part. With kWidth columns, a block of a part fills a chunk.
  static constexpr int64_t kRows = 128, kWidth = kNormChunk / kRows;
  static constexpr int64_t kRepeated = 512;  // elements of short rows that are computed together

  std::unique_ptr<A[]> allocate(int64_t rows) const {
    return std::make_unique<A[]>(static_cast<size_t>(std::max<int64_t>(1, rows * columns_)));
  }
  int64_t rows_of(int64_t part) const { return std::min(kRows, shape_.batches - part * kRows); }
  /// Memory for `count` numbers of each column. Vector k begins at k * width().
  std::unique_ptr<A[]> numbers(int64_t count) const {
    return std::make_unique<A[]>(static_cast<size_t>(std::max<int64_t>(1, count * width())));
  }
  int64_t width() const { return columns_ * repeats_; }
  void set(A* columns, int64_t channel, A value) const {
    for (int64_t k = 0; k < repeats_; ++k)
      std::fill_n(columns + k * columns_ + channel * shape_.run, shape_.run, value);
  }
  template <class F>
  void each_channel(const F& f) const {
    for (int64_t c = 0; c < shape_.channels; ++c) f(c);
  }
  /// Calls f(part, first_row, rows, first_column, columns) for blocks of at most kNormChunk elements.
  template <class F>
  void each_block(const F& f) const {
    const int64_t across = (columns_ + kWidth - 1) / kWidth;
    parallel_for(parts_ * across, grain_of(kNormChunk), [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) {
        const int64_t part = block / across, column = block % across * kWidth;
        f(part, part * kRows, rows_of(part), column, std::min(kWidth, columns_ - column));
      }
    });
  }
  /// Calls f(first_element, place in numbers(), n) for parts of at most kNormChunk elements.
  template <class F>
  void each_row_part(const F& f) const {
    const int64_t bands = (shape_.batches + repeats_ - 1) / repeats_, total = shape_.batches * columns_;
    parallel_for(bands, grain_of(width()), [&](int64_t begin, int64_t end) {
      for (int64_t band = begin; band < end; ++band) {
        const int64_t first = band * width();
        detail::each_norm_chunk(std::min(width(), total - first),
                                [&](int64_t i, int64_t n) { f(first + i, i, n); });
      }
    });
  }
  void apply(const Tensor& to, const Tensor& from, const A* shift, const A* scale, const A* offset) const {
    const NormRows<A>& rows = norm_rows<A>();
    each_row_part([&](int64_t first, int64_t column, int64_t n) {
      NormInput<A> x(from);
      NormOutput<A> y(to);
      rows.columns(x.load(first, n), y.place(first), n, shift + column, scale + column, offset + column);
      y.store(first, n);
    });
  }

  const ChannelShape shape_;
  const int64_t columns_;
  const int64_t repeats_;  // of the columns in numbers(): several short rows are computed as one
  const int64_t parts_;
};

template <class A>
void forward(const ChannelShape& shape, const NormForward& args) {
  if (shape.run < kNormRun) {
    ByColumns<A>(shape).forward(args);
  } else {
    forward_by_runs<A>(shape, args);
  }
}

template <class A>
void backward(const ChannelShape& shape, const NormBackward& args) {
  if (shape.run < kNormRun) {
    ByColumns<A>(shape).backward(args);
  } else {
    backward_by_runs<A>(shape, args);
  }
}

template <class A>
void inference(const ChannelShape& shape, const Tensor& y, const Tensor& x, const Tensor& mean,
               const Tensor& variance, const A* weight, const A* bias, double eps) {
  const auto channels = static_cast<size_t>(shape.channels);
  std::vector<A> shift(channels), scale(channels), offset(channels, A{0});
  for (size_t c = 0; c < channels; ++c) {
    shift[c] = mean.as<A>()[c];
    scale[c] = static_cast<A>((weight == nullptr ? 1 : weight[c]) / std::sqrt(variance.as<A>()[c] + eps));
    if (bias != nullptr) offset[c] = bias[c];
  }
  if (shape.run < kNormRun) return ByColumns<A>(shape).inference(y, x, shift, scale, offset);
  const NormRows<A>& rows = norm_rows<A>();
  parallel_for(shape.batches * shape.channels, grain_of(shape.run), [&](int64_t begin, int64_t end) {
    NormInput<A> from(x);
    NormOutput<A> to(y);
    for (int64_t r = begin; r < end; ++r) {
      const auto c = static_cast<size_t>(r % shape.channels);
      detail::each_norm_chunk(shape.run, [&](int64_t i, int64_t n) {
        const int64_t first = r * shape.run + i;
        rows.row(from.load(first, n), to.place(first), n, shift[c], scale[c], offset[c]);
        to.store(first, n);
      });
    }
  });
}

}  // namespace

void batch_norm(const ChannelShape& shape, const NormForward& args) {
  args.x.dtype == f64 ? forward<double>(shape, args) : forward<float>(shape, args);
}

void batch_norm_backward(const ChannelShape& shape, const NormBackward& args) {
  args.x.dtype == f64 ? backward<double>(shape, args) : backward<float>(shape, args);
}

void batch_norm_inference(const ChannelShape& shape, const Tensor& y, const Tensor& x, const Tensor& mean,
                          const Tensor& variance, const Tensor* weight, const Tensor* bias, double eps) {
  if (x.dtype == f64) {
    inference<double>(shape, y, x, mean, variance, detail::data_of<double>(weight),
                      detail::data_of<double>(bias), eps);
  } else {
    inference<float>(shape, y, x, mean, variance, detail::data_of<float>(weight),
                     detail::data_of<float>(bias), eps);
  }
}

}  // namespace mx::kernels
