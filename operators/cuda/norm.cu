// Normalisations of batches, groups, layers and by the root of the mean square, and their gradients:
// operators/kernels/norm.h.
//
// A group of threads has a row: the elements with one mean. It computes the mean, then the deviations from
// it, so a mean that is large compared with them costs no digits. Gradients of weights are sums over rows,
// formed in parts that depend on the shape and then added in their order.
#include <algorithm>
#include <cmath>
#include <optional>

#include "ndarray/cuda/copy.h"
#include "operators/cuda/group.cuh"
#include "operators/cuda_kernels.h"
#include "operators/norm.h"
#include "operators/norm_form.h"
#include "operators/scratch.h"

namespace mx::cuda {
namespace {

using mx::detail::NormForm;

/// The rows of a contiguous array, and the weights of their elements.
struct NormRows {
  int64_t rows, n;
  int64_t row_step, inner, outer_step;  // element i of a row is at i / inner * outer_step + i % inner
  int64_t groups, channels, run;        // the weight of element i is r % groups * channels + i / run

  __device__ int64_t at(int64_t row, int64_t i) const {
    return row * row_step + (inner == n ? i : i / inner * outer_step + i % inner);
  }
  /// Returns whether neighbouring elements of a row are neighbours in memory, at least in runs.
  bool adjacent() const { return inner > 1; }
  __device__ int64_t weight(int64_t row, int64_t i) const {
    return row % groups * channels + (run == 1 ? i : channels == 1 ? 0 : i / run);
  }
};

NormRows rows_of_groups(const kernels::GroupShape& s) {
  return {s.rows(), s.row(), s.row(), s.row(), 0, s.groups, s.channels, s.run};
}
NormRows rows_of_channels(const kernels::ChannelShape& s) {
  return {s.channels, s.batches * s.run, s.run, s.run, s.channels * s.run, s.channels, 1, s.batches * s.run};
}

/// y, and the statistics of each row.
template <class A, int kLanes>
__global__ void __launch_bounds__(kBlock)
    normalise_rows(NormRows rows, Elements x, Elements weight, Elements bias, Elements y, Elements mean,
                   Elements rstd, double eps, bool subtracts_mean) {
  using G = Group<kLanes>;
  const int64_t row = G::row();
  if (row >= rows.rows) return;
  A mean_of_row = 0;
  const A n = static_cast<A>(rows.n);
  if (subtracts_mean) {
    for (int64_t i = G::lane(); i < rows.n; i += kLanes) mean_of_row += load<A>(x, rows.at(row, i));
    mean_of_row = G::all(mean_of_row, Add()) / n;
  }
  A squares = 0, rest = 0;
  for (int64_t i = G::lane(); i < rows.n; i += kLanes) {
    const A d = load<A>(x, rows.at(row, i)) - mean_of_row;
    squares += d * d;
    rest += d;
  }
  squares = G::all(squares, Add());
  if (subtracts_mean) {
    // The error of the mean that rounding has left.
    rest = G::all(rest, Add()) / n;
    mean_of_row += rest;
    squares -= n * rest * rest;
  }
  const double variance = static_cast<double>(squares) / static_cast<double>(rows.n);
  const A scale = static_cast<A>(1 / sqrt((variance < 0 ? 0 : variance) + eps));
  if (G::lane() == 0) {
    if (subtracts_mean) store(mean, row, mean_of_row);
    store(rstd, row, scale);
  }
  for (int64_t i = G::lane(); i < rows.n; i += kLanes) {
    const int64_t at = rows.at(row, i);
    A v = (load<A>(x, at) - mean_of_row) * scale;
    if (weight.data != nullptr) v *= load<A>(weight, rows.weight(row, i));
    if (bias.data != nullptr) v += load<A>(bias, rows.weight(row, i));
    store(y, at, v);
  }
}

/// y of given means and variances.
template <class A>
__global__ void __launch_bounds__(kBlock)
    normalise_with_statistics(int64_t n, int64_t channels, int64_t run, Elements x, Elements mean,
                              Elements variance, Elements weight, Elements bias, Elements y, double eps) {
  for (int64_t i = global_index(); i < n; i += global_size()) {
    const int64_t c = i / run % channels;
    const double w = weight.data == nullptr ? 1.0 : load<double>(weight, c);
    const A scale = static_cast<A>(w / sqrt(load<double>(variance, c) + eps));
    A v = (load<A>(x, i) - load<A>(mean, c)) * scale;
    if (bias.data != nullptr) v += load<A>(bias, c);
    store(y, i, v);
  }
}

/// dx. If rows are channels, each has one weight and one bias, whose gradients are computed too.
template <class A, int kLanes>
__global__ void __launch_bounds__(kBlock)
    rows_backward(NormRows rows, Elements dy, Elements x, Elements mean, Elements rstd, Elements weight,
                  Elements dx, Elements dweight, Elements dbias, bool subtracts_mean,
                  bool rows_are_channels) {
  using G = Group<kLanes>;
  const int64_t row = G::row();
  if (row >= rows.rows) return;
  const A mean_of_row = subtracts_mean ? load<A>(mean, row) : A(0), scale = load<A>(rstd, row);
  A sum = 0, product = 0;
  for (int64_t i = G::lane(); i < rows.n; i += kLanes) {
    const int64_t at = rows.at(row, i);
    A g = load<A>(dy, at);
    if (weight.data != nullptr && !rows_are_channels) g *= load<A>(weight, rows.weight(row, i));
    sum += g;
    product += g * (load<A>(x, at) - mean_of_row);
  }
  sum = G::all(sum, Add());
  product = G::all(product, Add());
  A w = 1;
  if (rows_are_channels) {
    if (dweight.data != nullptr && G::lane() == 0) {
      store(dweight, row, product * scale);
      store(dbias, row, sum);
    }
    if (weight.data != nullptr) w = load<A>(weight, row);
    sum *= w;
    product *= w;
  }
  const A n = static_cast<A>(rows.n), slope = -scale * scale * (product * scale / n);
  const A shift = subtracts_mean ? -scale * (sum / n) : A(0);
  for (int64_t i = G::lane(); i < rows.n; i += kLanes) {
    const int64_t at = rows.at(row, i);
    A g = load<A>(dy, at) * w;
    if (weight.data != nullptr && !rows_are_channels) g *= load<A>(weight, rows.weight(row, i));
    store(dx, at, scale * g + slope * (load<A>(x, at) - mean_of_row) + shift);
  }
}

/// Partial sums over the batches of part blockIdx.y, for each channel: of dy (x - mean) rstd, and of dy. A
/// group of threads has the run of a channel.
template <class A, int kLanes>
__global__ void __launch_bounds__(kBlock)
    partial_weight_gradients(kernels::GroupShape shape, Elements dy, Elements x, Elements mean, Elements rstd,
                             bool subtracts_mean, int64_t part, A* sums) {
  using G = Group<kLanes>;
  const int64_t channel = G::row(), channels = shape.groups * shape.channels;
  if (channel >= channels) return;
  const int64_t begin = static_cast<int64_t>(blockIdx.y) * part;
  const int64_t end = begin + part < shape.batches ? begin + part : shape.batches;
  A weight = 0, bias = 0;
  for (int64_t b = begin; b < end; ++b) {
    const int64_t row = b * shape.groups + channel / shape.channels,
                  first = (b * channels + channel) * shape.run;
    const A mean_of_row = subtracts_mean ? load<A>(mean, row) : A(0), scale = load<A>(rstd, row);
    for (int64_t i = G::lane(); i < shape.run; i += kLanes) {
      const A g = load<A>(dy, first + i);
      weight += g * (load<A>(x, first + i) - mean_of_row) * scale;
      bias += g;
    }
  }
  weight = G::all(weight, Add());
  bias = G::all(bias, Add());
  if (G::lane() != 0) return;
  sums[(2 * blockIdx.y) * channels + channel] = weight;
  sums[(2 * blockIdx.y + 1) * channels + channel] = bias;
}

/// Adds up the partial sums of all parts, in their order.
template <class A>
__global__ void __launch_bounds__(kBlock)
    join_weight_gradients(const A* sums, int64_t channels, int64_t parts, Elements dweight, Elements dbias) {
  const int64_t channel = global_index();
  if (channel >= channels) return;
  double weight = 0, bias = 0;
  for (int64_t p = 0; p < parts; ++p) {
    weight += sums[2 * p * channels + channel];
    bias += sums[(2 * p + 1) * channels + channel];
  }
  store(dweight, channel, weight);
  if (dbias.data != nullptr) store(dbias, channel, bias);
}

/// average += share * (f(value) - average), and the count of batches.
__global__ void __launch_bounds__(kBlock)
    update_averages(Elements mean, int64_t mean_step, Elements variance, int64_t variance_step,
                    int64_t* batches, Elements batch_mean, int64_t batch_mean_step, Elements rstd,
                    int64_t rstd_step, int64_t channels, double momentum, bool cumulative, double eps,
                    double n, Elements share_out) {
  const int64_t count = *batches + 1;
  barrier();  // all threads have read the count
  const double share = cumulative ? 1 / static_cast<double>(count) : momentum;
  if (threadIdx.x == 0) {
    *batches = count;
    store(share_out, 0, share);
  }
  for (int64_t c = threadIdx.x; c < channels; c += kBlock) {
    const double r = load<double>(rstd, c * rstd_step), m = load<double>(batch_mean, c * batch_mean_step);
    const double biased = 1 / (r * r) - eps, unbiased = (biased < 0 ? 0 : biased) * (n / (n - 1));
    store(mean, c * mean_step, (1 - share) * load<double>(mean, c * mean_step) + share * m);
    store(variance, c * variance_step,
          (1 - share) * load<double>(variance, c * variance_step) + share * unbiased);
  }
}

/// A tensor without gaps: itself, or a copy.
class ContiguousInput {
 public:
  ContiguousInput(const KernelArgs& args, size_t i) {
    if (i < args.in.size()) take(args, args.in[i]);
  }
  Elements elements() const { return {tensor_.data, tensor_.dtype}; }
  const Tensor& operator*() const { return tensor_; }

 private:
  void take(const KernelArgs& args, const Tensor& from) {
    tensor_ = from;
    if (from.contiguous()) return;
    copy_.emplace(args, static_cast<size_t>(from.numel()) * size_of(from.dtype));
    tensor_ = {copy_->data(), from.dtype, from.shape, contiguous_strides(from.shape)};
    copy_elements(stream_of(args), tensor_, from);
  }
  std::optional<Scratch> copy_;
  Tensor tensor_;
};

// The parts of an operator that depend on its attributes.

struct Form {
  NormRows rows;
  kernels::GroupShape group;
  bool rows_are_channels;
};

Form form_of(const BatchNormAttrs&, const Shape& x, bool) {
  const NormForm form = mx::detail::batch_norm_form(x, "batch_norm");
  return {rows_of_channels(form.channel), {}, true};
}
Form form_of(const BatchNormBackwardAttrs&, const Shape& x, bool) {
  const NormForm form = mx::detail::batch_norm_form(x, "batch_norm");
  return {rows_of_channels(form.channel), {}, true};
}
Form form_of_group(const NormForm& form) { return {rows_of_groups(form.group), form.group, false}; }
template <class T>
requires requires(const T& attrs) { attrs.groups; }
Form form_of(const T& attrs, const Shape& x, bool) {
  return form_of_group(mx::detail::group_norm_form(x, attrs.groups, "group_norm"));
}
template <class T>
requires requires(const T& attrs) { attrs.dims; }
Form form_of(const T& attrs, const Shape& x, bool subtracts_mean) {
  return form_of_group(mx::detail::layer_norm_form(x, attrs.dims, subtracts_mean, "layer_norm"));
}

template <class T, bool kSubtractsMean>
void forward(const KernelArgs& args) {
  const ContiguousInput x(args, 0), weight(args, 1), bias(args, 2);
  const Form form = form_of(args.attr<T>(), (*x).shape, kSubtractsMean);
  if (form.rows.rows == 0) return;
  const Tensor &y = args.out[0], &mean = args.out[1], &rstd = args.out[kSubtractsMean ? 2 : 1];
  visit_real((*x).dtype, [&]<class A>() {
    visit_lanes(lanes_for(form.rows.rows, form.rows.n, form.rows.adjacent()), form.rows.rows,
                [&]<int kLanes>(unsigned blocks) {
                  launch(stream_of(args), blocks, kBlock, 0, normalise_rows<A, kLanes>, form.rows,
                         x.elements(), weight.elements(), bias.elements(), elements_of(y), elements_of(mean),
                         elements_of(rstd), args.attr<T>().eps, kSubtractsMean);
                });
  });
}

template <class A>
void weight_gradients(const KernelArgs& args, const kernels::GroupShape& shape, const Elements& dy,
                      const Elements& x, const Elements& mean, const Elements& rstd, bool subtracts_mean) {
  const int64_t channels = shape.groups * shape.channels;
  if (channels == 0) return;
  constexpr int64_t kThreads = int64_t{1} << 17, kBatches = 8, kMostParts = 256;
  const int lanes = shape.run < kWarp ? 1 : kWarp;
  const int64_t parts =
      std::clamp<int64_t>(std::min(kThreads / (channels * lanes), shape.batches / kBatches), 1, kMostParts);
  const int64_t part = std::max<int64_t>(1, (shape.batches + parts - 1) / parts);
  const Scratch memory(args, static_cast<size_t>(2 * parts * channels) * sizeof(A));
  visit_lanes(lanes, channels, [&]<int kLanes>(unsigned blocks) {
    launch(stream_of(args), dim3(blocks, static_cast<unsigned>(parts)), kBlock, 0,
           partial_weight_gradients<A, kLanes>, shape, dy, x, mean, rstd, subtracts_mean, part,
           memory.as<A>());
  });
  launch(stream_of(args), whole_grid(channels, kBlock), kBlock, 0, join_weight_gradients<A>,
         static_cast<const A*>(memory.as<A>()), channels, parts, elements_of(args.out[1]),
         subtracts_mean ? elements_of(args.out[2]) : Elements{nullptr, f32});
}

template <class T, bool kSubtractsMean>
void backward(const KernelArgs& args) {
  const T& attrs = args.attr<T>();
  const ContiguousInput dy(args, 0), x(args, 1), mean(args, 2), rstd(args, kSubtractsMean ? 3 : 2),
      weight(args, kSubtractsMean ? 4 : 3);
  const Form form = form_of(attrs, (*x).shape, kSubtractsMean);
  const Elements none{nullptr, f32};
  const bool in_same_kernel = form.rows_are_channels && attrs.parameters;
  visit_real((*x).dtype, [&]<class A>() {
    if (form.rows.rows > 0)
      visit_lanes(lanes_for(form.rows.rows, form.rows.n, form.rows.adjacent()), form.rows.rows,
                  [&]<int kLanes>(unsigned blocks) {
                    launch(stream_of(args), blocks, kBlock, 0, rows_backward<A, kLanes>, form.rows,
                           dy.elements(), x.elements(), mean.elements(), rstd.elements(), weight.elements(),
                           elements_of(args.out[0]), in_same_kernel ? elements_of(args.out[1]) : none,
                           in_same_kernel ? elements_of(args.out[2]) : none, kSubtractsMean,
                           form.rows_are_channels);
                  });
    if (attrs.parameters && !form.rows_are_channels)
      weight_gradients<A>(args, form.group, dy.elements(), x.elements(), mean.elements(), rstd.elements(),
                          kSubtractsMean);
  });
}

}  // namespace

void batch_norm(const KernelArgs& args) { forward<BatchNormAttrs, true>(args); }
void batch_norm_backward(const KernelArgs& args) { backward<BatchNormBackwardAttrs, true>(args); }
void group_norm(const KernelArgs& args) { forward<GroupNormAttrs, true>(args); }
void group_norm_backward(const KernelArgs& args) { backward<GroupNormBackwardAttrs, true>(args); }
void layer_norm(const KernelArgs& args) { forward<LayerNormAttrs, true>(args); }
void layer_norm_backward(const KernelArgs& args) { backward<LayerNormBackwardAttrs, true>(args); }
void rms_norm(const KernelArgs& args) { forward<LayerNormAttrs, false>(args); }
void rms_norm_backward(const KernelArgs& args) { backward<LayerNormBackwardAttrs, false>(args); }

void batch_norm_inference(const KernelArgs& args) {
  const ContiguousInput x(args, 0), mean(args, 1), variance(args, 2), weight(args, 3), bias(args, 4);
  const Tensor& out = args.out[0];
  const int64_t n = out.numel();
  if (n == 0) return;
  const kernels::ChannelShape shape = mx::detail::batch_norm_form((*x).shape, "batch_norm_inference").channel;
  std::optional<Scratch> copy;
  Tensor y = out;
  if (!out.contiguous()) {
    copy.emplace(args, static_cast<size_t>(n) * size_of(out.dtype));
    y = {copy->data(), out.dtype, out.shape, contiguous_strides(out.shape)};
  }
  visit_real((*x).dtype, [&]<class A>() {
    launch(stream_of(args), blocks_for(n, kBlock, 1 << 16), kBlock, 0, normalise_with_statistics<A>, n,
           shape.channels, shape.run, x.elements(), mean.elements(), variance.elements(), weight.elements(),
           bias.elements(), elements_of(y), args.attr<BatchNormAttrs>().eps);
  });
  if (copy) copy_elements(stream_of(args), out, y);
}

void update_running_statistics(const KernelArgs& args) {
  const auto& attrs = args.attr<mx::detail::RunningStatisticsAttrs>();
  const auto in = [&](size_t i) { return elements_of(args.in[i]); };
  const auto step = [&](size_t i) { return args.in[i].strides[0]; };
  launch(stream_of(args), 1, kBlock, 0, update_averages, in(0), step(0), in(1), step(1),
         args.in[2].as<int64_t>(), in(3), step(3), in(4), step(4), args.in[0].numel(), attrs.momentum,
         attrs.cumulative, attrs.eps, static_cast<double>(attrs.elements), elements_of(args.out[0]));
}

}  // namespace mx::cuda
