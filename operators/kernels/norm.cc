// Normalisation of consecutive elements: group, instance, layer and RMS normalisation.
#include "operators/kernels/norm.h"

#include <algorithm>
#include <memory>
#include <vector>

#include "ndarray/kernels/strided_loop.h"
#include "operators/kernels/norm_elements.h"

namespace mx::kernels {
namespace {

using detail::Dots;
using detail::each_norm_chunk;
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

/// One weight for each element of a batch, from one for each channel.
template <class A>
class ElementWeights {
 public:
  ElementWeights(const Tensor* weights, const GroupShape& shape) : data_(detail::data_of<A>(weights)) {
    if (data_ == nullptr || shape.run == 1) return;
    copy_.reserve(static_cast<size_t>(shape.groups * shape.row()));
    for (int64_t c = 0; c < shape.groups * shape.channels; ++c)
      copy_.insert(copy_.end(), static_cast<size_t>(shape.run), data_[c]);
    data_ = copy_.data();
  }
  const A* at(int64_t element) const { return data_ == nullptr ? nullptr : data_ + element; }

 private:
  const A* data_;
  std::vector<A> copy_;
};

/// Calls f(begin, end) for ranges of rows.
template <class F>
void each_row_range(const GroupShape& shape, const F& f) {
  parallel_for(shape.rows(), std::max<int64_t>(1, kLoopGrain / std::max<int64_t>(1, shape.row())), f);
}

template <class A>
Moments moments_of_row(NormInput<A>& x, int64_t first, int64_t n, bool centred) {
  const NormRows<A>& rows = norm_rows<A>();
  Moments moments;
  each_norm_chunk(n, [&](int64_t i, int64_t here) {
    const Runs<A> run{x.load(first + i, here), 1, here, here};
    moments.add(centred ? rows.moments(run) : rows.square_moments(run));
  });
  return moments;
}

/// Longer rows gain nothing from being computed together.
constexpr int64_t kShortRow = 512;

/// Short rows whose elements have their own weights, several at a time.
template <class A>
void forward_short_rows(const GroupShape& shape, const NormForward& args) {
  constexpr int64_t kMost = 8;
  const int64_t n = shape.row(), together = shape.groups == 1 ? kMost : 1;
  const ElementWeights<A> weights(args.weight, shape), biases(args.bias, shape);
  const NormRows<A>& rows = norm_rows<A>();
  each_row_range(shape, [&](int64_t begin, int64_t end) {
    for (int64_t r = begin; r < end; r += together) {
      const int64_t count = std::min(together, end - r), element = r % shape.groups * n;
      const Runs<A> x{args.x.as<A>() + r * n, count, n, n};
      Moments moments[kMost];
      A shift[kMost], scale[kMost], offset[kMost];
      rows.moments_of_each(x, args.centred, moments);
      for (int64_t k = 0; k < count; ++k) {
        const NormScale<A> s(moments[k], args.eps);
        shift[k] = s.shift;
        scale[k] = s.scale;
        offset[k] = s.offset;
        if (args.centred) args.mean.as<A>()[r + k] = s.shift;
        args.rstd.as<A>()[r + k] = s.scale;
      }
      rows.weighted_rows(x, args.y.as<A>() + r * n, shift, scale, offset, weights.at(element),
                         biases.at(element));
    }
  });
}

template <class A>
void forward(const GroupShape& shape, const NormForward& args) {
  const int64_t n = shape.row();
  const bool by_element = args.weight != nullptr && shape.run < kNormRun;
  if (by_element && n <= kShortRow && args.x.dtype == dtype_of<A> && args.y.dtype == dtype_of<A>)
    return forward_short_rows<A>(shape, args);
  const ElementWeights<A> weights(by_element ? args.weight : nullptr, shape),
      biases(by_element ? args.bias : nullptr, shape);
  const A *const weight = detail::data_of<A>(args.weight), *const bias = detail::data_of<A>(args.bias);
  const NormRows<A>& rows = norm_rows<A>();
  each_row_range(shape, [&](int64_t begin, int64_t end) {
    NormInput<A> x(args.x);
    NormOutput<A> y(args.y);
    for (int64_t r = begin; r < end; ++r) {
      const int64_t first = r * n, group = r % shape.groups;
      const NormScale<A> s(moments_of_row(x, first, n, args.centred), args.eps);
      if (args.centred) args.mean.as<A>()[r] = s.shift;
      args.rstd.as<A>()[r] = s.scale;
      const auto apply = [&](int64_t from, int64_t count, A scale, A offset) {
        rows.row(x.load(from, count), y.place(from), count, s.shift, scale, offset);
        y.store(from, count);
      };
      if (weight == nullptr) {
        each_norm_chunk(n, [&](int64_t i, int64_t here) { apply(first + i, here, s.scale, s.offset); });
      } else if (by_element) {
        each_norm_chunk(n, [&](int64_t i, int64_t here) {
          rows.weighted_row(x.load(first + i, here), y.place(first + i), here, s.shift, s.scale, s.offset,
                            weights.at(group * n + i), biases.at(group * n + i));
          y.store(first + i, here);
        });
      } else {
        for (int64_t d = 0; d < shape.channels; ++d) {
          const int64_t c = group * shape.channels + d;
          const double w = weight[c], b = bias == nullptr ? 0 : bias[c];
          each_norm_chunk(shape.run, [&](int64_t i, int64_t here) {
            apply(first + d * shape.run + i, here, s.scale_by(w), s.offset_by(w, b));
          });
        }
      }
    }
  });
}

/// The gradient if each element has its own weight, or runs are short. Blocks of rows add up their gradients
/// of weights and biases; then the sums of the blocks are added, in their order.
template <class A>
class ElementBackward {
 public:
  ElementBackward(const GroupShape& shape, const NormBackward& args)
      : shape_(shape),
        args_(args),
        n_(shape.row()),
        weights_(args.weight, shape),
        columns_(shape.groups * n_) {
    // As many blocks as keep the sums small; the number depends on the shape only.
    constexpr int64_t kBlocks = 64, kSums = int64_t{1} << 22;
    const int64_t rows = shape.rows();
    int64_t blocks = std::max<int64_t>(1, rows * n_ / kLoopGrain);
    if (args.parameters)
      blocks = std::min({blocks, kBlocks, std::max<int64_t>(1, kSums / std::max<int64_t>(1, columns_))});
    block_rows_ = std::max<int64_t>(1, (rows + blocks - 1) / blocks);
    blocks_ = (rows + block_rows_ - 1) / block_rows_;
    if (args.parameters) sums_ = std::make_unique<A[]>(static_cast<size_t>(2 * blocks_ * columns_));
  }

  void run() {
    parallel_for(blocks_, 1, [&](int64_t begin, int64_t end) {
      for (int64_t block = begin; block < end; ++block) block_of_rows(block);
    });
    if (args_.parameters) add_blocks();
  }

 private:
  // Rows whose products are added together, so that the sums are loaded and stored once for all of them.
  static constexpr int64_t kTogether = 4;

  void block_of_rows(int64_t block) {
    const int64_t end = std::min(shape_.rows(), (block + 1) * block_rows_);
    NormInput<A> dy(args_.dy), x(args_.x);
    NormOutput<A> dx(args_.dx);
    const bool direct = args_.dy.dtype == dtype_of<A> && args_.x.dtype == dtype_of<A>;
    const int64_t step = shape_.groups == 1 && direct ? kTogether : 1;
    for (int64_t r = block * block_rows_; r < end; r += step) {
      const int64_t count = std::min(step, end - r);
      if (args_.parameters) add_rows(block, r, count, dy, x);  // first, because dx may be the memory of dy
      for (int64_t k = 0; k < count; ++k) row(r + k, dy, x, dx);
    }
  }

  A mean_of(int64_t r) const { return args_.centred ? args_.mean.as<A>()[r] : A{0}; }

  void row(int64_t r, NormInput<A>& dy, NormInput<A>& x, NormOutput<A>& dx) {
    const NormRows<A>& rows = norm_rows<A>();
    const int64_t first = r * n_, at = r % shape_.groups * n_;
    const A shift = mean_of(r);
    Dots dots;
    each_norm_chunk(n_, [&](int64_t i, int64_t here) {
      const A *const g = dy.load(first + i, here), *const v = x.load(first + i, here);
      const A* const w = weights_.at(at + i);
      const Dots part = w == nullptr ? rows.dots({g, 1, here, here}, {v, 1, here, here}, shift)
                                     : rows.weighted_dots(g, v, here, shift, w);
      dots.dy += part.dy;
      dots.dy_x += part.dy_x;
    });
    const NormSlope<A> s(dots, args_.rstd.as<A>()[r], static_cast<double>(n_), args_.centred);
    each_norm_chunk(n_, [&](int64_t i, int64_t here) {
      rows.backward_row(dy.load(first + i, here), x.load(first + i, here), dx.place(first + i), here, shift,
                        s.p_by(1), s.q_of(), s.r_of(), weights_.at(at + i));
      dx.store(first + i, here);
    });
  }

  void add_rows(int64_t block, int64_t r, int64_t count, NormInput<A>& dy, NormInput<A>& x) {
    const int64_t first = r * n_, at = r % shape_.groups * n_;
    A shift[kTogether];
    for (int64_t k = 0; k < count; ++k) shift[k] = mean_of(r + k);
    each_norm_chunk(n_, [&](int64_t i, int64_t here) {
      const Runs<A> g{dy.load(first + i, here), count, n_, here}, v{x.load(first + i, here), count, n_, here};
      norm_rows<A>().add_products(g, v, shift, args_.rstd.as<A>() + r, sum(block, 0) + at + i,
                                  sum(block, 1) + at + i);
    });
  }

  A* sum(int64_t block, int64_t which) const { return sums_.get() + (2 * block + which) * columns_; }

  void add_blocks() {
    const int64_t channels = shape_.groups * shape_.channels;
    const int64_t work = std::max<int64_t>(1, blocks_ * shape_.run);
    parallel_for(channels, std::max<int64_t>(1, kLoopGrain / work), [&](int64_t begin, int64_t end) {
      for (int64_t c = begin; c < end; ++c) {
        double weight = 0, bias = 0;
        for (int64_t block = 0; block < blocks_; ++block)
          for (int64_t i = c * shape_.run; i < (c + 1) * shape_.run; ++i) {
            weight += sum(block, 0)[i];
            bias += sum(block, 1)[i];
          }
        args_.dweight.as<A>()[c] = static_cast<A>(weight);
        if (args_.centred) args_.dbias.as<A>()[c] = static_cast<A>(bias);
      }
    });
  }

  const GroupShape shape_;
  const NormBackward& args_;
  const int64_t n_;
  const ElementWeights<A> weights_;
  const int64_t columns_;
  int64_t block_rows_ = 1, blocks_ = 1;
  std::unique_ptr<A[]> sums_;  // of each block: products, then heads
};

/// The gradient if each channel is a long run of elements.
template <class A>
void backward_by_runs(const GroupShape& shape, const NormBackward& args) {
  const int64_t n = shape.row(), channels = shape.groups * shape.channels, run = shape.run;
  const NormRows<A>& rows = norm_rows<A>();
  const A* const weight = detail::data_of<A>(args.weight);
  const auto weight_of = [weight](int64_t c) { return weight == nullptr ? 1. : double{weight[c]}; };
  std::vector<Dots> sums(static_cast<size_t>(shape.batches * channels));
  each_row_range(shape, [&](int64_t begin, int64_t end) {
    NormInput<A> dy(args.dy), x(args.x);
    NormOutput<A> dx(args.dx);
    for (int64_t r = begin; r < end; ++r) {
      const int64_t first_channel = r % shape.groups * shape.channels;
      const double rstd = args.rstd.as<A>()[r];
      const A shift = args.centred ? args.mean.as<A>()[r] : A{0};
      Dots dots;
      for (int64_t d = 0; d < shape.channels; ++d) {
        Dots& channel = sums[static_cast<size_t>(r * shape.channels + d)];
        const int64_t first = r * n + d * run;
        each_norm_chunk(run, [&](int64_t i, int64_t here) {
          const Dots part = rows.dots({dy.load(first + i, here), 1, here, here},
                                      {x.load(first + i, here), 1, here, here}, shift);
          channel.dy += part.dy;
          channel.dy_x += part.dy_x;
        });
        const double w = weight_of(first_channel + d);
        dots.dy += w * channel.dy;
        dots.dy_x += w * channel.dy_x;
      }
      const NormSlope<A> s(dots, rstd, static_cast<double>(n), args.centred);
      for (int64_t d = 0; d < shape.channels; ++d) {
        const int64_t first = r * n + d * run;
        const double w = weight_of(first_channel + d);
        each_norm_chunk(run, [&](int64_t i, int64_t here) {
          rows.backward_row(dy.load(first + i, here), x.load(first + i, here), dx.place(first + i), here,
                            shift, s.p_by(w), s.q_of(), s.r_of(), nullptr);
          dx.store(first + i, here);
        });
      }
    }
  });
  if (!args.parameters) return;
  for (int64_t c = 0; c < channels; ++c) {
    double dweight = 0, dbias = 0;
    for (int64_t b = 0; b < shape.batches; ++b) {
      const Dots& dots = sums[static_cast<size_t>(b * channels + c)];
      dweight += dots.dy_x * args.rstd.as<A>()[b * shape.groups + c / shape.channels];
      dbias += dots.dy;
    }
    args.dweight.as<A>()[c] = static_cast<A>(dweight);
    if (args.centred) args.dbias.as<A>()[c] = static_cast<A>(dbias);
  }
}

template <class A>
void backward(const GroupShape& shape, const NormBackward& args) {
  if (shape.run < kNormRun) {
    ElementBackward<A>(shape, args).run();
  } else {
    backward_by_runs<A>(shape, args);
  }
}

}  // namespace

void group_norm(const GroupShape& shape, const NormForward& args) {
  args.x.dtype == f64 ? forward<double>(shape, args) : forward<float>(shape, args);
}

void group_norm_backward(const GroupShape& shape, const NormBackward& args) {
  args.x.dtype == f64 ? backward<double>(shape, args) : backward<float>(shape, args);
}

}  // namespace mx::kernels
